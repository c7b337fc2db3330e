package nodes

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// refusedFor is how long a node whose request was refused lets the others go first: as long as what goes on failing is tried again.
const refusedFor = time.Minute

// Refusal is that no request could be made for a node.
type Refusal struct {
	// Step is the step whose request was tried since First; First is zero if something before the request failed, such as the lease.
	Step        int
	First, Last time.Time
	// Unanswered says that the API server did not say no. The webhook of the requests may be down, for all nodes alike.
	Unanswered bool
}

// Again is r after no request could be made on step at now. Tried says that it was the request that failed.
func (r Refusal) Again(step int, tried, unanswered bool, now time.Time) Refusal {
	if tried && (r.First.IsZero() || r.Step != step) {
		r.Step, r.First = step, now
	}
	r.Last, r.Unanswered = now, unanswered
	return r
}

func (r Refusal) lately(now time.Time) bool { return now.Before(r.Last.Add(refusedFor)) }

// recallRefusal keeps the refusal of an unhealthy node until there is a request on its step.
func (d *decider) recallRefusal(i int) {
	n := &d.f.Nodes[i]
	refusal, known := d.f.Memory.Refusals[n.Name]
	made := slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Step >= refusal.Step })
	if !known || made || !n.Exists() || d.p.Decisions[i].Verdict.State == health.Healthy {
		return
	}
	if !refusal.First.IsZero() || refusal.lately(d.f.Now) {
		d.p.Memory.Refusals[n.Name] = refusal
	}
}

// refused is the refusal of the node as the escalation sees it: a request that is gone, and whose step times out like any other. Its time
// does not run out on the last step, which is tried without end, nor while others have the turn.
func (c *Case) refused() (request escalation.Request, refused bool) {
	refusal := c.p.Memory.Refusals[c.n.Name]
	if refusal.First.IsZero() || refusal.Step >= len(c.steps) || c.f.Single() {
		return request, false
	}
	request = escalation.Request{Step: refusal.Step, Started: refusal.First, Gone: true, Refused: true}
	next := c.passing(c.n, refusal.Step+1)
	last := next >= len(c.steps) || c.passed(c.n, next)
	if last || refusal.Unanswered && !c.mayGoOn(refusal) {
		request.Started = c.f.Now
	}
	return request, true
}

// mayGoOn reports whether the node may go on to its next step although its request was not answered. While requests of that kind fail for
// other nodes too, one node of the check may at a time: a webhook that is down must not have all nodes replaced at once.
func (c *Case) mayGoOn(refusal Refusal) bool {
	kind := c.f.Templates[refusal.Step].Request.GroupKind()
	for i := range c.f.Nodes {
		other := c.f.Nodes[i].Name
		if i == c.i {
			continue
		}
		if c.wentOn(i, kind) {
			return false
		}
		theirs := c.p.Memory.Refusals[other]
		fails := !theirs.First.IsZero() && theirs.Unanswered && theirs.lately(c.f.Now) && theirs.Step < len(c.steps) &&
			c.f.Templates[theirs.Step].Request.GroupKind() == kind
		if fails && cmp.Or(theirs.First.Compare(refusal.First), cmp.Compare(other, c.n.Name)) < 0 {
			return false
		}
	}
	return true
}

// wentOn reports whether the node at place i is on a step, whose time is not over, above one of that kind for which it has no request.
func (d *decider) wentOn(i int, kind schema.GroupKind) bool {
	n, top := &d.f.Nodes[i], -1
	if refusal := d.p.Memory.Refusals[n.Name]; !refusal.First.IsZero() && refusal.lately(d.f.Now) {
		top = min(refusal.Step, len(d.steps))
	}
	asked := map[int]bool{}
	for j := range n.Requests {
		step := n.Requests[j].Step
		asked[step] = true
		if step >= 0 && d.f.Now.Before(d.p.Decisions[i].Requests[j].Counted.Add(d.steps[step].Timeout)) {
			top = max(top, step)
		}
	}
	for j := range n.Gone {
		asked[n.Gone[j].Step] = true
	}
	for step := range max(top, 0) {
		if d.f.Templates[step].Request.GroupKind() == kind && !asked[step] && !d.passed(n, step) {
			return true
		}
	}
	return false
}
