package nodes

import (
	"slices"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// A step that cannot be about a node, since its requests are about Machines and the node is none's where they would be, is passed over:
// waiting for it would be waiting without end, with a step left that could help. A check that has no other one says why nothing is done.

// Answer is what the escalation decides about a node.
type Answer struct {
	escalation.Decision
	// PassedOver says that the step From comes next and cannot be about the node: another one starts, or none is left.
	PassedOver bool
	From       int
}

func (d *decider) escalationOf(n *Node, requests []escalation.Request) Answer {
	answer := Answer{Decision: escalation.Decide(d.steps, requests, d.f.Now)}
	if answer.Do != escalation.Start {
		return answer
	}
	answer.From, answer.Step = answer.Step, d.passing(n, answer.Step)
	noneLeft := answer.From > 0 && d.passed(n, answer.Step)
	if noneLeft {
		answer.Do, answer.Reason = escalation.Exhausted, escalation.NoTemplateLeft
	}
	answer.PassedOver = noneLeft || answer.Step != answer.From
	return answer
}

// passing is the first step from step on that can be about n; the last one if none can.
func (d *decider) passing(n *Node, step int) int {
	for step+1 < len(d.f.Templates) && d.passed(n, step) {
		step++
	}
	return step
}

// passed reports whether the step cannot be about n. It can, as far as is known, before its Machine was looked for.
func (d *decider) passed(n *Node, step int) bool {
	reason, _ := d.f.Templates[step].Unsuitable(n)
	return n.Machine != nil && !n.Machine.Unread && reason != ""
}

// escalated are the requests for the present failure of the node as the escalation sees them.
func (c *Case) escalated() []escalation.Request {
	var requests []escalation.Request
	for j := range c.n.Requests {
		if r := &c.n.Requests[j]; r.Step >= 0 {
			processing, since := escalation.Says(r.Object, nhcv1.ProcessingCondition)
			requests = append(requests, escalation.Request{
				Step: r.Step, Started: c.Requests[j].Counted, GivenUp: r.GivenUp(), Notified: !r.notified().IsZero(), Deleting: !r.Deleting().IsZero(),
				Succeeded: r.succeeded(), Processing: processing, ProcessingSince: since,
			})
		}
	}
	for i := range c.n.Gone {
		if gone := &c.n.Gone[i]; gone.Step >= 0 {
			request := escalation.Request{Step: gone.Step, Started: gone.Started.Time, Gone: true}
			if gone.TimedOut != nil {
				request.GivenUp = gone.TimedOut.Time
			}
			if c.p.Memory.Succeeded[string(gone.Resource.UID)] {
				request.Succeeded = escalation.Yes
			}
			requests = append(requests, request)
		}
	}
	if request, refused := c.refused(); refused {
		requests = append(requests, request)
	}
	return requests
}

// escalate is what the escalation decides about the node, after what has had its chance was given up; gaveUp is zero if nothing was.
func (c *Case) escalate() (gaveUp escalation.Decision, answer Answer) {
	requests := c.escalated()
	answer = c.escalationOf(c.n, requests)
	if answer.Do != escalation.GiveUp {
		return escalation.Decision{}, answer
	}
	for j := range requests {
		if requests[j].Step == answer.Step {
			requests[j].GivenUp, requests[j].Notified = c.f.Now, requests[j].Notified || answer.Notify
		}
	}
	return answer.Decision, c.escalationOf(c.n, requests)
}

// requestsOn are the requests on a step; only those whose remediator does not know yet that they were given up, if it has to be notified.
func (n *Node) requestsOn(step int, notify bool) []int {
	var on []int
	for j := range n.Requests {
		if r := &n.Requests[j]; r.Step == step && (!notify || r.notified().IsZero()) {
			on = append(on, j)
		}
	}
	return on
}

// expires is when the time of the step is over that is waited for, and what happens then.
func (c *Case) expires(answer Answer) Moment {
	if answer.Do != escalation.Wait || answer.Recheck.IsZero() {
		return Moment{At: answer.Recheck}
	}
	follows := "no template is left to try"
	if next := c.passing(c.n, answer.Step+1); next < len(c.steps) && !c.passed(c.n, next) {
		follows = c.f.Templates[next].String() + " begins"
	}
	text := c.f.Templates[answer.Step].String() + " is given up unless the node is back, and " + follows
	return Moment{At: answer.Recheck, What: StepExpires, Text: text}
}

// whenHealthy is the step that starts at the next failure of a node that is healthy: the first one; -1 if none does, and why.
func (d *decider) whenHealthy(i int) (int, Reason) {
	switch {
	case len(d.f.Templates) == 0:
		return -1, NoTemplate
	case !d.f.Nodes[i].Selected && !d.f.Nodes[i].Remediated():
		return -1, NotSelected
	}
	return 0, ""
}

// would is the step that starts once nothing blocks it and nothing is waited for; -1 if none does, and why.
func (c *Case) would() (int, Reason) {
	switch {
	case !c.n.Exists():
		return -1, NodeGone
	case len(c.f.Templates) == 0, !c.n.Selected && !c.n.Remediated(), c.Verdict.State == health.Healthy, len(c.End) > 0:
		return c.whenHealthy(c.i)
	}
	_, next := c.escalate()
	step := next.Step
	switch {
	case next.Do == escalation.Exhausted:
		return -1, NoTemplateLeft
	case next.Do != escalation.Start && next.Reason != escalation.AwaitingDeletion:
		step = c.passing(c.n, step+1) // that one is waited for
	}
	if step >= len(c.f.Templates) || len(c.f.Templates) > 1 && c.passed(c.n, step) {
		return -1, NoneFollows
	}
	return step, ""
}

// Action is what is done about a node next, as a clause, once nothing blocks it and nothing is waited for.
func (d *Decision) Action(f *Facts) string {
	if d.Would >= 0 {
		return "makes a " + f.Templates[d.Would].String()
	}
	switch d.Nothing {
	case NodeGone:
		return "does nothing: the node is gone"
	case NoTemplate:
		return "does nothing: the check names no template"
	case NotSelected:
		return "does nothing: the check does not select the node any more"
	case NoTemplateLeft:
		return "does nothing more: no template is left to try"
	}
	return "does nothing more: no template follows " + f.Templates[len(f.Templates)-1].String()
}

// resumed ends a healthy delay: the node is not healthy. Of a single remediation that had succeeded the annotation says when that was
// found.
func (c *Case) resumed() {
	turned := c.n.delayed() && !c.n.healthySince().IsZero()
	for j := range c.n.Requests {
		r := &c.n.Requests[j]
		_, marked := r.Object.GetAnnotations()[nhcv1.HealthyDelayAnnotation]
		switch {
		case !r.Deleting().IsZero():
		case marked, turned && c.f.Single() && c.Requests[j].Recovered && !r.relapsed():
			c.Resume = append(c.Resume, j)
		}
	}
}

// relapsed: the remediation had succeeded, the node was seen healthy then, and now it is unhealthy once more. Where no step follows
// another one, nothing would be done about it; so what has succeeded ends, and the node begins anew. With an escalation the next step's
// turn comes by time.
//
// That a condition has turned says nothing of that: a node that boots is False, Unknown and False again, and what is remediated once more
// because of it loses its power in the middle of the boot, without end. (NodeHealthCheck issue 274.)
func (c *Case) relapsed() {
	if !c.f.Single() {
		return
	}
	for j := range c.n.Requests {
		if r := &c.n.Requests[j]; r.succeeded() == escalation.Yes && r.Deleting().IsZero() && (c.Requests[j].Recovered || r.relapsed()) {
			c.End = append(c.End, j)
		}
	}
}

// AwaitsRepeat reports whether a single remediation that had succeeded begins anew when the node is unhealthy. Ended are the deleted
// requests.
func (d *Decision) AwaitsRepeat(f *Facts, n *Node, ended []int) bool {
	if !n.Exists() || d.Verdict.State == health.Healthy || !f.Single() {
		return false
	}
	for j := range n.Requests {
		if d.Requests[j].Recovered && n.Requests[j].Deleting().IsZero() && !slices.Contains(ended, j) {
			return true
		}
	}
	return false
}
