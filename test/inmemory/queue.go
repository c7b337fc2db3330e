package inmemory

import (
	"cmp"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queue is that of a controller. It waits by a virtual clock, and gives an item out only when it is made to.
type queue struct {
	clock   *clocktesting.FakePassiveClock
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	out     chan reconcile.Request
	done    chan struct{}
	ready   func() // called when the controller asks for its first item

	mu     sync.Mutex
	due    map[reconcile.Request]time.Time
	counts map[reconcile.Request]int
	added  chan struct{} // closed when something was added that is due at once
	ended  bool
}

func newQueue(clock *clocktesting.FakePassiveClock, limiter workqueue.TypedRateLimiter[reconcile.Request], ready func()) *queue {
	return &queue{
		clock: clock, limiter: limiter, out: make(chan reconcile.Request), done: make(chan struct{}), ready: sync.OnceFunc(ready),
		due: map[reconcile.Request]time.Time{}, counts: map[reconcile.Request]int{}, added: make(chan struct{}),
	}
}

// next is the item that is due first, and when. Of several, it is the one whose name comes first.
func (q *queue) next() (first reconcile.Request, at time.Time, found bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for item, due := range q.due {
		if !found || cmp.Or(due.Compare(at), cmp.Compare(item.Name, first.Name)) < 0 {
			first, at, found = item, due, true
		}
	}
	return first, at, found
}

// give lets the controller work on an item, and returns when it has.
func (q *queue) give(item reconcile.Request) {
	q.mu.Lock()
	delete(q.due, item)
	q.counts[item]++
	q.mu.Unlock()
	q.out <- item
	<-q.done
}

// Get waits until give gives an item.
func (q *queue) Get() (item reconcile.Request, shutdown bool) {
	q.ready()
	item, open := <-q.out
	return item, !open
}

// Done ends give.
func (q *queue) Done(reconcile.Request) { q.done <- struct{}{} }

// Add makes an item due.
func (q *queue) Add(item reconcile.Request) {
	q.AddAfter(item, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.added:
	default:
		close(q.added)
	}
}

// AddAfter makes an item due later, if it is not due before that.
func (q *queue) AddAfter(item reconcile.Request, after time.Duration) {
	at := q.clock.Now().Add(after)
	q.mu.Lock()
	defer q.mu.Unlock()
	if was, waits := q.due[item]; !waits || at.Before(was) {
		q.due[item] = at
	}
}

// AddRateLimited makes an item due when its limiter says so.
func (q *queue) AddRateLimited(item reconcile.Request) { q.AddAfter(item, q.limiter.When(item)) }

// Forget makes the limiter forget the failures of an item.
func (q *queue) Forget(item reconcile.Request) { q.limiter.Forget(item) }

// NumRequeues is how often an item has failed.
func (q *queue) NumRequeues(item reconcile.Request) int { return q.limiter.NumRequeues(item) }

// Len is how many items wait.
func (q *queue) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.due)
}

// ShutDown ends the controller.
func (q *queue) ShutDown() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		close(q.out)
	}
	q.ended = true
}

// ShutDownWithDrain is the same.
func (q *queue) ShutDownWithDrain() { q.ShutDown() }

// ShuttingDown reports whether it was ended.
func (q *queue) ShuttingDown() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended
}
