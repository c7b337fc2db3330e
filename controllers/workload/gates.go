package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// AnswerWithin is the one deadline of all that a reconcile of a check or of a power cycle reads live from a workload cluster.
	AnswerWithin = 10 * time.Second
	// atOnce is how many requests to one workload cluster are under way at the same time.
	atOnce = 5
	// mostWaiting is how many requests to all clusters may be slow: half as many as there are workers of power cycles, by default.
	mostWaiting = 10
	// slowAfter is from when on a request without an answer is slow. No other request of its cluster queues behind it: a worker that waits for a slow
	// cluster is missing elsewhere.
	slowAfter = time.Second
	// late is from when on an answer counts as none. Who answers only just in time holds workers as who does not answer.
	late = AnswerWithin / 2
)

// ErrSilent is the error of requests that are not sent, because the workload cluster leaves others unanswered.
var ErrSilent = errors.New("the workload cluster leaves requests unanswered, and is asked again later")

// errCrowded is the error of a request that is given up, because too many others wait as well.
var errCrowded = fmt.Errorf("%w: requests to many clusters are waiting", ErrSilent)

// Gates is a ClusterCache of whose clusters each is asked a few things at a time, and nothing for a while once it leaves requests unanswered. So a
// cluster whose API server hangs keeps a few workers waiting, once, and the others none. What bounds those of one cluster does not bound those of many that
// fall silent at the same moment: if too many requests to all clusters together are slow, one is given up.
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
	slow  []*request // in the order in which they became slow
}

// gate is what the requests to one cluster have to pass. The mutex of Gates guards it.
type gate struct {
	connection *rest.Config // ClusterCache's, of which config and client are made
	config     *rest.Config
	client     client.Client

	circuit circuit
	sent    int           // requests that are under way
	slow    int           // those of them that are slow
	changed chan struct{} // closed when a request ends or becomes slow
}

// wake makes the requests that queue look again.
func (g *gate) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// request is a request that was sent.
type request struct {
	gate        *gate
	began       time.Time
	trial       bool
	cut         context.CancelCauseFunc
	timer       clock.Timer // makes it slow
	slow, ended bool
}

// Shutdown ends the connections to all clusters. Nothing may ask a cluster any more.
func (g *Gates) Shutdown() {
	if connections, end := g.ClusterCache.(interface{ Shutdown() }); end {
		connections.Shutdown()
	}
}

// GetUncachedClient returns the client of a cluster that reads past all caches.
func (g *Gates) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	_, c, err := g.way(ctx, cluster)
	return c, err
}

// GetRESTConfig returns the configuration of the connection to a cluster: the same one for as long as the connection is the same.
func (g *Gates) GetRESTConfig(ctx context.Context, cluster client.ObjectKey) (*rest.Config, error) {
	config, _, err := g.way(ctx, cluster)
	return config, err
}

// way returns the way to a cluster, built once for each connection. It sends nothing.
func (g *Gates) way(ctx context.Context, cluster client.ObjectKey) (*rest.Config, client.Client, error) {
	config, err := g.ClusterCache.GetRESTConfig(ctx, cluster)
	if refused := g.Kubeconfigs.Refused(cluster); err != nil && refused != nil {
		return nil, nil, fmt.Errorf("%w: %w", err, refused)
	}
	if err != nil {
		return nil, nil, err
	}
	ungated, err := g.ClusterCache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	at := g.gate(cluster)
	if at.connection == config {
		return at.config, at.client, nil
	}
	gated := rest.CopyConfig(config)
	gated.Wrap(func(next http.RoundTripper) http.RoundTripper { return passing{g, at, next} })
	through, err := rest.HTTPClientFor(gated)
	if err != nil {
		return nil, nil, fmt.Errorf("make a way to cluster %s: %w", cluster, err)
	}
	made, err := client.New(gated, client.Options{Scheme: ungated.Scheme(), Mapper: ungated.RESTMapper(), HTTPClient: through})
	if err != nil {
		return nil, nil, fmt.Errorf("make a client of cluster %s: %w", cluster, err)
	}
	at.connection, at.config, at.client = config, gated, made
	return gated, made, nil
}

// gate returns the gate of a cluster. The mutex is held.
func (g *Gates) gate(cluster client.ObjectKey) *gate {
	if g.gates == nil {
		g.gates = map[client.ObjectKey]*gate{}
	}
	if g.gates[cluster] == nil {
		g.gates[cluster] = &gate{changed: make(chan struct{})}
	}
	return g.gates[cluster]
}

// forget drops all that is kept of a cluster.
func (g *Gates) forget(cluster client.ObjectKey) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.gates, cluster)
}

// silent reports whether the circuit of a cluster is open at now, and whether it is so much so that not even a trial goes.
func (g *Gates) silent(cluster client.ObjectKey, now time.Time) (open, rests bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := g.gates[cluster]; at != nil {
		return at.circuit.open, at.circuit.rests(now)
	}
	return false, false
}

// enter waits until a request may be sent. It is to be left once it has ended; until then cut may be called, which gives it up.
func (g *Gates) enter(ctx context.Context, at *gate, cut context.CancelCauseFunc) (*request, error) {
	for {
		now := g.Clock.Now()
		g.mu.Lock()
		rests, free := at.circuit.rests(now), at.circuit.open || at.sent < atOnce
		if !rests && free {
			at.circuit.trial = at.circuit.open
			at.sent++
			sent := &request{gate: at, began: now, trial: at.circuit.trial, cut: cut}
			g.mu.Unlock()
			sent.timer = g.Clock.AfterFunc(slowAfter, func() { g.becomesSlow(sent) })
			return sent, nil
		}
		slow, changed := at.slow > 0, at.changed
		g.mu.Unlock()
		if rests || slow {
			return nil, ErrSilent
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// becomesSlow notes that a request is slow. If there are too many of these, one is given up: of the cluster that has most of them, and of these the oldest.
// A cluster that is merely slow is behind those that do not answer at all.
func (g *Gates) becomesSlow(sent *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sent.ended {
		return
	}
	sent.slow = true
	sent.gate.slow++
	sent.gate.wake()
	g.slow = append(g.slow, sent)
	if len(g.slow) <= cmp.Or(g.MostWaiting, mostWaiting) {
		return
	}
	waiting := map[*gate]int{}
	for _, r := range g.slow {
		waiting[r.gate]++
	}
	out := slices.MaxFunc(g.slow, func(a, b *request) int { return cmp.Compare(waiting[a.gate], waiting[b.gate]) })
	g.slow = slices.DeleteFunc(g.slow, func(r *request) bool { return r == out })
	out.cut(errCrowded)
}

// leave notes that a request has ended with err.
func (g *Gates) leave(sent *request, err error) {
	sent.timer.Stop()
	now := g.Clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if sent.ended {
		return
	}
	sent.ended = true
	sent.gate.sent--
	if sent.slow {
		sent.gate.slow--
		g.slow = slices.DeleteFunc(g.slow, func(r *request) bool { return r == sent })
	}
	sent.gate.circuit.end(now, answered(now.Sub(sent.began), err), sent.trial)
	sent.gate.wake()
}
