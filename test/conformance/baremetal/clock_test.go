package baremetal

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// tick is how finely the clock of a scene follows ours.
const tick = 10 * time.Millisecond

// pace is the clock of one scene. It goes as ours does, and leaps when a spec says so: that is how an attempt times out without
// anybody waiting, while a busy machine makes nothing time out.
type pace struct {
	*clocktesting.FakeClock
	stop func()
}

func newPace() *pace {
	p := &pace{FakeClock: clocktesting.NewFakeClock(time.Now())}
	ended, ticker, last := make(chan struct{}), time.NewTicker(tick), time.Now()
	go func() {
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case now := <-ticker.C:
				p.Step(now.Sub(last))
				last = now
			}
		}
	}()
	p.stop = sync.OnceFunc(func() { close(ended) })
	return p
}

// queue is the queue of a controller: by the clock of the scene it waits for the moment at which to look again.
func (p *pace) queue(
	name string, limiter workqueue.TypedRateLimiter[reconcile.Request],
) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name, Clock: p})
}
