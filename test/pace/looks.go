package pace

import (
	"maps"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Looks is the queue of a controller, and counts its looks at each object.
type Looks struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu          sync.Mutex
	begun, done map[reconcile.Request]int
}

// Get is called by the controller before each look.
func (l *Looks) Get() (item reconcile.Request, shutdown bool) {
	item, shutdown = l.TypedRateLimitingInterface.Get()
	if !shutdown {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.begun[item]++
	}
	return item, shutdown
}

// Done is called by the controller after each look.
func (l *Looks) Done(item reconcile.Request) {
	l.mu.Lock()
	l.done[item]++
	l.mu.Unlock()
	l.TypedRateLimitingInterface.Done(item)
}

// At has the controller look at an object. It returns a function that reports whether a look is over that began after At was called.
func (l *Looks) At(item reconcile.Request) (over func() bool) {
	l.mu.Lock()
	before := l.begun[item]
	l.mu.Unlock()
	l.Add(item)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.done[item] > before
	}
}

// Counts are how many looks at each object are over.
func (l *Looks) Counts() map[reconcile.Request]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.done)
}
