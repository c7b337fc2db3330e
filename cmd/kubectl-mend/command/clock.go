package command

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tolerated is by how much the clock of the user may differ from that of the API server and is still believed. The API server
// says the time in whole seconds, and an answer takes a while.
const tolerated = 3 * time.Second

// serverClock goes as the clock of the API server does, as far as its answers tell: by that clock managers renew their leases, and
// conditions have their times. By a user's clock that is a minute ahead every manager would be gone.
type serverClock struct {
	clock.PassiveClock

	mu          sync.Mutex
	known, said bool
	ahead       time.Duration
}

// Now is what the API server would say; until it has answered, the time of this machine.
func (c *serverClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.PassiveClock.Now().Add(c.ahead)
}

// Since is the time from t to now.
func (c *serverClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// watch learns the time from the first answer that says one: it was said after the question, and before the answer was here.
func (c *serverClock) watch(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		asked := c.PassiveClock.Now()
		response, err := next.RoundTrip(request)
		if err != nil {
			return response, err
		}
		date, invalid := http.ParseTime(response.Header.Get("Date"))
		c.mu.Lock()
		defer c.mu.Unlock()
		if invalid != nil || c.known {
			return response, nil
		}
		c.known = true
		if second := date.Add(time.Second); second.Add(tolerated).Before(asked) {
			c.ahead = second.Sub(asked)
		} else if answered := c.PassiveClock.Now(); date.After(answered.Add(tolerated)) {
			c.ahead = date.Sub(answered)
		}
		return response, nil
	})
}

// sayClock warns, once, that the user's clock differs from that of the API server and was not believed.
func (o *Options) sayClock() {
	c, ofServer := o.Clock.(*serverClock)
	if !ofServer {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead != 0 && !c.said {
		c.said = true
		differs := "behind"
		if c.ahead < 0 {
			differs = "ahead of"
		}
		_, _ = fmt.Fprintf(o.ErrOut, "warning: the clock of this machine is %s %s that of the API server, which is the one that counts here\n",
			c.ahead.Abs().Round(time.Second), differs)
	}
}

// timeAt is what time it is where c asks. It takes one answer, whatever that is, to know.
func (o *Options) timeAt(ctx context.Context, c client.Reader) time.Time {
	_ = c.List(ctx, listOf(machineCheckKind), client.Limit(1)) // what is wrong is found out by who needs the answer
	o.sayClock()
	return o.Clock.Now()
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
