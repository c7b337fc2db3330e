// Package enqueue maps events of objects to reconciles of the checks that they concern, and merges bursts of events.
package enqueue

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
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

// Merging decides when a check is reconciled after an event. If the check had no event for a merge window, it is reconciled at once. The
// events that follow are reconciled together at the end of the window. So a single event does not wait, and a burst causes one reconcile
// for each window. The zero value is ready for use.
type Merging struct {
	mu    sync.Mutex
	due   map[reconcile.Request]time.Time // when the last reconcile was or will be
	swept time.Time
}

// wait returns how long after an event at now to reconcile the check.
func (m *Merging) wait(check reconcile.Request, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	last, known := m.due[check]
	if known && now.Before(last) {
		return last.Sub(now) // the reconcile that is due sees this event too
	}
	at := now
	if known && now.Before(last.Add(MergeWindow)) {
		at = last.Add(MergeWindow)
	}
	m.due[check] = at
	return at.Sub(now)
}

// sweep deletes the checks without recent events, once a minute, so that checks that are gone do not use memory.
func (m *Merging) sweep(now time.Time) {
	if m.due != nil && now.Before(m.swept.Add(time.Minute)) {
		return
	}
	if m.due == nil {
		m.due = map[reconcile.Request]time.Time{}
	}
	maps.DeleteFunc(m.due, func(_ reconcile.Request, at time.Time) bool { return !now.Before(at.Add(MergeWindow)) })
	m.swept = now
}

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

// Broadcast sends events that do not come from an API server to several controllers. The zero value has no listeners.
type Broadcast[T any] struct {
	mu        sync.Mutex
	listeners []chan event.TypedGenericEvent[T]
}

// buffered is how many events wait for a slow listener. Further events are lost, so controllers must also reconcile from time to time.
const buffered = 1024

// Send sends what to all listeners. It does not block.
func (b *Broadcast[T]) Send(what T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range b.listeners {
		select {
		case l <- event.TypedGenericEvent[T]{Object: what}:
		default:
		}
	}
}

// Source adds a listener, and returns a source that enqueues the requests of each event for one controller.
func (b *Broadcast[T]) Source(requests func(context.Context, T) []reconcile.Request) source.Source {
	return b.Into(func(ctx context.Context, what T, q queue) {
		for _, request := range requests(ctx, what) {
			q.Add(request)
		}
	})
}

// Into adds a listener, and returns a source for one controller. It calls does for each event, which enqueues requests.
func (b *Broadcast[T]) Into(does func(context.Context, T, queue)) source.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := make(chan event.TypedGenericEvent[T], buffered)
	b.listeners = append(b.listeners, events)
	return source.Channel(events, handler.TypedFuncs[T, reconcile.Request]{
		GenericFunc: func(ctx context.Context, e event.TypedGenericEvent[T], q queue) { does(ctx, e.Object, q) },
	})
}

const (
	// Conflicted is how long to wait for the cache after a conflict with the write of another client.
	Conflicted = 200 * time.Millisecond
	// RetryAtMost is the longest time between two tries.
	RetryAtMost = time.Minute
)

// Retries returns a rate limiter for reconciles that return an error: it waits for first, then twice as long each time, up to RetryAtMost.
func Retries(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, RetryAtMost)
}

// Backoff returns how long to wait after so many failed tries in a row. It doubles with each try, up to RetryAtMost.
func Backoff(tries int) time.Duration {
	return min(Conflicted<<min(tries-1, 16), RetryAtMost)
}

// At returns a result that repeats the reconcile at this time; if it is zero, only an event does. The priority is that of an event, because
// otherwise an object would keep the low priority that it got from the first list.
func At(at, now time.Time) ctrl.Result {
	if at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(at.Sub(now), time.Millisecond), Priority: ptr.To(0)}
}
