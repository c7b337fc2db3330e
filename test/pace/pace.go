// Package pace is a clock for controllers that run in the process of their test: it goes as ours does, and leaps when the test says so.
package pace

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tick is how finely a clock follows ours.
const tick = 10 * time.Millisecond

// Clock goes as ours does, and leaps by Step: that is how something times out without anybody waiting, while a busy machine makes
// nothing time out.
type Clock struct {
	*clocktesting.FakeClock
	// Stop stops it. It may be called again.
	Stop func()

	mu    sync.Mutex
	looks map[string]*Looks
}

// New returns a clock that shows the time of now and goes.
func New() *Clock {
	c := &Clock{FakeClock: clocktesting.NewFakeClock(time.Now()), looks: map[string]*Looks{}}
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

// Queue makes the queue of a controller, for controller.Options.NewQueue: by this clock it waits for the moment at which to look again.
func (c *Clock) Queue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	q := workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: c})
	l := &Looks{TypedRateLimitingInterface: q, begun: map[reconcile.Request]int{}, done: map[reconcile.Request]int{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks[name] = l
	return l
}

// Looks are those of the controller of that name, as it was started last; nil if it never was.
func (c *Clock) Looks(name string) *Looks {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looks[name]
}
