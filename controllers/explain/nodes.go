package explain

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
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// NodeCheck describes a NodeHealthCheck: what is held against its nodes, what would be done about them, and what blocks that.
//
// Mode is Acting; Paused for pause requests; and None if the check is disabled. Whether kubemend serves it in a cluster, and whether it is there at
// all, the caller has to know.
func NodeCheck(f *nodes.Facts, p *nodes.Plan) *Check {
	c := &Check{Check: cliv1.Check{
		Reference: Ref{Kind: "NodeHealthCheck", Name: f.Check.Name}, Mode: Acting, Limits: cliv1.Limits{Spec: nodeLimit(f)},
		Conditions: nodes.Conditions(f, p),
	}}
	for _, cond := range c.Conditions {
		if cond.Type == nhcv1.RemediationAllowedCondition && cond.Reason != nhcv1.AllowedReason {
			c.Reason, c.Message = cond.Reason, cond.Message
		}
	}
	switch phase, why := nodes.Phase(c.Conditions, f.Check.Spec.PauseRequests, -1); phase {
	case nhcv1.PhaseDisabled:
		c.Mode, c.ModeMessage = None, why
	case nhcv1.PhasePaused:
		c.Mode, c.ModeMessage = Paused, why
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
	c.Next = Sooner(Step{At: f.Retry, Reason: ReadAgain, Text: "what could not be read is looked for again"},
		Step{At: p.Storm.Recheck, Reason: CooldownEnds, Text: nodes.StormEnds})
	for i := range f.Nodes {
		target := nodeTarget(f, p, i)
		name, next := target.String(), target.Next
		c.Next = Sooner(c.Next, Step{At: next.At, Reason: next.Reason, Target: name, Text: name + ": " + next.Text})
		c.Targets = append(c.Targets, target)
	}
	return c
}

// nodeLimit is the threshold that counts, as the spec has it.
func nodeLimit(f *nodes.Facts) string {
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
func nodeTarget(f *nodes.Facts, p *nodes.Plan, i int) Target {
	n, d := &f.Nodes[i], &p.Decisions[i]
	target := Target{Class: d.Class, Findings: Findings(d.Verdict, f.Now), Target: cliv1.Target{
		Reference: Ref{Kind: "Node", Name: n.Name}, Node: n.Name, State: States[d.Verdict.State], StartsNow: d.Starts(), Requests: underway(n),
		InFlight: d.InFlight, InFlightSince: cliv1.Moment(underwaySince(n)), Message: p.Report(f, i),
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
		target.Findings = []Finding{{
			Finding: cliv1.Finding{Reason: string(health.NodeDeleted), Message: deleted, Expired: true}, Observed: deleted,
		}}
	case d.Left:
		target.State, target.Skipped = cliv1.StateSkipped, nodes.TerminatingText
	}
	for _, b := range d.Blockers {
		if b.Message != "" {
			target.Blockers = append(target.Blockers, nodeBlocker(b))
		}
	}
	target.Next = nodeNext(f, n, d, &target)
	return target
}

// nodeBlocker has the reason of the event, which people look for, where there is one.
func nodeBlocker(b nodes.Blocker) Blocker {
	blocker := Blocker{
		Reason: string(b.Reason), Text: b.Message, Until: b.Until, Fix: b.Fix, EndsWhen: b.EndsWhen, Object: b.Object, Detail: b.Detail,
	}
	if b.Event != "" {
		blocker.Reason, blocker.Cause = b.Event, blocker.Reason
	}
	return blocker
}

// underway are the requests for n: those of the check, and then others'.
func underway(n *nodes.Node) []Ref {
	var refs []Ref
	add := func(ref Ref) {
		if !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for j := range n.Requests {
		add(n.Requests[j].Ref())
	}
	for j := range n.Unseen {
		add(n.Unseen[j].Ref())
	}
	for _, other := range slices.Concat(n.Orphaned, n.Others) {
		add(nodes.RefOf(other))
	}
	return refs
}

// underwaySince is since when the check remediates n; zero if it does not.
func underwaySince(n *nodes.Node) time.Time {
	var first time.Time
	for j := range n.Requests {
		first = health.Earliest(first, n.Requests[j].Started())
	}
	for j := range n.Unseen {
		first = health.Earliest(first, n.Unseen[j].Started.Time)
	}
	return first
}

// nodeNext is the next thing that happens to n, or what a person has to do.
func nodeNext(f *nodes.Facts, n *nodes.Node, d *nodes.Decision, target *Target) Step {
	next := Step{At: d.Next.At, Reason: string(d.Next.What), Text: d.Next.Text}
	switch {
	case target.StartsNow:
		return Step{At: f.Now, Reason: RemediationStarts, Text: "kubemend " + target.Action.Message}
	case n.Exists() && !n.Selected && !n.Remediated():
		return Step{}
	case d.Verdict.State == health.Pending:
		return comesDue(d, target)
	case d.Verdict.State == health.Unhealthy && len(target.Blockers) > 0:
		return unblocked(next, target)
	case !next.At.IsZero():
		return next
	case d.Delayed:
		return Step{Reason: ConfirmationAwaited, Manual: true,
			Text: "annotate the node with " + nhcv1.ConfirmedHealthyAnnotation + " to confirm that it is healthy"}
	case d.Answer.NothingFollows():
		return Step{Reason: string(nodes.NoneFollows), Text: "delete its requests to have the remediation tried again", Manual: true}
	case len(d.End) > 0:
		return Step{Reason: RequestsDeleted, Text: "kubemend deletes its requests"}
	case d.Missing && !n.Remediated():
		return Step{At: d.MissedSince.Add(controlplane.ReplacementPatience), Reason: NodeStaysAway, Text: "it counts no more"}
	case target.InFlight:
		return Step{Reason: RemediatorActs, Text: fmt.Sprintf("%s goes on; it is deleted when the node is healthy", target.Requests[0])}
	}
	return Step{}
}

// comesDue is what happens when the timeout of a node expires.
func comesDue(d *nodes.Decision, target *Target) Step {
	next := Step{At: d.Verdict.Recheck, Reason: TimeoutExpires, Text: CountsThen(target)}
	if target.InFlight {
		next.Text += ", and its remediation goes on"
		return next
	}
	left := slices.IndexFunc(target.Blockers, func(blocker Blocker) bool { return blocker.Until.IsZero() || blocker.Until.After(next.At) })
	if left >= 0 {
		next.Text += StillBlocked(&target.Blockers[left])
	} else {
		next.Text += ", and kubemend " + target.Action.Message
	}
	return next
}

// unblocked is what ends the blockers of a node that is unhealthy. Where a person has to do something first, time does nothing.
func unblocked(next Step, target *Target) Step {
	var over Step
	for _, b := range target.Blockers {
		if b.Fix != "" {
			return Step{Reason: b.Reason, Text: b.Fix, Manual: true}
		}
		over = Sooner(over, Step{At: b.Until, Reason: b.Reason, Text: b.EndsWhen})
	}
	if first := target.Blockers[0]; over.At.IsZero() {
		if next.At.IsZero() && !target.InFlight {
			return Ended(&first)
		}
		return meanwhile(next, first)
	}
	if len(target.Blockers) == 1 {
		over.Text += ", and kubemend " + target.Action.Message
	}
	return over
}

// meanwhile is what happens while b, which time does not end, blocks a remediation.
func meanwhile(next Step, b Blocker) Step {
	text := Resumes(&b)
	if next.At.IsZero() {
		return Step{Reason: b.Reason, Text: text}
	}
	return Step{At: next.At, Reason: next.Reason, Text: next.Text + "; " + text}
}
