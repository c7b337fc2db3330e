package enqueue

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Informed is a source of the events of an informer that a running controller begins to watch: h hears of everything that happens after the
// controller's Watch has returned.
//
// controller-runtime's own source of a kind does not promise that. It waits for the informer's first list in a goroutine and adds its handler
// only then, up to a tenth of a second after others may read what was listed: an object that is judged and deleted in between is an event that
// no handler hears of. (controller-runtime v0.24, pkg/internal/source: Kind.Start; pkg/cache/internal: Informers.Get.)
func Informed[T client.Object](informer cache.Informer, h handler.TypedEventHandler[T, reconcile.Request],
	predicates ...predicate.TypedPredicate[T],
) source.Source {
	return &source.Informer{Informer: informer, Handler: untyped[T]{hears: h, predicates: predicates}}
}

// untyped handles the events of objects that all are of type T.
type untyped[T client.Object] struct {
	hears      handler.TypedEventHandler[T, reconcile.Request]
	predicates []predicate.TypedPredicate[T]
}

// Create implements handler.EventHandler.
func (u untyped[T]) Create(ctx context.Context, e event.CreateEvent, q queue) {
	is := event.TypedCreateEvent[T]{Object: e.Object.(T), IsInInitialList: e.IsInInitialList}
	if u.accepts(func(p predicate.TypedPredicate[T]) bool { return p.Create(is) }) {
		u.hears.Create(ctx, is, q)
	}
}

// Update implements handler.EventHandler.
func (u untyped[T]) Update(ctx context.Context, e event.UpdateEvent, q queue) {
	is := event.TypedUpdateEvent[T]{ObjectOld: e.ObjectOld.(T), ObjectNew: e.ObjectNew.(T)}
	if u.accepts(func(p predicate.TypedPredicate[T]) bool { return p.Update(is) }) {
		u.hears.Update(ctx, is, q)
	}
}

// Delete implements handler.EventHandler.
func (u untyped[T]) Delete(ctx context.Context, e event.DeleteEvent, q queue) {
	is := event.TypedDeleteEvent[T]{Object: e.Object.(T), DeleteStateUnknown: e.DeleteStateUnknown}
	if u.accepts(func(p predicate.TypedPredicate[T]) bool { return p.Delete(is) }) {
		u.hears.Delete(ctx, is, q)
	}
}

// Generic implements handler.EventHandler. An informer has no such events.
func (u untyped[T]) Generic(ctx context.Context, e event.GenericEvent, q queue) {
	u.hears.Generic(ctx, event.TypedGenericEvent[T]{Object: e.Object.(T)}, q)
}

func (u untyped[T]) accepts(ask func(predicate.TypedPredicate[T]) bool) bool {
	return !slices.ContainsFunc(u.predicates, func(p predicate.TypedPredicate[T]) bool { return !ask(p) })
}
