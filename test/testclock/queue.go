package testclock

import (
	"maps"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is the queue of a controller, and counts its reconciles of each object.
type Queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]

	mu          sync.Mutex
	begun, done map[reconcile.Request]int
}

// Get is called by the controller before each reconcile.
func (q *Queue) Get() (item reconcile.Request, shutdown bool) {
	item, shutdown = q.TypedRateLimitingInterface.Get()
	if !shutdown {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.begun[item]++
	}
	return item, shutdown
}

// Done is called by the controller after each reconcile.
func (q *Queue) Done(item reconcile.Request) {
	q.mu.Lock()
	q.done[item]++
	q.mu.Unlock()
	q.TypedRateLimitingInterface.Done(item)
}

// Reconcile enqueues an object. It returns a function that reports whether a reconcile is over that began after this call.
func (q *Queue) Reconcile(item reconcile.Request) (over func() bool) {
	q.mu.Lock()
	before := q.begun[item]
	q.mu.Unlock()
	q.Add(item)
	return func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.done[item] > before
	}
}

// Counts are how many reconciles of each object are over.
func (q *Queue) Counts() map[reconcile.Request]int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return maps.Clone(q.done)
}
