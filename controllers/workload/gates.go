package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrSilent is the error of requests that are not sent, because the workload cluster leaves others unanswered.
var ErrSilent = errors.New("the workload cluster leaves requests unanswered, and is asked again later")

// Gates is a ClusterCache of whose clusters each is asked a few things at a time, and nothing for a while once it leaves requests unanswered. So a
// cluster whose API server hangs keeps a few workers waiting, once, and the others none.
//
// That holds for its uncached clients and for its configurations; a watch counts until it has begun. What ClusterCache asks by itself, which no worker
// waits for, does not pass: its probes and the lists and watches of its caches. Gates is safe for concurrent use.
type Gates struct {
	clustercache.ClusterCache
	// Kubeconfigs are those that the ClusterCache connects by: a request that is refused because of one says so. It may be nil.
	Kubeconfigs *Kubeconfigs
	Clock       clock.WithDelayedExecution
	// MostWaiting is how many requests, to all clusters together, may be without an answer for longer than a second: about half as many as there are
	// workers. 0 is 10.
	MostWaiting int

	mu    sync.Mutex
	gates map[client.ObjectKey]*gate
	crowd *crowd
	ways  map[client.ObjectKey]way
}

// way is the way to a cluster by one connection of ClusterCache.
type way struct {
	connection *rest.Config // ClusterCache's
	config     *rest.Config
	client     client.Client
}

// Shutdown ends the connections to all clusters. Nothing may ask a cluster any more.
func (g *Gates) Shutdown() {
	if connections, end := g.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}

// GetUncachedClient returns the client of a cluster that reads past all caches.
func (g *Gates) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	w, err := g.way(ctx, cluster)
	return w.client, err
}

// GetRESTConfig returns the configuration of the connection to a cluster: the same one for as long as the connection is the same.
func (g *Gates) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	w, err := g.way(ctx, cluster)
	return w.config, err
}

// way returns the way to a cluster, built once for each connection. It sends nothing.
func (g *Gates) way(ctx context.Context, cluster client.ObjectKey) (way, error) {
	config, err := g.ClusterCache.GetRESTConfig(ctx, cluster)
	if err != nil {
		g.drop(cluster)
		if refused := g.Kubeconfigs.Refused(cluster); refused != nil {
			return way{}, fmt.Errorf("%w: %w", err, refused)
		}
		return way{}, err
	}
	g.mu.Lock()
	known := g.ways[cluster]
	g.mu.Unlock()
	if known.connection == config {
		return known, nil
	}
	ungated, err := g.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return way{}, err
	}
	gated := rest.CopyConfig(config)
	gated.Wrap(func(next http.RoundTripper) http.RoundTripper { return passing{g.gate(cluster), next} })
	through, err := rest.HTTPClientFor(gated)
	if err != nil {
		return way{}, fmt.Errorf("make a way to cluster %s: %w", cluster, err)
	}
	made, err := client.New(gated, client.Options{Scheme: ungated.Scheme(), Mapper: ungated.RESTMapper(), HTTPClient: through})
	if err != nil {
		return way{}, fmt.Errorf("make a client of cluster %s: %w", cluster, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if built := g.ways[cluster]; built.connection == config { // another goroutine was faster
		return built, nil
	}
	if g.ways == nil {
		g.ways = map[client.ObjectKey]way{}
	}
	g.ways[cluster] = way{connection: config, config: gated, client: made}
	return g.ways[cluster], nil
}

func (g *Gates) gate(cluster client.ObjectKey) *gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gates == nil {
		g.gates = map[client.ObjectKey]*gate{}
	}
	if g.crowd == nil {
		g.crowd = &crowd{most: cmp.Or(g.MostWaiting, mostWaiting)}
	}
	if g.gates[cluster] == nil {
		g.gates[cluster] = &gate{clock: g.Clock, ended: make(chan struct{}), crowd: g.crowd}
	}
	return g.gates[cluster]
}

// drop forgets the transport to a cluster. Whether it answers is not over with its connection.
func (g *Gates) drop(cluster client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ways, cluster)
}

// forget drops all that is kept of a cluster.
func (g *Gates) forget(cluster client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.ways, cluster)
	delete(g.gates, cluster)
}

// silent reports whether the circuit of a cluster is open at now, and whether it is so much so that not even a trial goes.
func (g *Gates) silent(cluster client.ObjectKey, now time.Time) (open, rests bool) {
	g.mu.Lock()
	at := g.gates[cluster]
	g.mu.Unlock()
	if at == nil {
		return false, false
	}
	at.mu.Lock()
	defer at.mu.Unlock()
	return at.circuit.open(), at.circuit.rests(now)
}

// gate is what the requests to one cluster have to pass.
type gate struct {
	clock clock.WithDelayedExecution
	crowd *crowd

	mu      sync.Mutex
	circuit circuit
	ended   chan struct{} // closed when a request ends
}

// enter waits until a request may be sent. leave is to be called once, when it has ended. Until then it may be given up, by cut.
func (g *gate) enter(ctx context.Context, cut context.CancelCauseFunc) (leave func(err error), err error) {
	for {
		now := g.clock.Now()
		g.mu.Lock()
		verdict, again := g.circuit.admit(now)
		if verdict == goes {
			g.circuit = g.circuit.begin(now)
			trial := g.circuit.trial
			g.mu.Unlock()
			return g.sent(now, trial, cut), nil
		}
		ended := g.ended
		g.mu.Unlock()
		if verdict == refused {
			return nil, ErrSilent
		}
		queue := g.clock.NewTimer(again.Sub(now))
		select {
		case <-ended:
		case <-queue.C():
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		queue.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// sent notes that a request is sent at now, and returns what is to be called when it has ended.
func (g *gate) sent(now time.Time, trial bool, cut context.CancelCauseFunc) (leave func(err error)) {
	request := &waiting{at: g, cut: cut}
	slow := g.clock.AfterFunc(queueWithin, func() { g.crowd.join(request) })
	var left sync.Once
	return func(err error) {
		left.Do(func() {
			slow.Stop()
			g.crowd.part(request)
			g.leave(now, trial, err)
		})
	}
}

// leave notes that a request which began at began has ended with err.
func (g *gate) leave(began time.Time, trial bool, err error) {
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.circuit = g.circuit.end(began, now, answered(now.Sub(began), err), trial)
	close(g.ended)
	g.ended = make(chan struct{})
}

// answered reports whether a request that took so long and ended with err had an answer in time, and one that can be read. A connection that is refused
// holds no worker up.
func answered(took time.Duration, err error) bool {
	var timeout net.Error
	return took < late && !errors.Is(err, errNoAnswer) && !errors.Is(err, errCrowded) && (!errors.As(err, &timeout) || !timeout.Timeout())
}

// errLost is the error of a request whose connection ends before the answer begins.
var errLost = errors.New("the API server ended the connection instead of an answer")

// once is an error after which client-go does not try again by itself. It would wait between ten trials, for a second or for as long as the server says in
// Retry-After, with the worker, while nothing is under way that could be counted. The caller tries again, with the pauses of any failure.
// (client-go, rest.Request and withRetry.)
func once(err error) error {
	if utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err) {
		return errLost
	}
	return err
}

// passing sends requests through a gate.
type passing struct {
	gate *gate
	next http.RoundTripper
}

// RoundTrip sends a request when it may be sent. It counts as under way until its answer was read to the end or closed; a watch until it has begun.
func (p passing) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cut := context.WithCancelCause(r.Context())
	leave, err := p.gate.enter(ctx, cut)
	if err != nil {
		cut(nil)
		return unsent(r, err)
	}
	answer, err := p.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		err = causeOf(ctx, once(err))
		leave(err)
		cut(nil)
		return answer, err
	}
	answer.Header.Del("Retry-After")
	if r.URL.Query().Has("watch") {
		leave(nil)
	}
	answer.Body = &leaving{
		ReadCloser: answer.Body,
		why:        func(err error) error { return causeOf(ctx, err) },
		leave:      func(err error) { leave(err); cut(nil) },
	}
	return answer, nil
}

// leaving is the body of an answer, with which a request ends.
type leaving struct {
	io.ReadCloser
	why   func(error) error // why it ended with an error
	leave func(error)
	err   error
}

// Read notes how the body ends.
func (l *leaving) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	err = l.why(err)
	if err != nil && !errors.Is(err, io.EOF) {
		l.err = err
	}
	return n, err
}

// Close ends the request.
func (l *leaving) Close() error {
	err := l.ReadCloser.Close()
	l.leave(l.err)
	return err
}
