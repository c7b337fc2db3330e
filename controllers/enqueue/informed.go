package enqueue

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Informed returns a source for a running controller that begins to watch an informer: h gets all events after the controller's Watch has
// returned.
//
// controller-runtime's source.Kind does not guarantee that. A goroutine adds its handler after the informer's first list, up to 100 ms
// after other goroutines can read the listed objects. If an object is judged and deleted in between, no handler gets the delete event.
// (controller-runtime v0.24, pkg/internal/source: Kind.Start; pkg/cache/internal: Informers.Get.)
func Informed[T client.Object](informer cache.Informer, h handler.TypedEventHandler[T, reconcile.Request],
	predicates ...predicate.TypedPredicate[T],
) source.Source {
	accepts := predicate.And(predicates...)
	return &source.Informer{Informer: informer, Handler: handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			created := event.TypedCreateEvent[T]{Object: e.Object.(T), IsInInitialList: e.IsInInitialList}
			if accepts.Create(created) {
				h.Create(ctx, created, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			updated := event.TypedUpdateEvent[T]{ObjectOld: e.ObjectOld.(T), ObjectNew: e.ObjectNew.(T)}
			if accepts.Update(updated) {
				h.Update(ctx, updated, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			deleted := event.TypedDeleteEvent[T]{Object: e.Object.(T), DeleteStateUnknown: e.DeleteStateUnknown}
			if accepts.Delete(deleted) {
				h.Delete(ctx, deleted, q)
			}
		},
	}}
}
