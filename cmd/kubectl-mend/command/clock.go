package command

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// tolerated is by how much the clock of the user may differ from that of the API server and is still believed. The API server
// says the time in whole seconds, and an answer takes a while.
const tolerated = 3 * time.Second

// serverClock goes as the clock of the API server does, as its first answer tells: by that clock managers renew their leases, and
// conditions have their times. By a user's clock that is a minute ahead every manager would be gone.
type serverClock struct {
	clock.PassiveClock

	warn  io.Writer
	first sync.Once
	ahead atomic.Int64 // a duration
}

// Now is what the API server would say; until it has answered, the time of this machine.
func (c *serverClock) Now() time.Time { return c.PassiveClock.Now().Add(time.Duration(c.ahead.Load())) }

// Since is the time from t to now.
func (c *serverClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// watch learns the time from the first answer: it was said after the question, and before the answer was here.
func (c *serverClock) watch(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(request *http.Request) (*http.Response, error) {
		asked := c.PassiveClock.Now()
		response, err := next.RoundTrip(request)
		if err == nil {
			c.first.Do(func() { c.learn(response.Header.Get("Date"), asked) })
		}
		return response, err
	})
}

// learn warns if the user's clock differs from that of the API server and is not believed.
func (c *serverClock) learn(said string, asked time.Time) {
	date, err := http.ParseTime(said)
	second, answered, differs := date.Add(time.Second), c.PassiveClock.Now(), "behind"
	var ahead time.Duration
	switch {
	case err != nil:
		return
	case second.Add(tolerated).Before(asked):
		ahead, differs = second.Sub(asked), "ahead of"
	case date.After(answered.Add(tolerated)):
		ahead = date.Sub(answered)
	default:
		return
	}
	c.ahead.Store(int64(ahead))
	_, _ = fmt.Fprintf(c.warn, "warning: the clock of this machine is %s %s that of the API server, which is the one that counts here\n",
		ahead.Abs().Round(time.Second), differs)
}

// timeAt is what time it is where c asks. It takes one answer, whatever that is, to know.
func (o *Options) timeAt(ctx context.Context, c client.Reader) time.Time {
	_ = c.List(ctx, listOf(machineCheckKind), client.Limit(1)) // what is wrong is found out by who needs the answer
	return o.Clock.Now()
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
