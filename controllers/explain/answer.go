package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Answer is the first line of a page: the state of a target, what is done about it, and the reason with its numbers. It is made of the values of a
// decision, and of none of its sentences.
type Answer struct {
	State  AnswerState
	Action AnswerAction
	// Reason is a reason of the API, or the object that remediates.
	Reason string
	// Detail are the numbers or the name that belong to Reason.
	Detail string
	// Since is since when Reason is so, Until when time alone ends it; zero if it is not known, or time does not.
	Since, Until time.Time
	// Counts is when a pending target counts as unhealthy unless Unless.
	Counts time.Time
	Unless string
}

// AnswerState is the state of a target in one word.
type AnswerState string

// AnswerAction is what is done about a target.
type AnswerAction string

// The states of answers.
const (
	IsHealthy   AnswerState = "HEALTHY"
	IsUnhealthy AnswerState = "UNHEALTHY"
	IsPending   AnswerState = "PENDING"
	IsStarting  AnswerState = "STARTING"
	IsUnknown   AnswerState = "UNKNOWN"
	IsSkipped   AnswerState = "SKIPPED"
	NotChecked  AnswerState = "NOT CHECKED"
	InProgress  AnswerState = "IN PROGRESS"
	IsBlocked   AnswerState = "BLOCKED"
)

// The actions of answers.
const (
	BeingRemediated     AnswerAction = "BEING REMEDIATED"
	NotRemediated       AnswerAction = "NOT REMEDIATED"
	NotInCharge         AnswerAction = "NOT REMEDIATED BY KUBEMEND"
	StartsNow           AnswerAction = "REMEDIATION STARTS NOW"
	RemediationEnds     AnswerAction = "REMEDIATION ENDS"
	PutOffByOwner       AnswerAction = "PUT OFF BY ITS OWNER"
	IsBeingDeleted      AnswerAction = "BEING DELETED"
	ActionUnknown       AnswerAction = "ACTION UNKNOWN"
	KeptPoweredOff      AnswerAction = "HOST KEPT POWERED OFF"
	AboutToBePoweredOff AnswerAction = "HOST ABOUT TO BE POWERED OFF"
)

// Text is the answer in one line.
func (a Answer) Text(at Moment) string {
	text := string(a.State)
	if a.Action != "" {
		text += ", " + string(a.Action)
	}
	why := a.Reason
	switch {
	case why == "":
		why = a.Detail
	case a.Detail != "":
		why += " (" + a.Detail + ")"
	}
	if !a.Since.IsZero() {
		why += " since " + at(a.Since)
	}
	if !a.Until.IsZero() {
		why += ", until " + at(a.Until)
	}
	if !a.Counts.IsZero() {
		why = strings.TrimPrefix(why+", unhealthy at "+at(a.Counts)+" unless "+a.Unless, ", ")
	}
	if why != "" {
		text += ": " + why
	}
	return text
}

// AnswerOn is the answer about t, a target of c. Remediations are those of its host.
func (c *Check) AnswerOn(t *Target, remediations []Remediation) Answer {
	switch {
	case t.Skipped != "":
		return Answer{State: IsSkipped, Detail: Clause(t.Skipped)}
	case t.State == health.Healthy && t.InFlight:
		return Answer{State: IsHealthy, Action: RemediationEnds, Reason: t.remediator(), Detail: t.stepOf(remediations)}
	case t.State == health.Healthy:
		return Answer{State: IsHealthy}
	case t.State == health.Pending:
		return c.awaited(t, IsPending)
	case t.State == health.Starting:
		return c.awaited(t, IsStarting)
	case t.BlockedBy(MachineBeingDeleted):
		return Answer{State: stateOf(t), Action: IsBeingDeleted}
	case t.State == health.Unknown:
		return c.unknown(t)
	}
	return c.unhealthy(t, remediations)
}

func stateOf(t *Target) AnswerState {
	if t.State == health.Unknown {
		return IsUnknown
	}
	return IsUnhealthy
}

// unhealthy is the answer about an unhealthy target.
func (c *Check) unhealthy(t *Target, remediations []Remediation) Answer {
	if t.InFlight || t.StartsNow {
		return c.remediated(t, remediations)
	}
	a := Answer{State: IsUnhealthy, Action: NotRemediated}
	switch {
	case c.ActsElsewhere():
		a.Action, a.Detail = NotInCharge, c.Mode.actor()+" acts on it"
	case c.Mode == Unknown && t.BlockedBy(NoManager):
		a.Action, a.Reason = ActionUnknown, NoManager
	case len(t.Blockers) == 1 && t.BlockedBy(MissingPermission):
		a.Action, a.Reason = ActionUnknown, MissingPermission
	default:
		c.blocked(&a, t.Blockers)
	}
	return a
}

// remediated is the answer about an unhealthy target whose remediation is in flight, or starts.
func (c *Check) remediated(t *Target, remediations []Remediation) Answer {
	a := Answer{State: IsUnhealthy, Action: NotRemediated}
	switch {
	case t.Refused:
		a.Reason, a.Detail = t.OwnerReason, t.Owner
	case t.PutOff:
		a.Action, a.Reason, a.Detail = PutOffByOwner, t.OwnerReason, t.Owner
	case t.InFlight && t.BlockedBy(NoManager) && c.Mode != Unknown:
		a.Reason, a.Detail = NoManager, t.remediator()
	case t.Ownerless:
		a.Reason = NoOwner
	case t.InFlight:
		a.Action, a.Reason, a.Detail = BeingRemediated, t.remediator(), t.stepOf(remediations)
	default:
		a.Action, a.Reason = StartsNow, t.Remediator
	}
	return a
}

// unknown is the answer about a target that cannot be judged: what keeps it from being judged goes before what keeps kubemend from acting.
func (c *Check) unknown(t *Target) Answer {
	a := Answer{State: IsUnknown}
	first := slices.IndexFunc(t.Blockers, func(b Blocker) bool { return b.Reason != NotActing && b.Reason != mendv1.OverlapReason })
	c.blocked(&a, t.Blockers[max(first, 0):])
	return a
}

// blocked is the first of blockers with its numbers.
func (c *Check) blocked(a *Answer, blockers []Blocker) {
	if len(blockers) == 0 {
		return
	}
	b := &blockers[0]
	a.Reason, a.Detail, a.Until = b.Reason, b.Detail, b.Until
	switch {
	case b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason: // of both kinds of checks
		a.Detail = c.Numbers()
	case b.Reason == mendv1.UnreachableReason:
		a.Since = c.NodesUnknownSince
	case b.Cause != "" && b.Reason != MissingPermission:
		a.Reason = b.Cause
	}
}

// awaited is when t counts as unhealthy: when the first of its timeouts expires.
func (c *Check) awaited(t *Target, state AnswerState) Answer {
	a := Answer{State: state}
	if first := firstToExpire(t.Findings); first != nil {
		a.Counts, a.Unless = first.Expires, first.unless()
		return a
	}
	if t.BlockedBy(AwaitsClusterAPI) {
		a.Reason = AwaitsClusterAPI
		return a
	}
	a.Detail = "no start-up timeout"
	return a
}

// firstToExpire is the finding whose timeout expires first; nil if none is running.
func firstToExpire(findings []Finding) *Finding {
	var first *Finding
	for i := range findings {
		if f := &findings[i]; !f.Expired && (first == nil || f.Expires.Before(first.Expires)) {
			first = f
		}
	}
	return first
}

// unless is what keeps f from counting, as a clause.
func (f *Finding) unless() string {
	switch {
	case f.Reason == health.NodeStartup:
		return "its node appears"
	case f.Signal.Type == "Ready":
		return "Ready"
	case f.Signal.Type != "":
		return f.Signal.Type + " changes"
	}
	return "it recovers"
}

// remediator is what remediates t: a request, or its owner.
func (t *Target) remediator() string {
	if len(t.Requests) > 0 && !t.OwnerAsked {
		return t.Requests[0].String()
	}
	return t.Owner
}

// stepOf is the step of the remediation of t, or what its owner reports.
func (t *Target) stepOf(remediations []Remediation) string {
	if t.OwnerAsked || len(t.Requests) == 0 {
		return t.OwnerReason
	}
	for i := range remediations {
		if remediations[i].Ref == t.Requests[0] {
			return remediations[i].Reason
		}
	}
	return ""
}

// NotInCharge is that an older check acts on t.
func (t *Target) NotInCharge() string {
	for i := range t.Blockers {
		if b := &t.Blockers[i]; b.Reason == mendv1.OverlapReason {
			return "not in charge (" + b.Detail + ")"
		}
	}
	return ""
}

// Same reports whether s is another, of any target of the same check.
func (s Step) Same(other Step) bool {
	_, after, named := strings.Cut(other.Text, ": ")
	return s == other || s.At.Equal(other.At) && s.Manual == other.Manual && named && after == s.Text
}

// Answer is the answer about r.
func (r *Remediation) Answer() Answer {
	a := Answer{State: InProgress, Reason: r.Reason}
	if r.Attempts > 0 && r.Attempt > 0 {
		a.Detail = fmt.Sprintf("attempt %d of %d", r.Attempt, r.Attempts)
	}
	switch state := powercycle.State(r.State); {
	case state.Final():
		a.State, a.Reason = AnswerState(strings.ToUpper(finals[state])), ""
		if r.Reason != r.State {
			a.Reason = r.Reason
		}
	case r.Reason == NoManager, r.Reason == NotServed, len(r.Blockers) > 0 && !r.Acts:
		a.State = IsBlocked
	}
	return a
}

// finals are the final states of a remediation as words.
var finals = map[powercycle.State]string{
	powercycle.Succeeded: "succeeded", powercycle.OwnerRequested: "owner requested", powercycle.Failed: "failed", powercycle.Ended: "ended",
	powercycle.Stopped: "timed out by its check",
}
