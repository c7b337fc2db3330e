package workload

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"
)

const (
	// AnswerWithin is the one deadline of all that a reconcile of a check or of a power cycle reads live from a workload cluster.
	AnswerWithin = 10 * time.Second
	// requestTimeout is how long a worker waits for one answer, to its end. With queuedFor, verdicts on other clusters come within 5 s.
	requestTimeout = 3500 * time.Millisecond
	// atOnce is how many requests to one workload cluster are under way at the same time, queuedFor how long another one waits until one of
	// them has ended: its worker would be missing elsewhere.
	atOnce    = 5
	queuedFor = time.Second
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
	sent  chan struct{} // has one for each request that is under way

	mu     sync.Mutex
	missed time.Time // when the last request ended that had no answer, as far as it counts
	open   bool
	until  time.Time // when it is open: when the next request may be sent, which is on trial
	trying bool      // it was
	stale  time.Time // until when the cache of nodes may show them as they were
}

func newCircuit(now clock.PassiveClock) *circuit {
	return &circuit{clock: now, sent: make(chan struct{}, atOnce)}
}

// state reports whether the circuit is open at now, or an answer about all nodes was cut off, and whether not even a trial is of use.
func (c *circuit) state(now time.Time) (open, rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := now.Before(c.stale)
	return stale || c.open, stale || c.rests(now)
}

func (c *circuit) rests(now time.Time) bool {
	return c.open && (c.trying || now.Before(c.until))
}

// cutOff notes that an answer about all nodes was cut off.
func (c *circuit) cutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = c.clock.Now().Add(staleFor)
}

// enter waits until a request may be sent, and reports whether it is on trial. It is to be left then.
func (c *circuit) enter(ctx context.Context) (trial bool, err error) {
	queued, done := context.WithTimeout(ctx, queuedFor)
	defer done()
	select {
	case c.sent <- struct{}{}:
	case <-queued.Done():
		return false, cmp.Or(ctx.Err(), ErrSilent)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rests(c.clock.Now()) {
		<-c.sent
		return false, ErrSilent
	}
	c.trying = c.open
	return c.open, nil
}

// leave notes that a request has ended with err.
func (c *circuit) leave(trial bool, err error) {
	<-c.sent
	var timeout net.Error // a connection that is refused holds no worker up
	missed := errors.Is(err, errNoAnswer) || errors.As(err, &timeout) && timeout.Timeout()
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case trial:
		c.open, c.trying, c.missed, c.until = missed, false, time.Time{}, now.Add(pause)
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
