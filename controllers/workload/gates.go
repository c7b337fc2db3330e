package workload

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// AnswerWithin is the one deadline of all that a reconcile of a check or of a power cycle reads live from a workload cluster.
	AnswerWithin = 10 * time.Second
	// atOnce is how many requests to one workload cluster are under way at the same time.
	atOnce = 5
	// mostWaiting is how many requests to all clusters may be slow: half as many as there are workers of power cycles, by default.
	mostWaiting = 10
	// slowAfter is from when on a request without an answer is slow. No other request of its cluster queues behind it: a worker that waits
	// for a slow cluster is missing elsewhere.
	slowAfter = time.Second
	// late is from when on an answer counts as none. Who answers only just in time holds workers as who does not answer.
	late = AnswerWithin / 2
	// unawaited is the timeout from which on no worker waits for a request: ClusterCache lists and watches for its caches with one of eleven
	// minutes.
	unawaited = time.Minute
)

// ErrSilent is the error of requests that are not sent, because the workload cluster leaves others unanswered.
var ErrSilent = errors.New("the workload cluster leaves requests unanswered, and is asked again later")

// errCrowded is the error of a request that is given up, because too many others wait as well.
var errCrowded = fmt.Errorf("%w: requests to many clusters are waiting", ErrSilent)

// gates are what the requests to all clusters have to pass that workers wait for: a few at a time to each cluster, and none for a while
// once it leaves requests unanswered. So a cluster whose API server hangs keeps a few workers waiting, once, and the others none. What
// bounds those of one cluster does not bound those of many that fall silent at the same moment: if too many requests to all clusters
// together are slow, one is given up.
type gates struct {
	clock clock.WithDelayedExecution
	most  int // how many requests may be slow

	mu   sync.Mutex
	slow []*request // in the order in which they became slow
}

// gate is that of one cluster. The mutex of gates guards it.
type gate struct {
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

// silent reports whether the circuit at a gate is open at now, and whether it is so much so that not even a trial goes.
func (g *gates) silent(at *gate, now time.Time) (open, rests bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return at.circuit.open, at.circuit.rests(now)
}

// enter waits until a request may be sent. It is to be left once it has ended; until then cut may be called, which gives it up.
func (g *gates) enter(ctx context.Context, at *gate, cut context.CancelCauseFunc) (*request, error) {
	for {
		now := g.clock.Now()
		g.mu.Lock()
		rests, free := at.circuit.rests(now), at.circuit.open || at.sent < atOnce
		if !rests && free {
			at.circuit.trial = at.circuit.open
			at.sent++
			sent := &request{gate: at, began: now, trial: at.circuit.trial, cut: cut}
			g.mu.Unlock()
			sent.timer = g.clock.AfterFunc(slowAfter, func() { g.becomesSlow(sent) })
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

// becomesSlow notes that a request is slow. If there are too many of these, one is given up: of the cluster that has most of them, and of
// these the oldest. A cluster that is merely slow is behind those that do not answer at all.
func (g *gates) becomesSlow(sent *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if sent.ended {
		return
	}
	sent.slow = true
	sent.gate.slow++
	sent.gate.wake()
	g.slow = append(g.slow, sent)
	if len(g.slow) <= cmp.Or(g.most, mostWaiting) {
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
func (g *gates) leave(sent *request, err error) {
	sent.timer.Stop()
	now := g.clock.Now()
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
