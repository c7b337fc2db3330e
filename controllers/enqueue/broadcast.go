package enqueue

import (
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Broadcast carries events that no API server has to several controllers. The zero value has no listeners.
type Broadcast[T any] struct {
	mu        sync.Mutex
	listeners []chan event.TypedGenericEvent[T]
}

// buffered is how many events a listener may be behind. Those beyond that are lost: who listens has to check again from time to time
// anyway.
const buffered = 1024

// Send sends what to all controllers. It does not block.
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

// Source is where one controller receives the events, as requests.
func (b *Broadcast[T]) Source(requests func(context.Context, T) []reconcile.Request) source.Source {
	return b.Into(func(ctx context.Context, what T, q queue) {
		for _, request := range requests(ctx, what) {
			q.Add(request)
		}
	})
}

// Into is where one controller receives the events, which does enqueues.
func (b *Broadcast[T]) Into(does func(context.Context, T, queue)) source.Source {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := make(chan event.TypedGenericEvent[T], buffered)
	b.listeners = append(b.listeners, events)
	return source.Channel(events, handler.TypedFuncs[T, reconcile.Request]{
		GenericFunc: func(ctx context.Context, e event.TypedGenericEvent[T], q queue) { does(ctx, e.Object, q) },
	})
}
