package workload

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"
)

const (
	// AnswerWithin is the one deadline of all that a reconcile of a check or of a power cycle reads live from a workload cluster.
	AnswerWithin = 10 * time.Second
	// requestTimeout is how long a worker waits for one answer, to its end: verdicts on other clusters are to come within 5 s.
	requestTimeout = 4 * time.Second
	// slowAfter is from when on no other request is sent beside one without an answer: its worker would be missing elsewhere.
	slowAfter = time.Second
	// atOnce is how many requests to one workload cluster are under way at the same time.
	atOnce = 5
	// lostWithin is how long a request without an answer counts. Answers in between change nothing: a server that answers every other
	// request holds as many workers.
	lostWithin = time.Minute
	// pause is how long a cluster is left alone before one request tries it again.
	pause = 20 * time.Second
	// staleFor is how long the cache of a cluster's nodes is not believed after a list of them was cut off: reflectors ask again within a
	// minute, and for ever.
	staleFor = time.Minute
	// unawaited is the timeout from which on no worker waits for a request: ClusterCache lists and watches for its caches with one of
	// eleven minutes.
	unawaited = time.Minute
)

var (
	// ErrSilent is the error of requests that are not sent, because the workload cluster leaves others unanswered.
	ErrSilent = errors.New("the workload cluster leaves requests unanswered, and is asked again later")
	// errLost is the error of a request whose connection ends before the answer begins.
	errLost = errors.New("the API server ended the connection instead of an answer")
)

// circuit decides whether workers may ask one workload cluster. It is open after two requests without an answer within a minute: nothing is
// sent then but one request after each pause, whose answer closes it. So a cluster whose API server hangs keeps a few workers waiting,
// once.
type circuit struct {
	clock clock.PassiveClock
	left  chan struct{} // hears of requests that have ended

	mu     sync.Mutex
	begun  []time.Time // when the requests that are under way were sent
	missed time.Time   // when the last request ended that had no answer, as far as it counts
	open   bool
	until  time.Time // when it is open: when the next request may be sent
	stale  time.Time // until when the cache of nodes may show them as they were
}

func newCircuit(now clock.PassiveClock) *circuit {
	return &circuit{clock: now, left: make(chan struct{}, atOnce)}
}

// state reports whether the circuit is open at now, or an answer about all nodes was cut off, and whether not even a trial is of use.
func (c *circuit) state(now time.Time) (open, rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := now.Before(c.stale)
	return stale || c.open, stale || c.rests(now)
}

// cutOff notes that an answer about all nodes was cut off.
func (c *circuit) cutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = c.clock.Now().Add(staleFor)
}

func (c *circuit) rests(now time.Time) bool {
	return c.open && (now.Before(c.until) || len(c.begun) > 0)
}

// enter waits until a request may be sent, and returns when that was. The request is to be left then.
func (c *circuit) enter(ctx context.Context) (begun time.Time, err error) {
	for {
		now := c.clock.Now()
		slow := func(begun time.Time) bool { return now.Sub(begun) >= slowAfter }
		c.mu.Lock()
		refused, free := c.rests(now) || slices.ContainsFunc(c.begun, slow), len(c.begun) < atOnce
		if !refused && free {
			c.begun = append(c.begun, now)
		}
		c.mu.Unlock()
		switch {
		case refused:
			return time.Time{}, ErrSilent
		case free:
			return now, nil
		}
		select {
		case <-c.left:
		case <-time.After(slowAfter):
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// leave notes that a request has ended with err.
func (c *circuit) leave(begun time.Time, err error) {
	var timeout net.Error // a connection that is refused holds no worker up
	missed := errors.Is(err, errNoAnswer) || errors.As(err, &timeout) && timeout.Timeout()
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.begun, begun); i >= 0 {
		c.begun = slices.Delete(c.begun, i, i+1)
	}
	select {
	case c.left <- struct{}{}:
	default: // as many as may be sent hear of it
	}
	switch trial := c.open && !begun.Before(c.until); {
	case trial && !missed:
		c.open, c.missed = false, time.Time{}
	case trial:
		c.until = now.Add(pause)
	case !missed, c.open: // what was sent before it opened says nothing new
	case c.missed.IsZero() || now.Sub(c.missed) >= lostWithin:
		c.missed = now
	default:
		c.open, c.until = true, now.Add(pause)
	}
}

// awaited reports whether a worker waits for the answer to a request: none does for a probe, of the path /, and for what caches list and
// watch.
func awaited(r *http.Request) bool {
	query := r.URL.Query()
	timeout, err := time.ParseDuration(query.Get("timeout"))
	return r.URL.Path != "/" && !query.Has("watch") && (err != nil || timeout < unawaited)
}

// final is an error after which client-go does not try again by itself. It would wait between ten trials, for a second or for as long as
// the server says in Retry-After, with the worker, while nothing is under way that could be counted. The caller tries again, with the
// pauses of any failure. (client-go, rest.Request and withRetry.)
func final(err error) error {
	if utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return errLost
	}
	return err
}
