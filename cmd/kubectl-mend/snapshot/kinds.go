package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Kinds are the kinds of templates and requests of a snapshot, with what the controllers ask of remediationrequest.Kinds. All of them are
// read when they are asked for, or cannot be, so none is watched, polled or discovered later.
type Kinds[T client.Object] struct {
	snapshot *Snapshot
	marks    []client.ListOption

	mu    sync.Mutex
	asked map[schema.GroupVersionKind]bool
}

// NewKinds returns the kinds of w. Those of which there is a request that one of the marks selects are in use from the start, as for a
// manager that has looked for them.
func NewKinds[T client.Object](w *Snapshot, marks ...client.ListOption) *Kinds[T] {
	return &Kinds[T]{snapshot: w, marks: marks, asked: map[schema.GroupVersionKind]bool{}}
}

// Notify does nothing.
func (k *Kinds[T]) Notify(remediationrequest.Watcher, handler.TypedEventHandler[T, reconcile.Request]) {
}

// Named does nothing.
func (k *Kinds[T]) Named(context.Context, types.NamespacedName, ...schema.GroupVersionKind) error {
	return nil
}

// Unread returns nothing.
func (k *Kinds[T]) Unread() []schema.GroupVersionKind { return nil }

// Polled is false of all.
func (k *Kinds[T]) Polled(schema.GroupVersionKind) bool { return false }

// Ready reports that a kind can be read, in any namespace. The error satisfies remediationrequest.Missing if the kind is not installed, and
// apierrors.IsForbidden if the user may not list it.
func (k *Kinds[T]) Ready(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	w, q := k.snapshot, question{gvk: gvk}
	if len(k.marks) == 0 && w.source != nil { // those of NodeHealthChecks, which are marked, are read wherever they are
		q.namespace = w.source.Namespace
	}
	if err := w.load(ctx, q); err != nil {
		return false, err
	}
	w.mu.RLock()
	found, err := w.find(gvk)
	if err == nil && len(found.read()) == 0 {
		err = found.unread("")
	}
	w.mu.RUnlock()
	if err != nil {
		return false, fmt.Errorf("list %s: %w", gvk, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[gvk] = true
	return true, nil
}

// Readable is Ready: nothing is watched.
func (k *Kinds[T]) Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
	return k.Ready(ctx, kind)
}

// InUse returns the kinds of requests that were asked for, and those that are marked, each in one of its versions, in a stable order.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	kinds := k.marked()
	k.mu.Lock()
	for gvk := range k.asked {
		if !strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix) {
			kinds = append(kinds, gvk)
		}
	}
	k.mu.Unlock()
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version))
	})
	return slices.CompactFunc(kinds, func(a, b schema.GroupVersionKind) bool { return a.GroupKind() == b.GroupKind() })
}

// marked are the kinds that have templates and of which a request has a mark, in the preferred version.
func (k *Kinds[T]) marked() []schema.GroupVersionKind {
	installed := k.snapshot.installed()
	var kinds []schema.GroupVersionKind
	for _, of := range installed {
		template := schema.GroupKind{Group: of.Group, Kind: of.Kind + remediationrequest.TemplateSuffix}
		if !custom(of.Group) || !slices.ContainsFunc(installed, func(k *kind) bool { return k.GroupKind == template }) {
			continue
		}
		gvk := of.WithVersion(of.versions[0])
		if slices.ContainsFunc(k.snapshot.Objects(gvk, ""), k.hasMark) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}

func (k *Kinds[T]) hasMark(obj client.Object) bool {
	return slices.ContainsFunc(k.marks, func(mark client.ListOption) bool {
		selector := (&client.ListOptions{}).ApplyOptions([]client.ListOption{mark}).LabelSelector
		return selector != nil && selector.Matches(labels.Set(obj.GetLabels()))
	})
}
