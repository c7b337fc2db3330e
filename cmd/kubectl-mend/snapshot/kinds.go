package snapshot

import (
	"context"
	"fmt"
	"slices"

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
	snapshot  *Snapshot
	namespace string
}

// NewKinds returns the kinds of w, as they are read for MachineHealthChecks in a namespace, or for NodeHealthChecks in all, if it is empty.
func NewKinds[T client.Object](w *Snapshot, namespace string) *Kinds[T] {
	return &Kinds[T]{w, namespace}
}

// Namespace is the one that is read; empty for all.
func (w *Snapshot) Namespace() string {
	if w.source == nil {
		return ""
	}
	return w.source.Namespace
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

// Ready reports that a kind can be read. The error satisfies remediationrequest.Missing if the kind is not installed, and
// apierrors.IsForbidden if the user may not list it.
func (k *Kinds[T]) Ready(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	w := k.snapshot
	if err := w.load(ctx, question{gvk: gvk, namespace: k.namespace}); err != nil {
		return false, err
	}
	w.mu.RLock()
	defer w.mu.RUnlock()
	found, err := w.find(gvk)
	if err == nil {
		err = found.unread(k.namespace)
	}
	if err != nil {
		return false, fmt.Errorf("list %s: %w", gvk, err)
	}
	return true, nil
}

// Readable is Ready: nothing is watched.
func (k *Kinds[T]) Readable(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	return k.Ready(ctx, gvk)
}

// InUse returns the kinds of requests that were read, or have nothing to read, each in its preferred version, in a stable order.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, installed := range k.snapshot.installed() {
		asked, why := installed.scope(k.namespace)
		gvk := installed.WithVersion(installed.versions[0])
		read := asked && why == nil || !asked && !installed.live
		if read && k.snapshot.templated(installed) && !slices.Contains(scoped, gvk) {
			kinds = append(kinds, gvk)
		}
	}
	return kinds
}
