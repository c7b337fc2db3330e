package remediationrequest

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Named notes that a MachineHealthCheck names kinds of templates and requests, and no others any more, and ends the watches of those that no
// check names, and of whose objects none is a request of a check. It must be called before Readable is asked of them, so that no other check
// ends that watch meanwhile; and again, without kinds, when the check is gone. What it could not find out is tried again with the next call
// for any check: the deletion of the last request enqueues the check that made it.
//
// Kinds that kubemend serves itself stay: others read them from the same cache.
func (k *Kinds[T]) Named(ctx context.Context, check types.NamespacedName, kinds ...schema.GroupVersionKind) error {
	k.mu.Lock()
	before := k.names[check]
	if k.names[check] = kinds; len(kinds) == 0 {
		delete(k.names, check)
	}
	for _, kind := range kinds {
		is := k.of(kind)
		is.named++
		is.idle = false
	}
	for _, kind := range before {
		is := k.of(kind)
		is.named--
		is.idle = is.named == 0
	}
	k.mu.Unlock()
	idle := k.kinds(func(_ schema.GroupVersionKind, is *known) bool { return is.idle })
	errs := make([]error, 0, len(idle))
	for _, kind := range idle {
		errs = append(errs, k.dropIdle(ctx, kind))
	}
	return errors.Join(errs...)
}

// KeepWhileAny makes k watch the kinds of requests that no check names any more as long as there is a request of one, of any check: where the
// requests of others keep a check from acting. It must be called before the first Named.
func (k *Kinds[T]) KeepWhileAny() { k.anybodys = true }

// dropIdle ends the watch of a kind that no check names, unless there is a request of a check.
func (k *Kinds[T]) dropIdle(ctx context.Context, kind schema.GroupVersionKind) error {
	now := k.now(kind)
	if now.busy() {
		return nil
	}
	if (now.informer != nil || now.polled) && !served(kind) {
		if left, err := k.requestsLeft(ctx, kind, now); left || err != nil {
			return err
		}
		k.drop(ctx, kind, true)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	is := k.of(kind)
	is.idle = false
	if is.named == 0 && is.informer == nil && !is.busy() {
		delete(k.known, kind)
	}
	return nil
}

// requestsLeft reports whether there is a request of that kind that a check made, or any at all: see KeepWhileAny. The cache is asked first, which
// costs nothing; it may not have seen one that was just made, so the API server has the last word. Of a kind that is gone, or that may not be listed,
// there are none.
func (k *Kinds[T]) requestsLeft(ctx context.Context, kind schema.GroupVersionKind, now known) (bool, error) {
	if isTemplate(kind) {
		return false, nil
	}
	if now.synced() && k.seen(ctx, kind) {
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
