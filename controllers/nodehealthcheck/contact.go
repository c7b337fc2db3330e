package nodehealthcheck

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// shortOutage is how long the API server may be out of reach without anybody missing a report: a kubelet renews its lease every ten seconds. (Kubernetes,
// nodeLeaseDurationSeconds / 4.)
const shortOutage = 10 * time.Second

// outage is a time in which nobody could be reached by the API server that is known to have been away.
type outage struct{ from, to time.Time }

// since is how much of o there was after at.
func (o outage) since(at time.Time) time.Duration {
	if at.Before(o.from) {
		at = o.from
	}
	return max(0, o.to.Sub(at))
}

// Contact knows when the API server was out of reach, by what becomes of the requests that are made anyhow: watches that are broken are made again, so
// nothing has to be asked for it.
type Contact struct {
	Clock clock.PassiveClock

	mu      sync.Mutex
	lost    time.Time // since when nothing is answered; zero while there is contact
	outages []outage
}

// mostOutages is how many are remembered.
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
			c.outages = append(c.outages[max(0, len(c.outages)-mostOutages+1):], outage{c.lost, now})
		}
		c.lost = time.Time{}
	}
}

// past are the outages that are over, in their order.
func (c *Contact) past() []outage {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.outages)
}

// observeContact finds out until when kubelets have had no time to report: since we began to look, or since the API server is back. Then it is known
// again which of them are silent.
func (r *Reconciler) observeContact(w *observed) {
	w.outages = r.Contact.past()
	since := r.memory.begin(w.now)
	if awaited := w.awaitedSince(); !awaited.IsZero() && !w.now.Before(awaited.Add(3*r.Grace)) {
		since = time.Time{} // who is started again and again before they had time would wait without end
	}
	if n := len(w.outages); n > 0 && w.outages[n-1].to.After(since) {
		since = w.outages[n-1].to
	}
	if at := since.Add(r.Grace); w.now.Before(at) {
		w.settled, w.recheck = at, health.Earliest(w.recheck, at)
	}
}

// awaitedSince is since when the check waits for kubelets, if it says that it does, whoever began to.
func (w *observed) awaitedSince() time.Time {
	c := conditionOf(w.check, nhcv1.RemediationAllowedCondition)
	if c == nil || c.Reason != nhcv1.KubeletsAwaitedReason {
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// unsettled is what keeps anything new from beginning until kubelets have had time to report.
func (w *observed) unsettled() explain.Blocker {
	return explain.Blocker{
		Reason: nhcv1.KubeletsAwaitedReason, Until: w.settled,
		Text: "Kubelets have not had time to report since the manager was started, or since the API server could be reached again",
		Ends: "kubelets have had time to report",
	}
}

// delay gives the requests for a node the time back in which their remediators could do nothing: the API server was out of reach; or no manager ran, of
// which nobody knows why. That is known by the lease on the node, which is renewed after half of its term at the latest: then all the time since it was
// renewed last is given back, at the first reconcile. It is remembered here, and for the next manager in the status.
func (m *memory) delay(w *observed) {
	is := m.of(w.check.Name)
	begun := map[types.UID]time.Time{}
	for i := range w.targets {
		t := &w.targets[i]
		outages := w.outages
		if !is.looked {
			outages = unrenewed(t.lease, holderOf(w.check), w.outages, w.now)
		}
		for _, f := range t.requests {
			if at, known := is.counts[f.obj.GetUID()]; known && at.After(f.begun) {
				f.begun = at
			}
			for _, o := range outages {
				if o.to.After(is.delayed) && !f.over {
					f.begun = f.begun.Add(o.since(f.begun))
				}
			}
			if f.begun.After(f.started()) && !f.over {
				begun[f.obj.GetUID()] = f.begun
			}
		}
	}
	is.counts, is.delayed, is.looked = begun, w.now, true
}

// restartSlack is by how much a lease may be renewed later than it should be: passes take a while.
const restartSlack = 5 * time.Second

// unrenewed is the time in which nobody could work, as a process sees it that begins: all of the time since lease was renewed, if holder should have done
// that again meanwhile; else of what this process has seen itself what came after that. What was before it holder has given back.
func unrenewed(lease *coordinationv1.Lease, holder string, seen []outage, now time.Time) []outage {
	if !heldBy(lease, holder) || lease.Spec.RenewTime == nil {
		return seen
	}
	term := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0))*time.Second - leaseBuffer
	renewed := lease.Spec.RenewTime.Time
	if now.Sub(renewed) > term/2+restartSlack {
		return []outage{{renewed, now}}
	}
	return slices.DeleteFunc(slices.Clone(seen), func(o outage) bool { return !o.to.After(renewed) })
}
