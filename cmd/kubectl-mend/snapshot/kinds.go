package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

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

	mu    sync.Mutex
	asked map[schema.GroupVersionKind]bool
}

// NewKinds returns the kinds of w. Those of which there are remediations are in use from the start, as for a manager that has looked for
// them.
func NewKinds[T client.Object](w *Snapshot) *Kinds[T] {
	return &Kinds[T]{snapshot: w, asked: map[schema.GroupVersionKind]bool{}}
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

// Ready reports that a kind of a MachineHealthCheck can be read. The error satisfies remediationrequest.Missing if the kind is not
// installed, and apierrors.IsForbidden if the user may not list it.
func (k *Kinds[T]) Ready(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	q := question{gvk: gvk}
	if k.snapshot.source != nil {
		q.namespace = k.snapshot.source.Namespace
	}
	return k.read(ctx, q)
}

// Readable is Ready for a NodeHealthCheck, whose requests are read wherever they are.
func (k *Kinds[T]) Readable(ctx context.Context, gvk schema.GroupVersionKind) (bool, error) {
	return k.read(ctx, question{gvk: gvk})
}

func (k *Kinds[T]) read(ctx context.Context, q question) (bool, error) {
	w := k.snapshot
	if err := w.load(ctx, q); err != nil {
		return false, err
	}
	w.mu.RLock()
	found, err := w.find(q.gvk)
	if err == nil && len(found.read()) == 0 {
		err = found.unread("")
	}
	w.mu.RUnlock()
	if err != nil {
		return false, fmt.Errorf("list %s: %w", q.gvk, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked[q.gvk] = true
	return true, nil
}

// InUse returns the kinds of requests that were asked for, and those of which there are remediations, each in one of its versions, in a
// stable order.
func (k *Kinds[T]) InUse() []schema.GroupVersionKind {
	k.mu.Lock()
	kinds := slices.DeleteFunc(slices.Collect(maps.Keys(k.asked)), func(gvk schema.GroupVersionKind) bool {
		return strings.HasSuffix(gvk.Kind, remediationrequest.TemplateSuffix)
	})
	k.mu.Unlock()
	for _, installed := range k.snapshot.installed() {
		gvk := installed.WithVersion(installed.versions[0])
		if k.snapshot.remediates(installed) && len(k.snapshot.Objects(gvk, "")) > 0 {
			kinds = append(kinds, gvk)
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Version, b.Version))
	})
	return slices.CompactFunc(kinds, func(a, b schema.GroupVersionKind) bool { return a.GroupKind() == b.GroupKind() })
}
