package nodehealthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// NodeCheck describes a NodeHealthCheck: what is held against its nodes, what would be done about them, and what blocks that.
//
// Mode is Acting; Paused for pause requests; and None if the check is disabled. The caller knows whether kubemend serves it in a cluster.
func NodeCheck(f *Facts, p *Plan) *explain.Check {
	c := &explain.Check{Check: cliv1.Check{
		Reference: explain.Ref{Kind: "NodeHealthCheck", Name: f.Check.Name}, Mode: explain.Acting, Limits: cliv1.Limits{Spec: nodeLimit(f)},
		Conditions: Conditions(f, p),
	}}
	for _, cond := range c.Conditions {
		if cond.Type == nhcv1.RemediationAllowedCondition && cond.Reason != nhcv1.AllowedReason {
			c.Reason, c.Message = cond.Reason, cond.Message
		}
	}
	switch phase, why := Phase(c.Conditions, f.Check.Spec.PauseRequests, -1); phase {
	case nhcv1.PhaseDisabled:
		c.Mode, c.ModeMessage = explain.None, why
	case nhcv1.PhasePaused:
		c.Mode, c.ModeMessage = explain.Paused, why
	case nhcv1.PhaseEnabled, nhcv1.PhaseRemediating:
	}
	for _, trouble := range f.Trouble {
		if !slices.Contains(c.ReadErrors, trouble) {
			c.ReadErrors = append(c.ReadErrors, trouble)
		}
	}
	c.SetLimits(p.Limits, p.Grant.Remaining)
	if len(f.Awaited) > 0 {
		return c
	}
	c.Counts = p.Population
	c.Next = explain.Sooner(explain.Step{At: f.Retry, Reason: explain.ReadAgain, Text: "what could not be read is looked for again"},
		explain.Step{At: p.Storm.Recheck, Reason: explain.CooldownEnds, Text: StormEnds})
	for i := range f.Nodes {
		target := nodeTarget(f, p, i)
		name, next := target.String(), target.Next
		c.Next = explain.Sooner(c.Next, explain.Step{At: next.At, Reason: next.Reason, Target: name, Text: name + ": " + next.Text})
		c.Targets = append(c.Targets, target)
	}
	return c
}

// nodeLimit is the threshold that counts, as the spec has it.
func nodeLimit(f *Facts) string {
	minHealthy, maxUnhealthy := f.Limits()
	switch {
	case minHealthy != "" && maxUnhealthy != "":
		return "minHealthy " + minHealthy + " and maxUnhealthy " + maxUnhealthy
	case maxUnhealthy != "":
		return "maxUnhealthy " + maxUnhealthy
	default:
		return "minHealthy " + cmp.Or(minHealthy, budget.DefaultMinHealthy)
	}
}

// nodeTarget is what there is to say of one node.
func nodeTarget(f *Facts, p *Plan, i int) explain.Target {
	n, d := &f.Nodes[i], &p.Decisions[i]
	requests, since := underway(n)
	target := explain.Target{Class: d.Class, Findings: explain.Findings(d.Verdict, f.Now), Target: cliv1.Target{
		Reference: explain.Ref{Kind: "Node", Name: n.Name}, Node: n.Name, State: explain.States[d.Verdict.State], StartsNow: d.Starts(),
		Requests: requests, InFlight: d.InFlight, InFlightSince: cliv1.Moment(since), Message: p.Report(f, i),
		Action: &cliv1.Action{Kind: cliv1.NoAction, Message: d.Action(f)},
	}}
	if n.Machine.There() {
		target.Machine = new(n.Machine.Ref())
	}
	if d.Would >= 0 {
		template := f.Templates[d.Would].Ref()
		target.Remediator = template.Kind
		target.Action.Kind = cliv1.CreateRemediationRequest
		target.Action.Target = &template
	}
	switch {
	case !n.Exists(): // it is not judged any more
		deleted := health.Finding{Reason: health.NodeDeleted, Node: n.Name}.Text()
		target.State = cliv1.StateUnknown
		target.Findings = []explain.Finding{{
			Finding: cliv1.Finding{Reason: string(health.NodeDeleted), Message: deleted, Expired: true}, Observed: deleted,
		}}
	case d.Left:
		target.State, target.Skipped = cliv1.StateSkipped, TerminatingText
	}
	for _, b := range d.Blockers {
		if b.Text != "" {
			target.Blockers = append(target.Blockers, b.Blocker)
		}
	}
	target.Next = nodeNext(f, n, d, &target)
	return target
}

// underway are the requests for n, those of the check and then others', and since when the check remediates it; zero if it does not.
func underway(n *Node) (refs []explain.Ref, since time.Time) {
	for j := range n.Requests {
		refs, since = append(refs, n.Requests[j].Ref()), health.Earliest(since, n.Requests[j].Started())
	}
	for j := range n.Unseen {
		refs, since = append(refs, n.Unseen[j].Ref()), health.Earliest(since, n.Unseen[j].Started.Time)
	}
	for _, other := range slices.Concat(n.Orphaned, n.Others) {
		if ref := RefOf(other); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs, since
}

// nodeNext is the next thing that happens to n, or what a person has to do.
func nodeNext(f *Facts, n *Node, d *Decision, target *explain.Target) explain.Step {
	switch next := d.Next; {
	case target.StartsNow:
		return explain.Step{At: f.Now, Reason: explain.RemediationStarts, Text: "kubemend " + target.Action.Message}
	case n.Exists() && !n.Selected && !n.Remediated():
		return explain.Step{}
	case d.Verdict.State == health.Pending:
		return comesDue(d, target)
	case d.Verdict.State == health.Unhealthy && len(target.Blockers) > 0:
		return unblocked(next, target)
	case !next.At.IsZero():
		return next
	case d.Delayed:
		return explain.Step{Reason: explain.ConfirmationAwaited, Manual: true,
			Text: "annotate the node with " + nhcv1.ConfirmedHealthyAnnotation + " to confirm that it is healthy"}
	case d.Answer.NothingFollows():
		return explain.Step{Reason: string(NoneFollows), Text: "delete its requests to have the remediation tried again", Manual: true}
	case len(d.End) > 0:
		return explain.Step{Reason: explain.RequestsDeleted, Text: "kubemend deletes its requests"}
	case d.Missing && !n.Remediated():
		return explain.Step{At: d.MissedSince.Add(controlplane.ReplacementPatience), Reason: explain.NodeStaysAway, Text: "it counts no more"}
	case target.InFlight:
		text := fmt.Sprintf("%s goes on; it is deleted when the node is healthy", target.Requests[0])
		return explain.Step{Reason: explain.RemediatorActs, Text: text}
	}
	return explain.Step{}
}

// comesDue is what happens when the timeout of a node expires.
func comesDue(d *Decision, target *explain.Target) explain.Step {
	next := explain.Step{At: d.Verdict.Recheck, Reason: explain.TimeoutExpires, Text: explain.CountsThen(target)}
	if target.InFlight {
		next.Text += ", and its remediation goes on"
		return next
	}
	left := slices.IndexFunc(target.Blockers, func(b explain.Blocker) bool { return b.Until.IsZero() || b.Until.After(next.At) })
	if left >= 0 {
		next.Text += explain.StillBlocked(&target.Blockers[left])
	} else {
		next.Text += ", and kubemend " + target.Action.Message
	}
	return next
}

// unblocked is what ends the blockers of a node that is unhealthy. Where a person has to do something first, time does nothing.
func unblocked(next explain.Step, target *explain.Target) explain.Step {
	var over explain.Step
	for _, b := range target.Blockers {
		if b.Fix != "" {
			return explain.Step{Reason: b.Reason, Text: b.Fix, Manual: true}
		}
		over = explain.Sooner(over, explain.Step{At: b.Until, Reason: b.Reason, Text: b.EndsWhen})
	}
	if first := target.Blockers[0]; over.At.IsZero() {
		if next.At.IsZero() && !target.InFlight {
			return explain.Ended(&first)
		}
		return meanwhile(next, first)
	}
	if len(target.Blockers) == 1 {
		over.Text += ", and kubemend " + target.Action.Message
	}
	return over
}

// meanwhile is what happens while b, which time does not end, blocks a remediation.
func meanwhile(next explain.Step, b explain.Blocker) explain.Step {
	text := explain.Resumes(&b)
	if next.At.IsZero() {
		return explain.Step{Reason: b.Reason, Text: text}
	}
	return explain.Step{At: next.At, Reason: next.Reason, Text: next.Text + "; " + text}
}
