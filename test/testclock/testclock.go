// Package testclock is a clock for controllers that run in the process of their test: it follows the real clock, and jumps when the test says so.
// It may not be used by programs that ship.
package testclock

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tick is how often a clock follows the real one.
const tick = 10 * time.Millisecond

// Clock follows the real clock, and jumps by Step: a timeout expires without a wait, and a slow machine makes nothing
// expire.
type Clock struct {
	*clocktesting.FakeClock
	// Stop stops it. It may be called again.
	Stop func()

	mu     sync.Mutex
	queues map[string]*Queue
}

// New returns a clock that shows the time of now and goes.
func New() *Clock {
	c := &Clock{FakeClock: clocktesting.NewFakeClock(time.Now()), queues: map[string]*Queue{}}
	ended, ticker, last := make(chan struct{}), time.NewTicker(tick), time.Now()
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-ticker.C:
				c.Step(now.Sub(last))
				last = now
			}
		}
	}()
	c.Stop = sync.OnceFunc(func() { close(ended) })
	return c
}

// NewQueue makes the queue of a controller, for controller.Options.NewQueue: it delays requeues by this clock.
func (c *Clock) NewQueue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: c})
	counted := &Queue{TypedRateLimitingInterface: q, begun: map[reconcile.Request]int{}, done: map[reconcile.Request]int{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queues[name] = counted
	return counted
}

// QueueOf is the queue of the controller of that name, as it was started last; nil if it never was.
func (c *Clock) QueueOf(name string) *Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.queues[name]
}
