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
type Wakeups struct {
	mu        sync.Mutex
	listeners []chan event.TypedGenericEvent[place]
}

// room is for how many nodes may be told of at once. What is lost beyond that is found out by looking again after drainRecheck.
const room = 1024

// Wake is called by package fence. It does not block.
func (w *Wakeups) Wake(cluster client.ObjectKey, node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.listeners {
		select {
		case l <- event.TypedGenericEvent[place]{Object: place{cluster, node}}:
		default:
		}
	}
}

// source is where a controller hears of wake-ups.
func (w *Wakeups) source(requests func(context.Context, place) []reconcile.Request) source.Source {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := make(chan event.TypedGenericEvent[place], room)
	w.listeners = append(w.listeners, told)
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return source.Channel(told, handler.TypedFuncs[place, reconcile.Request]{
		GenericFunc: func(ctx context.Context, e event.TypedGenericEvent[place], q queue) {
			for _, request := range requests(ctx, e.Object) {
				q.Add(request)
			}
		},
	})
}
