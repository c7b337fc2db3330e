// Package enqueue maps events of objects to reconciles of the checks that they concern, and merges bursts of events.
package enqueue

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// MergeWindow is how long the events of one check are collected before it is reconciled, so that a rack that loses power causes one
// reconcile instead of forty.
const MergeWindow = 100 * time.Millisecond

// Merged enqueues the checks that an event concerns, after the merge window.
func Merged[T client.Object](checks handler.MapFunc) handler.TypedEventHandler[T, reconcile.Request] {
	return on[T](checks, func(q queue, check reconcile.Request) { q.AddAfter(check, MergeWindow) })
}

// FirstAtOnce enqueues the checks that an event concerns, a check without recent events at once. All handlers of a controller must share m.
// It uses the real clock even in tests with another clock, because events come in real time.
func FirstAtOnce[T client.Object](m *Merging, checks handler.MapFunc) handler.TypedEventHandler[T, reconcile.Request] {
	return on[T](checks, func(q queue, check reconcile.Request) {
		if wait := m.wait(check, clock.RealClock{}.Now()); wait > 0 {
			q.AddAfter(check, wait)
		} else {
			q.Add(check)
		}
	})
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func on[T client.Object](checks handler.MapFunc, enqueue func(queue, reconcile.Request)) handler.TypedEventHandler[T, reconcile.Request] {
	add := func(ctx context.Context, q queue, objects ...T) {
		added := sets.Set[reconcile.Request]{} // two objects, or two ways to one check, may have the same check
		for _, obj := range objects {
			for _, check := range checks(ctx, obj) {
				if !added.Has(check) {
					added.Insert(check)
					enqueue(q, check)
				}
			}
		}
	}
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[T], q queue) { add(ctx, q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[T], q queue) {
			if maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				add(ctx, q, e.ObjectNew)
			} else {
				add(ctx, q, e.ObjectNew, e.ObjectOld) // with its old labels, the object may have belonged to another check
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[T], q queue) { add(ctx, q, e.Object) },
	}
}
