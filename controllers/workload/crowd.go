package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// errCrowded is the error of a request that is given up, because too many others wait as well.
var errCrowded = fmt.Errorf("%w: requests to many clusters are waiting", ErrSilent)

// crowd are the requests to all clusters that were not answered within a second. Each keeps a worker from other clusters: what bounds those of one
// cluster does not bound those of many that fall silent at the same moment. So if there are more of them than may be, one is given up.
type crowd struct {
	most int // how many there may be

	mu    sync.Mutex
	waits []*waiting // in the order in which they came to be among them
}

// waiting is a request that was sent.
type waiting struct {
	at    *gate // of its cluster
	cut   context.CancelCauseFunc
	ended bool
}

// join counts a request that was not answered within a second.
func (c *crowd) join(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.ended {
		return
	}
	c.waits = append(c.waits, w)
	if len(c.waits) > c.most {
		out := c.next()
		c.waits[out].cut(errCrowded)
		c.waits = slices.Delete(c.waits, out, out+1)
	}
}

// next is the request that is given up: of the cluster that keeps most of them waiting, and of these the oldest. A cluster that is merely slow is behind
// those that do not answer at all.
func (c *crowd) next() int {
	byGate := map[*gate]int{}
	for _, w := range c.waits {
		byGate[w.at]++
	}
	out := 0
	for i, w := range c.waits {
		if byGate[w.at] > byGate[c.waits[out].at] {
			out = i
		}
	}
	return out
}

// part counts a request no more, which has ended.
func (c *crowd) part(w *waiting) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.ended = true
	if at := slices.Index(c.waits, w); at >= 0 {
		c.waits = slices.Delete(c.waits, at, at+1)
	}
}

// causeOf is err, or why the request that ended with it was given up.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && !errors.Is(err, io.EOF) && errors.Is(cause, errCrowded) {
		return cause
	}
	return err
}
