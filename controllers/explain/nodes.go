package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

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
	c := &Check{Ref: Ref{Kind: "NodeHealthCheck", Name: f.Check}, Mode: Acting, Limit: nodeLimit(f), Conditions: NodeConditions(f, p)}
	allowed := nodeAllowed(f, p)
	if allowed.Reason != nhcv1.AllowedReason {
		c.Reason, c.Text = allowed.Reason, allowed.Message
	}
	switch phase, why := NodePhase(c.Conditions, f.PauseRequests, -1); phase {
	case nhcv1.PhaseDisabled:
		c.Mode, c.ModeText = None, why
	case nhcv1.PhasePaused:
		c.Mode, c.ModeText = Paused, why
	case nhcv1.PhaseEnabled, nhcv1.PhaseRemediating:
	}
	for _, trouble := range f.Trouble {
		if !slices.Contains(c.ReadErrors, trouble) {
			c.ReadErrors = append(c.ReadErrors, trouble)
		}
	}
	if len(f.Awaited) > 0 {
		return c
	}
	c.Population, c.Limits, c.Remaining = p.Population, p.Limits, p.Grant.Remaining
	c.Next = sooner(Step{At: f.Retry, Reason: ReadAgain, Text: "what could not be read is looked for again"},
		Step{At: p.Storm.Recheck, Reason: CooldownEnds, Text: StormEnds})
	for i := range f.Nodes {
		is := nodeTarget(f, p, i)
		c.Next = sooner(c.Next, Step{At: is.Next.At, Reason: is.Next.Reason, Target: is.Ref.String(), Text: is.Ref.String() + ": " + is.Next.Text})
		c.Targets = append(c.Targets, is)
	}
	return c
}

// nodeLimit is the threshold that counts, as the spec has it.
func nodeLimit(f *nodes.Facts) string {
	switch {
	case f.MinHealthy != "" && f.MaxUnhealthy != "":
		return "minHealthy " + f.MinHealthy + " and maxUnhealthy " + f.MaxUnhealthy
	case f.MaxUnhealthy != "":
		return "maxUnhealthy " + f.MaxUnhealthy
	default:
		return "minHealthy " + cmp.Or(f.MinHealthy, budget.DefaultMinHealthy)
	}
}

// sooner is the one of two steps that comes first; one at no time never comes.
func sooner(a, b Step) Step {
	switch {
	case a.At.IsZero() && b.At.IsZero():
		return Step{}
	case a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At):
		return b
	default:
		return a
	}
}

// nodeTarget is what there is to say of one node.
func nodeTarget(f *nodes.Facts, p *nodes.Plan, i int) Target {
	n, d := &f.Nodes[i], &p.Decisions[i]
	is := Target{
		Ref: Ref{Kind: "Node", Name: n.Name}, Node: n.Name, State: d.Verdict.State, Verdict: d.Verdict.State.String(),
		Findings: Findings(d.Verdict, f.Now), Class: d.Class, StartsNow: d.Starts(), Requests: underway(n), InFlight: d.InFlight,
		InFlightSince: underwaySince(n), Action: nodeWould(f, d), Act: nodeAct(f, d), Report: nodeAnswer(f, n, d),
	}
	if n.Machine.There() {
		is.Machine = &Ref{Kind: "Machine", Namespace: n.Machine.Namespace, Name: n.Machine.Name}
	}
	if d.Would >= 0 {
		is.Remediator = f.Templates[d.Would].Kind
	}
	switch {
	case !n.Exists: // it is not judged any more
		is.State, is.Verdict = health.Unknown, health.Unknown.String()
		is.Findings = []Finding{{Reason: health.NodeDeleted, Text: nodeDeleted(n.Name), Observed: nodeDeleted(n.Name), Expired: true}}
	case d.Left:
		is.Skipped = TerminatingText
	}
	for _, b := range d.Blockers {
		if !b.Reason.Silent() {
			is.Blockers = append(is.Blockers, NodeBlocker(f, p, n.Name, b))
		}
	}
	is.Next = nodeNext(f, n, d, &is)
	return is
}

// underway are the requests for n: those of the check, and then others'.
func underway(n *nodes.Node) []Ref {
	var refs []Ref
	add := func(r nodes.Ref) {
		if ref := (Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	for j := range n.Requests {
		add(n.Requests[j].Ref)
	}
	for _, unseen := range n.Unseen {
		add(unseen.Ref)
	}
	for _, other := range slices.Concat(n.Orphaned, n.Others) {
		add(other.Ref)
	}
	return refs
}

// underwaySince is since when the check remediates n; zero if it does not.
func underwaySince(n *nodes.Node) time.Time {
	var first time.Time
	for j := range n.Requests {
		first = health.Earliest(first, n.Requests[j].Started)
	}
	for _, unseen := range n.Unseen {
		first = health.Earliest(first, unseen.Started)
	}
	return first
}

// nodeWould says what is done about a node next, once nothing blocks it and nothing is waited for.
func nodeWould(f *nodes.Facts, d *nodes.Decision) string {
	if d.Would >= 0 {
		return "makes a " + f.Templates[d.Would].String()
	}
	switch d.Nothing {
	case nodes.NodeGone:
		return "does nothing: the node is gone"
	case nodes.NoTemplate:
		return "does nothing: the check names no template"
	case nodes.NotSelected:
		return "does nothing: the check does not select the node any more"
	case nodes.NoTemplateLeft:
		return "does nothing more: no template is left to try"
	}
	return "does nothing more: no template follows " + f.Templates[len(f.Templates)-1].String()
}

// nodeAct is what is done about a node next, for programs.
func nodeAct(f *nodes.Facts, d *nodes.Decision) Act {
	if d.Would < 0 {
		return Act{Kind: NoAct}
	}
	t := &f.Templates[d.Would].Ref
	return Act{CreateRequest, Ref{Kind: t.Kind, Namespace: t.Namespace, Name: t.Name}}
}

// nodeAnswer is what the escalation and the remediators say of a node.
func nodeAnswer(f *nodes.Facts, n *nodes.Node, d *nodes.Decision) string {
	var says []string
	add := func(text string) {
		if text = strings.TrimSuffix(text, "."); text != "" {
			says = append(says, text)
		}
	}
	add(EscalationText(f, d.GaveUp))
	if len(n.Requests)+len(n.Gone) > 0 && len(d.End) == 0 {
		add(answerText(f, d.Answer))
	}
	add(fateOfRequests(f, n, d))
	if d.Missing && len(n.Requests)+len(n.Unseen) == 0 {
		add("A remediation took the node away, and no new one has come in its place")
	}
	for j := range n.Requests {
		for _, text := range requestSays(&n.Requests[j]) {
			add(text)
		}
	}
	return strings.Join(says, ". ")
}

// fateOfRequests says what becomes of the requests for n, and why; nothing while they go on.
func fateOfRequests(f *nodes.Facts, n *nodes.Node, d *nodes.Decision) string {
	switch {
	case len(n.Unseen) > 0:
		return "What has become of its requests cannot be read"
	case len(d.End) > 0 && !n.Exists:
		return "The node is gone, its requests are deleted"
	case len(d.End) > 0 && d.Verdict.State == health.Unhealthy:
		return "The remediation has succeeded, and the node has become unhealthy once more: its request is deleted, and it begins anew"
	case len(d.End) > 0:
		return "The node is healthy, its requests are deleted"
	case d.Delayed && f.HealthyDelay < 0:
		return "The node is healthy, its requests are kept until a person confirms that"
	case d.Delayed:
		return "The node is healthy, its requests are kept for the healthy delay of " + f.HealthyDelay.String()
	}
	return ""
}

// requestSays is what a request, and its remediator, say.
func requestSays(r *nodes.Request) []string {
	name := r.Ref.String()
	var says []string
	if !r.Deleting.IsZero() {
		says = append(says, name+" is being deleted")
	}
	for _, c := range r.Says {
		text := fmt.Sprintf("%s says %s=%s", name, c.Type, c.Status)
		if c.Reason != "" {
			text += " (" + c.Reason + ")"
		}
		if c.Message != "" {
			text += ": " + c.Message
		}
		says = append(says, text)
	}
	return says
}

// nodeNext is the next thing that happens to n, or what a person has to do.
func nodeNext(f *nodes.Facts, n *nodes.Node, d *nodes.Decision, is *Target) Step {
	next, remediated := nodeMoment(f, d.Next), len(n.Requests)+len(n.Unseen) > 0
	switch {
	case is.StartsNow:
		return Step{At: f.Now, Reason: RemediationStarts, Text: "kubemend " + is.Action}
	case n.Exists && !n.Selected && !remediated:
		return Step{}
	case d.Verdict.State == health.Pending:
		return comesDue(d, is)
	case d.Verdict.State == health.Unhealthy && len(is.Blockers) > 0:
		return unblocked(next, is)
	case !next.At.IsZero():
		return next
	case d.Delayed:
		return Step{Reason: ConfirmationAwaited, Manual: true,
			Text: "annotate the node with " + nhcv1.ConfirmedHealthyAnnotation + " to confirm that it is healthy"}
	case d.Answer.NothingFollows():
		return Step{Reason: string(nodes.NoneFollows), Text: "delete its requests to have the remediation tried again", Manual: true}
	case len(d.End) > 0:
		return Step{Reason: RequestsDeleted, Text: "kubemend deletes its requests"}
	case d.Missing && !remediated:
		return Step{At: d.MissedSince.Add(controlplane.ReplacementPatience), Reason: NodeStaysAway, Text: "it counts no more"}
	case is.InFlight:
		return Step{Reason: RemediatorActs, Text: fmt.Sprintf("%s goes on; it is deleted when the node is healthy", is.Requests[0])}
	}
	return Step{}
}

// nodeMoment says what happens at m.
func nodeMoment(f *nodes.Facts, m nodes.Moment) Step {
	switch m.What {
	case nodes.DelayEnds:
		return Step{At: m.At, Reason: HealthyDelayEnds, Text: "the healthy delay is over, and its requests are deleted"}
	case nodes.NodeStaysAway:
		return Step{At: m.At, Reason: NodeStaysAway, Text: "the node has stayed away for too long, and its request is deleted"}
	case nodes.AskedAgain:
		return Step{At: m.At, Reason: ReadAgain, Text: "it is checked again"}
	case nodes.StepExpires:
		text := f.Templates[m.Expiring].String() + " is given up unless the node is back, and "
		if m.Step < 0 {
			return Step{At: m.At, Reason: StepTimesOut, Text: text + "no template is left to try"}
		}
		return Step{At: m.At, Reason: StepTimesOut, Text: text + f.Templates[m.Step].String() + " begins"}
	}
	return Step{}
}

// comesDue is what happens when the timeout of a node expires.
func comesDue(d *nodes.Decision, is *Target) Step {
	next := Step{At: d.Verdict.Recheck, Reason: TimeoutExpires, Text: countsThen(is)}
	if is.InFlight {
		next.Text += ", and its remediation goes on"
		return next
	}
	for _, b := range is.Blockers {
		switch {
		case !b.Until.IsZero() && !b.Until.After(next.At):
		case b.Reason == MissingPermission:
			next.Text += ActionNotReadable
			return next
		default:
			next.Text += stillBlocked(&b)
			return next
		}
	}
	next.Text += ", and kubemend " + is.Action
	return next
}

// unblocked is what ends the blockers of a node that is unhealthy. Where a person has to do something first, time does nothing.
func unblocked(next Step, is *Target) Step {
	var over Step
	for _, b := range is.Blockers {
		if b.Fix != "" {
			return Step{Reason: b.Reason, Text: b.Fix, Manual: true}
		}
		over = sooner(over, Step{At: b.Until, Reason: b.Reason, Text: b.EndsWhen})
	}
	if first := is.Blockers[0]; over.At.IsZero() {
		return meanwhile(next, first)
	}
	if len(is.Blockers) == 1 {
		over.Text += ", and kubemend " + is.Action
	}
	return over
}

// meanwhile is what happens while b, which time does not end, blocks a remediation.
func meanwhile(next Step, b Blocker) Step {
	text := resumes(&b)
	if next.At.IsZero() {
		return Step{Reason: b.Reason, Text: text}
	}
	return Step{At: next.At, Reason: next.Reason, Text: next.Text + "; " + text}
}
