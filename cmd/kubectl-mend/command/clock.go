package command

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tolerated is by how much the clock of the user may differ from that of the API server and is still believed. The API server
// says the time in whole seconds, and an answer takes a while.
const tolerated = 3 * time.Second

// serverClock goes as the clock of the API server does, as far as its answers tell: by that clock managers renew their leases, and conditions have
// their times. A user's clock that is a minute ahead would take every manager for gone, and everything due before it is.
type serverClock struct {
	clock.PassiveClock

	mu    sync.Mutex
	known bool
	ahead time.Duration
	said  bool
}

// Now is what the API server would say; until it has answered, the time of this machine.
func (c *serverClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.PassiveClock.Now().Add(c.ahead)
}

// Since is the time from t to now.
func (c *serverClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// watch learns the time from what comes through a transport.
func (c *serverClock) watch(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		asked := c.PassiveClock.Now()
		response, err := next.RoundTrip(request)
		if err == nil {
			c.learn(response.Header.Get("Date"), asked, c.PassiveClock.Now())
		}
		return response, err
	})
}

// learn takes the first time that the API server says, which it said between asked and answered.
func (c *serverClock) learn(date string, asked, answered time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	is, err := http.ParseTime(date)
	if err != nil || c.known {
		return
	}
	c.known = true
	switch second := is.Add(time.Second); {
	case second.Add(tolerated).Before(asked):
		c.ahead = second.Sub(asked)
	case is.After(answered.Add(tolerated)):
		c.ahead = is.Sub(answered)
	}
}

// trouble says, once, that the two clocks differ; empty if they do not.
func (c *serverClock) trouble() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead == 0 || c.said {
		return ""
	}
	c.said = true
	differs := "behind"
	if c.ahead < 0 {
		differs = "ahead of"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the API server, which is the one that counts here",
		c.ahead.Abs().Round(time.Second), differs)
}

// sayClock warns, once, of a clock that was not believed.
func (o *Options) sayClock() {
	if c, is := o.Clock.(*serverClock); is {
		if trouble := c.trouble(); trouble != "" {
			_, _ = fmt.Fprintln(o.ErrOut, "warning:", trouble)
		}
	}
}

// timeAt is what time it is where c asks. It takes one answer, whatever that is, to know.
func (o *Options) timeAt(ctx context.Context, c client.Reader) time.Time {
	checks := &metav1.PartialObjectMetadataList{}
	checks.SetGroupVersionKind(groups[machineCheckKind].GroupVersion().WithKind(string(machineCheckKind) + "List"))
	_ = c.List(ctx, checks, client.Limit(1)) // what is wrong is found out by who needs the answer
	o.sayClock()
	return o.Clock.Now()
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
