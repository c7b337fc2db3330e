package enqueue

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

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
