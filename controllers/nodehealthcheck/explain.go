package nodehealthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// NodeCheck describes a NodeHealthCheck for kubectl mend explain: the findings on its nodes, what kubemend will do, and what blocks that.
//
// Mode is Acting, Paused for pause requests, or None if the check is disabled. The caller knows whether kubemend acts on the kind.
func NodeCheck(f *Facts, p *Plan) *explain.Check {
	c := &explain.Check{Check: cliv1.Check{
		Reference: explain.Ref{Kind: "NodeHealthCheck", Name: f.Check.Name}, Mode: cliv1.ModeActing,
		Limits: cliv1.Limits{Spec: nodeLimit(f)}, Conditions: Conditions(f, p),
	}}
	for _, cond := range c.Conditions {
		if cond.Type == nhcv1.RemediationAllowedCondition && cond.Reason != nhcv1.AllowedReason {
			c.Reason, c.Message = cond.Reason, cond.Message
		}
	}
	switch phase, why := Phase(c.Conditions, f.Check.Spec.PauseRequests, -1); phase {
	case nhcv1.PhaseDisabled:
		c.Mode, c.ModeMessage = cliv1.ModeNone, why
	case nhcv1.PhasePaused:
		c.Mode, c.ModeMessage = cliv1.ModePaused, why
	}
	for _, trouble := range f.Trouble {
		if !slices.Contains(c.ReadErrors, trouble.Error()) {
			c.ReadErrors = append(c.ReadErrors, trouble.Error())
		}
	}
	c.SetLimits(p.Limits, p.Grant.Remaining)
	if len(f.Awaited) > 0 {
		return c
	}
	c.Counts = p.Population
	c.Next = explain.Sooner(explain.Step{At: f.Retry, Reason: explain.ReadAgain,
		Text: "kubemend tries again to read what it could not read"},
		explain.Step{At: p.Storm.Recheck, Reason: explain.CooldownEnds, Text: StormEnds})
	for _, decision := range p.Decisions {
		target := nodeTarget(f, decision)
		name, next := target.String(), target.Next
		c.Next = explain.Sooner(c.Next, explain.Step{At: next.At, Reason: next.Reason, Target: target.Name, Text: name + ": " + next.Text})
		c.Targets = append(c.Targets, target)
	}
	return c
}

// nodeLimit returns the threshold as it is written in the spec, or the default.
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

// nodeTarget describes one node.
func nodeTarget(f *Facts, d *Decision) explain.Target {
	requests, since := d.underway()
	target := explain.Target{Class: d.Class, Target: cliv1.Target{
		Reference: explain.Ref{Kind: "Node", Name: d.Name}, Node: d.Name, State: explain.States[d.Verdict.State], StartsNow: d.starts(),
		Findings: explain.Findings(d.Verdict, f.Now),
		Requests: requests, InFlight: d.InFlight, InFlightSince: cliv1.Moment(since), Message: d.Report(f),
		Action: &cliv1.Action{Kind: cliv1.NoAction, Message: d.Action(f)},
	}}
	if d.Machine.there() {
		target.Machine = new(d.Machine.ref())
	}
	if d.Would >= 0 {
		template := f.Templates[d.Would].ref()
		target.Remediator = template.Kind
		target.Action.Kind = cliv1.CreateRemediationRequest
		target.Action.Target = &template
	}
	switch {
	case !d.exists(): // there is no verdict
		deleted := health.Finding{Reason: health.NodeDeleted, Node: d.Name}.Text()
		target.State = cliv1.StateUnknown
		target.Findings = []explain.Finding{{Reason: string(health.NodeDeleted), Message: deleted, Expired: true, Observed: deleted}}
	case d.Left:
		target.State, target.Skipped = cliv1.StateSkipped, TerminatingText
	}
	for _, b := range d.Blockers {
		if b.Text != "" {
			target.Blockers = append(target.Blockers, b.Blocker)
		}
	}
	target.Next = nodeNext(f, d, &target)
	return target
}

// underway returns the requests for n, first those of the check, and since when the check remediates n; zero if it does not.
func (n *Node) underway() (refs []explain.Ref, since time.Time) {
	for j := range n.Requests {
		refs, since = append(refs, n.Requests[j].ref()), health.Earliest(since, n.Requests[j].started())
	}
	for j := range n.Unseen {
		refs, since = append(refs, n.Unseen[j].ref()), health.Earliest(since, n.Unseen[j].Started.Time)
	}
	for _, other := range slices.Concat(n.Orphaned, n.Others) {
		if ref := RefOf(other); !slices.Contains(refs, ref) {
			refs = append(refs, ref)
		}
	}
	return refs, since
}

// nodeNext returns the next thing that happens to the node, or that a user has to do.
func nodeNext(f *Facts, d *Decision, target *explain.Target) explain.Step {
	switch next := d.Next; {
	case target.StartsNow:
		return explain.Step{At: f.Now, Reason: explain.RemediationStarts, Text: "kubemend " + target.Action.Message}
	case d.exists() && !d.Selected && !d.remediated():
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
	case d.ends():
		return explain.Step{Reason: explain.RequestsDeleted, Text: "kubemend deletes its requests"}
	case d.Missing && !d.remediated():
		return explain.Step{At: d.MissedSince.Add(controlplane.ReplacementPatience), Reason: explain.NodeStaysAway,
			Text: "the limits ignore it"}
	case target.InFlight:
		text := fmt.Sprintf("%s goes on; it is deleted when the node is healthy", target.Requests[0])
		return explain.Step{Reason: explain.RemediatorActs, Text: text}
	}
	return explain.Step{}
}

// comesDue returns what happens when the timeout of a pending node expires.
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

// unblocked returns what ends the blockers of an unhealthy node. A blocker that a user has to end comes before blockers that end anyway.
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
		if next.At.IsZero() {
			return explain.Step{Reason: first.Reason, Text: explain.Resumes(&first)}
		}
		return explain.Step{At: next.At, Reason: next.Reason, Text: next.Text + "; " + explain.Resumes(&first)}
	}
	if len(target.Blockers) == 1 {
		over.Text += ", and kubemend " + target.Action.Message
	}
	return over
}

// TerminatingText says why kubemend does nothing about a terminating node, in the words of medik8s.
const TerminatingText = "it is terminating and will be handled by MHC"

// Report returns what the escalation and the remediators say about the node: sentences, without a full stop at the end.
func (d *Decision) Report(f *Facts) string {
	var sentences []string
	add := func(text string) {
		if text = strings.TrimSuffix(text, "."); text != "" {
			sentences = append(sentences, text)
		}
	}
	add(EscalationText(f, d.GaveUp))
	if (len(d.Requests)+len(d.Gone) > 0 || d.GaveUp.Reason != "" || d.Answer.Reason == escalation.NotMade) && !d.ends() {
		add(EscalationText(f, d.Answer))
	}
	add(d.fateOfRequests(f))
	if d.Missing && !d.remediated() {
		add("A remediation has deleted the node, and no new node has replaced it yet")
	}
	for j := range d.Requests {
		for _, text := range d.Requests[j].report() {
			add(text)
		}
	}
	return strings.Join(sentences, ". ")
}

// fateOfRequests says what happens to the requests for the node, and why; empty while they go on.
func (d *Decision) fateOfRequests(f *Facts) string {
	switch {
	case len(d.Unseen) > 0:
		return "Its requests cannot be read, so their progress is not known"
	case d.ends() && !d.exists():
		return "The node is gone, its requests are deleted"
	case d.ends() && d.Verdict.State == health.Unhealthy:
		return "The node is unhealthy again after a successful remediation: kubemend deletes the request and makes a new one"
	case d.ends():
		return "The node is healthy, its requests are deleted"
	case d.Delayed && f.healthyDelay() < 0:
		return "The node is healthy, its requests are kept until a person confirms that"
	case d.Delayed:
		return "The node is healthy, its requests are kept for the healthy delay of " + f.healthyDelay().String()
	}
	return ""
}

func (r *Request) report() []string {
	name := r.ref().String()
	var texts []string
	if !r.Deleting().IsZero() {
		texts = append(texts, name+" is being deleted")
	}
	for _, kind := range []string{nhcv1.ProcessingCondition, nhcv1.SucceededCondition, nhcv1.NodeDeletionExpectedCondition} {
		cond := escalation.Condition(r.Object, kind)
		if cond == nil {
			continue
		}
		text := fmt.Sprintf("%s says %s=%s", name, kind, cond["status"])
		if reason, _ := cond["reason"].(string); reason != "" {
			text += " (" + reason + ")"
		}
		if message, _ := cond["message"].(string); message != "" {
			text += ": " + message
		}
		texts = append(texts, text)
	}
	return texts
}

// escalationTexts has a text for each reason. {step} is the template, {before} the previous one, {until} when the timeout expires, and
// {timeout} its length.
var escalationTexts = map[string]string{
	escalation.FirstStep:        "{step} is the first step",
	escalation.NextStep:         "{before} was given up, {step} is next",
	passedOver:                  "{before} cannot be used for this node, {step} is next",
	noneFits:                    "None of the remaining templates can be used for this node",
	escalation.Vanished:         "The request of {step} was deleted, kubemend makes it again",
	escalation.NotMade:          "The request of {step} could not be made, kubemend tries again",
	escalation.InProgress:       "Waiting for {step}{until}",
	escalation.AwaitingNode:     "{step} says that it has succeeded, waiting for the node{until}",
	escalation.AwaitingDeletion: "The request of {step} is being deleted, kubemend makes a new one when it is gone",
	escalation.ToldToStop:       "{step} was notified to stop, though not by this check; delete its request to have it tried again",
	escalation.Failed:           "{step} says that it has failed",
	escalation.Stopped: fmt.Sprintf("{step} stopped %s ago or longer and does not say whether it succeeded",
		escalation.StoppedFor),
	escalation.TimedOut:       "{step} did not bring the node back within {timeout}",
	escalation.NeverMade:      "{step} could not be requested within {timeout}",
	escalation.NotNotified:    "{step} was given up, but its remediator has not been notified to stop",
	escalation.NoTemplateLeft: "{step} was given up, and no template is left to try",
}

var singleTexts = map[string]string{
	escalation.Failed:     "{step} says that it has failed, and the check names no other template",
	escalation.Stopped:    "{step} has stopped, and the check names no other template",
	escalation.InProgress: "Waiting for {step}, which has no timeout",
}

// EscalationText says what the escalation has decided, and why; empty if there is no decision.
func EscalationText(f *Facts, d escalation.Decision) string {
	text, decided := escalationTexts[d.Reason]
	switch {
	case !decided:
		return ""
	case len(f.Templates) == 0:
		return "The check names no template"
	}
	if single, found := singleTexts[d.Reason]; found && d.Do == escalation.Wait && f.single() {
		text = single
	}
	template, until := &f.Templates[d.Step], ""
	if !d.Expires.IsZero() {
		until = " until " + d.Expires.UTC().Format(time.RFC3339)
	}
	return strings.NewReplacer("{step}", template.String(), "{before}", f.Templates[max(d.Step-1, 0)].String(), "{until}", until,
		"{timeout}", template.timeout().String()).Replace(text)
}
