package nodehealthcheck

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Reasons of decisions if a step cannot be used for the node, because its requests are about Machines and there is no Machine of the node
// in their namespace. Such a step is passed over, since waiting for it would never end. If no step can be used, the check reports why.
const (
	passedOver = "StepPassedOver"
	noneFits   = "NoStepFits"
)

func (d *decider) escalationOf(n *Node, requests []escalation.Request) escalation.Decision {
	answer := escalation.Decide(d.steps, requests, d.f.Now)
	switch step := d.suitable(n, answer.Step); {
	case answer.Do != escalation.Start, step == answer.Step, step == len(d.steps) && answer.Step == 0:
	case step == len(d.steps):
		answer.Do, answer.Reason = escalation.Exhausted, noneFits
	default:
		answer.Step, answer.Reason = step, passedOver
	}
	return answer
}

// suitable returns the first step from step on that can be used for n; len(d.f.Templates) if there is none. If the Machine of n was not
// read, every step counts as usable.
func (d *decider) suitable(n *Node, step int) int {
	for ; step < len(d.f.Templates); step++ {
		if reason, _ := d.f.Templates[step].Unsuitable(n); reason == "" || n.Machine == nil || n.Machine.Unread {
			return step
		}
	}
	return len(d.f.Templates)
}

// escalated returns the requests for the present failure of the node, converted for the escalation.
func (c *Case) escalated() []escalation.Request {
	var requests []escalation.Request
	for j := range c.Requests {
		if r := &c.Requests[j]; r.Step >= 0 {
			processing, since := escalation.Says(r.Object, nhcv1.ProcessingCondition)
			requests = append(requests, escalation.Request{
				Step: r.Step, Started: r.Counted, GivenUp: r.GivenUp(), Notified: r.notified(),
				Deleting:  !r.Deleting().IsZero(),
				Succeeded: r.succeeded(), Processing: processing, ProcessingSince: since,
			})
		}
	}
	for i := range c.Gone {
		if gone := &c.Gone[i]; gone.Step >= 0 {
			request := escalation.Request{Step: gone.Step, Started: gone.Started.Time, Gone: true}
			if gone.TimedOut != nil {
				request.GivenUp = gone.TimedOut.Time
			}
			if c.p.Memory.Requests[string(gone.Resource.UID)].Succeeded {
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

// escalate returns the step that is given up now (zero if none is), and what the escalation decides after that.
func (c *Case) escalate() (gaveUp, answer escalation.Decision) {
	requests := c.escalated()
	answer = c.escalationOf(c.Node, requests)
	if answer.Do != escalation.GiveUp {
		return escalation.Decision{}, answer
	}
	for j := range requests {
		if requests[j].Step == answer.Step {
			requests[j].GivenUp, requests[j].Notified = c.f.Now, requests[j].Notified || answer.Notify
		}
	}
	return answer, c.escalationOf(c.Node, requests)
}

// expires returns when the timeout of the current step expires, and what happens then.
func (c *Case) expires(answer escalation.Decision) rule.Step {
	if answer.Do != escalation.Wait || answer.Recheck.IsZero() {
		return rule.Step{At: answer.Recheck}
	}
	follows := "no template is left to try"
	if next := c.suitable(c.Node, answer.Step+1); next < len(c.steps) {
		follows = c.f.Templates[next].String() + " begins"
	}
	text := c.f.Templates[answer.Step].String() + " is given up unless the node is back, and " + follows
	return rule.Step{At: answer.Recheck, Reason: StepExpires, Text: text}
}

// would returns the step that starts once nothing blocks it and the current step has ended; -1 and a reason if there is none.
func (c *Case) would() (int, Reason) {
	switch {
	case !c.exists():
		return -1, NodeGone
	case len(c.f.Templates) == 0:
		return -1, NoTemplate
	case !c.Selected && !c.remediated():
		return -1, NotSelected
	case c.Verdict.State == health.Healthy, c.ends(): // the next failure starts with the first step
		return 0, ""
	}
	_, next := c.escalate()
	step := next.Step
	switch {
	case next.Do == escalation.Exhausted:
		return -1, NoTemplateLeft
	case next.Do != escalation.Start && next.Reason != escalation.AwaitingDeletion:
		step = c.suitable(c.Node, step+1) // the escalation waits for the current step
	}
	if step >= len(c.f.Templates) || len(c.f.Templates) > 1 && c.suitable(c.Node, step) > step {
		return -1, NoneFollows
	}
	return step, ""
}

// Action says what kubemend does next about a node, as a clause, once nothing blocks it and the current step has ended.
func (d *Decision) Action(f *Facts) string {
	switch {
	case d.Would >= 0:
		return "makes a " + f.Templates[d.Would].String()
	case d.Nothing == NoneFollows:
		return "does nothing more: no template follows " + f.Templates[len(f.Templates)-1].String()
	}
	return map[Reason]string{
		NodeGone: "does nothing: the node is gone", NoTemplate: "does nothing: the check names no template",
		NotSelected:    "does nothing: the check does not select the node any more",
		NoTemplateLeft: "does nothing more: no template is left to try",
	}[d.Nothing]
}

// resumed ends the healthy delay, because the node is not healthy.
func (c *Case) resumed() {
	for j := range c.Requests {
		r := &c.Requests[j]
		if _, marked := r.Object.GetAnnotations()[nhcv1.HealthyDelayAnnotation]; marked && r.Deleting().IsZero() {
			r.note(nhcv1.HealthyDelayAnnotation, nil)
		}
	}
}

// ends reports whether a request of the node is to be deleted.
func (d *Decision) ends() bool {
	return slices.ContainsFunc(d.Requests, func(r RequestState) bool { return r.End })
}

// repeats reports whether the node has failed again after the only remediation succeeded and the node was healthy according to the check's
// status. No other step can help, so the request is deleted and created again.
//
// A changed condition alone is no new failure: a node that boots is False, Unknown and False again. A new request for each change would
// interrupt the boot forever. (NodeHealthCheck issue 274.)
func (d *Decision) repeats(f *Facts, r *RequestState) bool {
	had := d.delayed() && r.succeeded() == escalation.Yes && r.Deleting().IsZero()
	return had && f.single() && d.exists() && d.Verdict.State != health.Healthy
}

// refusedFor is how long a node whose request was refused lets other nodes go first.
const refusedFor = time.Minute

// Refusal says that no request could be created for a node.
type Refusal struct {
	// Step is the step whose request was refused since First. First is zero if an earlier write failed, such as that of the lease.
	Step        int
	First, Last time.Time
	// Unanswered says that the API server gave no answer, for example because a webhook for the requests is down, which affects all nodes.
	Unanswered bool
}

// Again returns r after no request could be created on step at now. Tried says that the request itself failed.
func (r Refusal) Again(step int, tried, unanswered bool, now time.Time) Refusal {
	if tried && (r.First.IsZero() || r.Step != step) {
		r.Step, r.First = step, now
	}
	r.Last, r.Unanswered = now, unanswered
	return r
}

func (r Refusal) lately(now time.Time) bool { return now.Before(r.Last.Add(refusedFor)) }

// recallRefusal keeps the refusal of an unhealthy node until there is a request on its step.
func (d *decider) recallRefusal(decision *Decision) {
	n := decision.Node
	refusal, known := d.f.Memory.Refusals[n.Name]
	made := slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Step >= refusal.Step })
	if !known || made || !n.exists() || decision.Verdict.State == health.Healthy {
		return
	}
	if !refusal.First.IsZero() || refusal.lately(d.f.Now) {
		d.p.Memory.Refusals[n.Name] = refusal
	}
}

// refused returns the refusal of the node for the escalation, as a request that is gone, so that its step can time out. The timeout does
// not expire on the last step, which is tried again and again, nor while mayGoOn is false.
func (c *Case) refused() (request escalation.Request, refused bool) {
	refusal := c.p.Memory.Refusals[c.Name]
	if refusal.First.IsZero() || refusal.Step >= len(c.steps) || c.f.single() {
		return request, false
	}
	request = escalation.Request{Step: refusal.Step, Started: refusal.First, Gone: true, Refused: true}
	if last := c.suitable(c.Node, refusal.Step+1) == len(c.steps); last || refusal.Unanswered && !c.mayGoOn(refusal) {
		request.Started = c.f.Now
	}
	return request, true
}

// mayGoOn reports whether the node may go on to its next step although the API server did not answer. While requests of this kind fail for
// other nodes too, only one node of the check may at a time: otherwise a webhook that is down could have all nodes replaced at once.
func (c *Case) mayGoOn(refusal Refusal) bool {
	kind := c.f.Templates[refusal.Step].Request.GroupKind()
	for _, other := range c.p.Decisions {
		if other.Name == c.Name {
			continue
		}
		theirs := c.p.Memory.Refusals[other.Name]
		fails := !theirs.First.IsZero() && theirs.Unanswered && theirs.lately(c.f.Now) && theirs.Step < len(c.steps) &&
			c.f.Templates[theirs.Step].Request.GroupKind() == kind
		earlier := cmp.Or(theirs.First.Compare(refusal.First), cmp.Compare(other.Name, c.Name)) < 0
		if fails && earlier || c.wentOn(other, kind) {
			return false
		}
	}
	return true
}

// wentOn reports whether a node has skipped a step of a kind, for which it has no request, and the timeout of the step that it went on to
// has not expired.
func (d *decider) wentOn(decision *Decision, kind schema.GroupKind) bool {
	top, asked := -1, map[int]bool{}
	if refusal := d.p.Memory.Refusals[decision.Name]; !refusal.First.IsZero() && refusal.lately(d.f.Now) {
		top = min(refusal.Step, len(d.steps))
	}
	for j := range decision.Requests {
		r := &decision.Requests[j]
		asked[r.Step] = true
		if r.Step >= 0 && d.f.Now.Before(r.Counted.Add(d.steps[r.Step].Timeout)) {
			top = max(top, r.Step)
		}
	}
	for j := range decision.Gone {
		asked[decision.Gone[j].Step] = true
	}
	for step := range max(top, 0) {
		if d.f.Templates[step].Request.GroupKind() == kind && !asked[step] && d.suitable(decision.Node, step) == step {
			return true
		}
	}
	return false
}

// shortRecovery is how long a node has to be healthy before its next failure starts with the first step. If the rule that matches then has
// a shorter timeout, that is enough.
const shortRecovery = time.Minute

// Recovery remembers the escalation of a node that has become healthy. If the node fails again soon, the escalation goes on with the same
// step: otherwise a node that is Ready for ten seconds after each reboot would never get to the second step.
type Recovery struct {
	// First is when the node was healthy for the first time, Last for the last time. Short says that it failed again soon after Last.
	First, Last time.Time
	Short       bool
	Requests    []Listed
}

// recallRecovery remembers the requests of a healthy node, and restores them if the node fails after a short recovery.
func (d *decider) recallRecovery(decision *Decision) {
	n, verdict := decision.Node, &decision.Verdict
	if !n.exists() || d.f.single() {
		return
	}
	recovery, keep := d.f.Memory.Recoveries[n.ID()]
	switch {
	case verdict.State == health.Healthy && !keep:
		recovery = d.recovery(decision)
		keep = len(recovery.Requests) > 0
	case verdict.State == health.Healthy && recovery.Short:
		recovery.Last, recovery.Short = d.f.Now, false
	case verdict.State == health.Healthy:
		keep = len(n.Requests) > 0 || d.f.Now.Before(recovery.Last.Add(shortRecovery))
	case verdict.State != health.Unknown && keep: // until the check's status lists the requests again
		recovery.Short = recovery.Short || d.f.Now.Before(recovery.Last.Add(enough(verdict)))
		keep = recovery.Short && (verdict.State != health.Unhealthy || recovery.giveBack(n, d.f.Now))
	}
	if keep {
		d.p.Memory.Recoveries[n.ID()] = recovery
	}
}

// enough returns how long a node has to be healthy before the failure in verdict counts as a new one.
func enough(verdict *health.Verdict) time.Duration {
	within := shortRecovery
	for _, finding := range verdict.Findings {
		within = min(within, finding.Limit)
	}
	return within
}

// recovery returns the recovery of a node that is healthy now. It has no requests if the last step was given up, since no step follows.
func (d *decider) recovery(decision *Decision) Recovery {
	since := d.f.Now
	if healthy := decision.healthySince(); !healthy.IsZero() {
		since = healthy
	}
	recovery := Recovery{First: since, Last: since, Requests: slices.Clone(decision.Gone)}
	for j := range decision.Requests {
		if r := &decision.Requests[j]; r.Step >= 0 {
			entry := r.entry()
			entry.Started = metav1.NewTime(r.Counted)
			recovery.Requests = append(recovery.Requests, Listed{Remediation: entry, Step: r.Step})
		}
	}
	spent := func(entry Listed) bool { return entry.Step == len(d.steps)-1 && entry.TimedOut != nil }
	if slices.ContainsFunc(recovery.Requests, spent) {
		recovery.Requests = nil
	}
	return recovery
}

// giveBack adds the requests to n.Gone, with the time that each had left. It returns false if the check's status lists them already.
func (recovery *Recovery) giveBack(n *Node, now time.Time) bool {
	var back []Listed
	for _, entry := range recovery.Requests {
		switch uid := entry.Resource.UID; {
		case slices.ContainsFunc(n.Gone, func(gone Listed) bool { return gone.Resource.UID == uid }):
			return false
		case !slices.ContainsFunc(n.Requests, func(r Request) bool { return r.Object.GetUID() == uid }):
			entry.Started = metav1.NewTime(entry.Started.Add(now.Sub(recovery.First)))
			back = append(back, entry)
		}
	}
	n.Gone = append(n.Gone, back...)
	return back != nil
}
