package nodehealthcheck

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// shortOutage is how long the API server may be away without a kubelet missing a report: leases of nodes are renewed every ten seconds.
const shortOutage = 10 * time.Second

// Contact knows when the API server was out of reach by what becomes of the requests that are made anyhow, such as watches.
type Contact struct {
	Clock clock.PassiveClock
	// Server is the API server whose clock is held against that of this process. It may be nil.
	Server *clockerror.Server
	// Announced is what a reader knows instead of Server: by how much the manager says that its clock is ahead.
	Announced time.Duration

	mu      sync.Mutex
	lost    time.Time // since when nothing is answered; zero while there is contact
	outages []nodes.Outage
}

// clockAhead is how far the clock of this process is ahead of the API server's; less than 0 if it is behind, 0 up to 30 s.
func (c *Contact) clockAhead() time.Duration {
	switch {
	case c == nil:
		return 0
	case c.Server == nil:
		return c.Announced
	}
	return c.Server.Ahead()
}

const mostOutages = 20

// Around returns a transport that makes its requests by next, and notes what becomes of them.
func (c *Contact) Around(next http.RoundTripper) http.RoundTripper { return noted{c, next} }

type noted struct {
	*Contact
	next http.RoundTripper
}

// RoundTrip makes a request.
func (n noted) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := n.next.RoundTrip(req)
	switch {
	case errors.Is(err, context.Canceled): // by ourselves
	case err != nil:
		n.note(false)
	default:
		away := []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout} // says who stands before it
		n.note(!slices.Contains(away, resp.StatusCode))
	}
	return resp, err
}

func (c *Contact) note(answered bool) {
	now := c.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !answered && c.lost.IsZero():
		c.lost = now
	case answered && !c.lost.IsZero():
		if now.Sub(c.lost) >= shortOutage {
			c.outages = append(c.outages[max(0, len(c.outages)-mostOutages+1):], nodes.Outage{From: c.lost, To: now})
		}
		c.lost = time.Time{}
	}
}

func (c *Contact) past() []nodes.Outage {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.outages)
}
