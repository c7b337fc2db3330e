package remediationrequest

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// names are which checks name which kinds.
type names struct {
	of map[types.NamespacedName][]schema.GroupVersionKind
	by map[schema.GroupVersionKind]int // how many checks name a kind
	// idle are the kinds that are watched although no check names them: there may be requests of a check that does not any more.
	idle map[schema.GroupVersionKind]bool
}

func newNames() names {
	return names{
		of: map[types.NamespacedName][]schema.GroupVersionKind{}, by: map[schema.GroupVersionKind]int{}, idle: map[schema.GroupVersionKind]bool{},
	}
}

// set notes that check names kinds, and no others.
func (n names) set(check types.NamespacedName, kinds []schema.GroupVersionKind) {
	was := n.of[check]
	for _, kind := range kinds {
		n.by[kind]++
		delete(n.idle, kind)
	}
	for _, kind := range was {
		n.by[kind]--
		if n.by[kind] == 0 {
			delete(n.by, kind)
			n.idle[kind] = true
		}
	}
	if n.of[check] = kinds; len(kinds) == 0 {
		delete(n.of, check)
	}
}

// Named notes that a MachineHealthCheck names kinds of templates and requests, and no others any more, and ends the watches of those that no
// check names, and of whose objects none is a request of a check. It must be called before Readable is asked of them, so that no other check
// ends that watch meanwhile; and again, without kinds, when the check is gone. What it could not find out is tried again with the next call
// for any check: the deletion of the last request enqueues the check that made it.
//
// Kinds that kubemend serves itself stay: others read them from the same cache.
func (k *Kinds[T]) Named(ctx context.Context, check types.NamespacedName, kinds ...schema.GroupVersionKind) error {
	k.mu.Lock()
	if !slices.Equal(k.names.of[check], kinds) {
		k.names.set(check, kinds)
	}
	idle := make([]schema.GroupVersionKind, 0, len(k.names.idle))
	for kind := range k.names.idle {
		idle = append(idle, kind)
	}
	k.mu.Unlock()
	errs := make([]error, 0, len(idle))
	for _, kind := range idle {
		errs = append(errs, k.dropIdle(ctx, kind))
	}
	return errors.Join(errs...)
}

// KeepWhileAny makes k watch the kinds of requests that no check names any more as long as there is a request of one, of any check: where the
// requests of others keep a check from acting. It must be called before the first Named.
func (k *Kinds[T]) KeepWhileAny() { k.anybodys = true }

// found notes that kind is watched for what was found of it, whether a check names it or not.
func (k *Kinds[T]) found(kind schema.GroupVersionKind) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.names.by[kind] == 0 {
		k.names.idle[kind] = true
	}
}

// dropIdle ends the watch of a kind that no check names, unless there is a request of a check.
func (k *Kinds[T]) dropIdle(ctx context.Context, kind schema.GroupVersionKind) error {
	informer, busy := k.informer(kind)
	if busy {
		return nil
	}
	if (informer != nil || k.Polled(kind)) && !served(kind) {
		if left, err := k.requestsLeft(ctx, kind, informer); left || err != nil {
			return err
		}
		k.drop(ctx, kind, func() bool { return k.names.by[kind] > 0 })
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.names.idle, kind)
	return nil
}

// requestsLeft reports whether there is a request of that kind that a check made, or any at all: see KeepWhileAny. The cache is asked first, which
// costs nothing; it may not have seen one that was just made, so the API server has the last word. Of a kind that is gone, or that may not be listed,
// there are none.
func (k *Kinds[T]) requestsLeft(ctx context.Context, kind schema.GroupVersionKind, informer cache.Informer) (bool, error) {
	if strings.HasSuffix(kind.Kind, TemplateSuffix) {
		return false, nil
	}
	if informer != nil && informer.HasSynced() && k.seen(ctx, kind) {
		return true, nil
	}
	var marked []client.ListOption
	if !k.anybodys {
		marked = append(marked, client.HasLabels{mendv1.MadeByUIDLabel})
	}
	left, err := k.list(ctx, kind, marked...)
	if Missing(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return len(left) > 0, err
}

// seen reports whether the cache has such a request.
func (k *Kinds[T]) seen(ctx context.Context, kind schema.GroupVersionKind) bool {
	var list client.ObjectList = &metav1.PartialObjectMetadataList{}
	if _, whole := any(k.empty()).(*unstructured.Unstructured); whole {
		list = &unstructured.UnstructuredList{} // for metadata there would be another informer
	}
	list.GetObjectKind().SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if k.cache.List(ctx, list, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	found := false
	_ = meta.EachListItem(list, func(obj runtime.Object) error { // both kinds of lists have items
		req, is := obj.(metav1.Object)
		if is && !found {
			_, marked := MadeBy(req)
			found = marked || k.anybodys
		}
		return nil
	})
	return found
}

// drop ends the watch of a kind, unless keep, which is asked under the lock, says no. For callers meanwhile it is not ready.
func (k *Kinds[T]) drop(ctx context.Context, kind schema.GroupVersionKind, keep func() bool) {
	k.mu.Lock()
	if k.beginning[kind] || keep() {
		k.mu.Unlock()
		return
	}
	delete(k.known, kind)
	delete(k.polled, kind)
	delete(k.begun, kind)
	if k.latest[kind.GroupKind()] == kind.Version {
		delete(k.latest, kind.GroupKind())
	}
	k.ending[kind] = true
	k.mu.Unlock()

	obj := k.empty()
	obj.GetObjectKind().SetGroupVersionKind(kind)
	_ = k.cache.RemoveInformer(ctx, obj) // it fails for objects whose kind is unknown alone, and those are not watched

	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.ending, kind)
	k.ended++
}

// Ended is how many watches were ended. What happened to the last objects of such a kind may have reached no check: a check that waits for one to be gone
// has to look again.
func (k *Kinds[T]) Ended() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ended
}

// served reports whether kubemend may act on the requests of a kind itself, or on those made from templates of it.
func served(kind schema.GroupVersionKind) bool {
	switch kind.Group {
	case mendv1.GroupVersion.Group:
		return true
	case infrav1.GroupVersion.Group:
		return kind.Kind == "Metal3Remediation" || kind.Kind == "Metal3Remediation"+TemplateSuffix
	}
	return false
}
