package workload

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

const (
	// AnswerWithin is the timeout of all live reads of a workload cluster in one reconcile of a check or a power cycle.
	AnswerWithin = 10 * time.Second
	// requestTimeout is how long a worker waits for a complete response. With queuedFor it is below 5 s, the aim for verdicts on other
	// clusters.
	requestTimeout = 3500 * time.Millisecond
	// atOnce is how many concurrent requests may be sent to one workload cluster.
	atOnce = 5
	// queuedFor is how long a further request waits. It is short, because its worker is needed for other clusters.
	queuedFor = time.Second
	// lostWithin is how long a request without a response counts, even if others get responses: a server that answers every other request
	// blocks as many workers.
	lostWithin = time.Minute
	// pause is the time before a trial request, in which no request is sent.
	pause = 20 * time.Second
	// staleFor is how long the node cache of a cluster is not trusted after a list of nodes exceeded a limit. Reflectors repeat a failed
	// list within a minute, so the cache is not trusted while lists fail.
	staleFor = time.Minute
	// unawaited is the timeout from which on no worker waits for a request. ClusterCache lists and watches for its caches with eleven
	// minutes.
	unawaited = time.Minute
)

var (
	// ErrSilent says that a request was not sent because the workload cluster leaves other requests unanswered.
	ErrSilent = errors.New("the API server of the workload cluster does not answer requests, so kubemend sends the next one later")
	// errLost says that the connection ended before the response began.
	errLost = errors.New("the API server ended the connection without an answer")
)

// circuit is a circuit breaker for the requests of workers to one workload cluster. It opens after two requests without a response within a
// minute. While it is open, it admits only one trial request after each pause; a response to that closes it. So an API server that hangs
// blocks only a few workers, and only once.
type circuit struct {
	clock clock.PassiveClock
	sent  chan struct{} // has an element for each request in flight

	mu     sync.Mutex
	missed time.Time // when the last request without a response ended; zero if none counts
	open   bool
	until  time.Time // while it is open: when the next trial request may be sent
	trying bool      // a trial request is in flight
	stale  time.Time // until when the node cache is not trusted
}

// state reports whether the circuit is open at now or the node cache is not trusted, and whether not even a trial request is useful.
func (c *circuit) state(now time.Time) (open, rests bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	stale := now.Before(c.stale)
	return stale || c.open, stale || c.rests(now)
}

func (c *circuit) rests(now time.Time) bool {
	return c.open && (c.trying || now.Before(c.until))
}

func (c *circuit) cutOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stale = c.clock.Now().Add(staleFor)
}

// enter waits until a request may be sent, and reports whether it is a trial request. Without an error, the caller must call leave.
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

func (c *circuit) leave(trial bool, err error) {
	<-c.sent
	var timeout net.Error // a connection that is refused blocks no worker, so only a timeout counts
	missed := errors.Is(err, errNoAnswer) || errors.As(err, &timeout) && timeout.Timeout()
	now := c.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case trial:
		c.open, c.trying, c.missed, c.until = missed, false, time.Time{}, now.Add(pause)
	case !missed, c.open: // requests that were sent before the circuit opened do not count
	case c.missed.IsZero() || now.Sub(c.missed) >= lostWithin:
		c.missed = now
	default:
		c.open, c.until = true, now.Add(pause)
	}
}

// awaited reports whether a worker waits for the response to a request. No worker waits for a probe (the path /), nor for lists and watches
// of caches.
func awaited(r *http.Request) bool {
	query := r.URL.Query()
	timeout, err := time.ParseDuration(query.Get("timeout"))
	return r.URL.Path != "/" && !query.Has("watch") && (err != nil || timeout < unawaited)
}

// final returns an error after which client-go does not retry. Otherwise it would retry up to ten times, and before each time block the
// worker for a second or for Retry-After, while the circuit has no request to count. The controller retries as after any other failure.
// (client-go, rest.Request and withRetry)
func final(err error) error {
	if utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return errLost
	}
	return err
}

// Plain returns a text of err for users. The text must be the same each time, because a status that contains it would otherwise be written
// again and again. So for a failed connection it is only the kind of failure, without port and request. The message of an API server stays
// as it is.
func Plain(err error) string {
	var answer apierrors.APIStatus
	var op *net.OpError
	var request *url.Error
	var refused *RefusedError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &answer):
		return answer.Status().Message
	case errors.As(err, &refused):
		return refused.Error()
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		return "the workload cluster cannot be reached"
	case errors.Is(err, ErrSilent):
		return ErrSilent.Error()
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &request):
		return "no connection: " + request.Err.Error()
	}
	return err.Error()
}
