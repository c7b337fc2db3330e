package hostremediation

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// place is a node of a workload cluster.
type place struct {
	cluster client.ObjectKey
	node    string
}

// Wakeups tells the controllers of all kinds that something has left a node that is being emptied.
type Wakeups struct{ heard audience[place] }

// Wake is called by package fence. It does not block.
func (w *Wakeups) Wake(cluster client.ObjectKey, node string) { w.heard.tell(place{cluster, node}) }

// audience are the controllers that are told of something that no API server knows.
type audience[T any] struct {
	mu        sync.Mutex
	listeners []chan event.TypedGenericEvent[T]
}

// room is of how many things may be told at once. What is lost beyond that is found out by looking again, after drainRecheck or
// turnRecheck.
const room = 1024

// tell does not block.
func (a *audience[T]) tell(what T) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.listeners {
		select {
		case l <- event.TypedGenericEvent[T]{Object: what}:
		default:
		}
	}
}

// source is where a controller hears of it, as requests.
func (a *audience[T]) source(requests func(context.Context, T) []reconcile.Request) source.Source {
	a.mu.Lock()
	defer a.mu.Unlock()
	told := make(chan event.TypedGenericEvent[T], room)
	a.listeners = append(a.listeners, told)
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return source.Channel(told, handler.TypedFuncs[T, reconcile.Request]{
		GenericFunc: func(ctx context.Context, e event.TypedGenericEvent[T], q queue) {
			for _, request := range requests(ctx, e.Object) {
				q.Add(request)
			}
		},
	})
}
