package explain

import (
	"cmp"
	"slices"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Answer is the result about an object, made of a decision's values: a page prints it as its first line, programs read Phase and Reason.
type Answer struct {
	State  AnswerState
	Action AnswerAction
	// Reason is a reason of the API or of this package; empty if there is none.
	Reason string
	// Implied reports that the rest of the line makes Reason obvious.
	Implied bool
	// By is what remediates the object. Detail has the numbers or the name that belong to Reason.
	By, Detail string
	// Since is since when Reason holds; zero if that is not known. Until is when it ends by time alone; zero if it does not.
	Since, Until time.Time
	// Expires is when a pending target counts as unhealthy, unless Unless happens.
	Expires time.Time
	Unless  string
	// Target is the target of a check that the answer is about. Rest has the counts of all targets of the check.
	Target, Rest string

	// ofCheck reports that Reason holds for all targets of the check.
	ofCheck bool
}

// AnswerState is the state of an object in a word or two, and the phase that programs read. If it is IsUnhealthy and a remediation is in
// progress, the action decides the phase.
type AnswerState struct {
	text  string
	phase cliv1.Phase
}

// AnswerAction is what is done about a target.
type AnswerAction string

// The states of answers.
var (
	IsHealthy   = AnswerState{"HEALTHY", cliv1.Healthy}
	IsUnhealthy = AnswerState{"UNHEALTHY", cliv1.Blocked}
	IsPending   = AnswerState{"PENDING", cliv1.Pending}
	IsStarting  = AnswerState{"STARTING", cliv1.Pending}
	IsUnknown   = AnswerState{"UNKNOWN", cliv1.Unknown}
	IsSkipped   = AnswerState{"SKIPPED", cliv1.NotChecked}
	NotChecked  = AnswerState{"NOT CHECKED", cliv1.NotChecked}
	InProgress  = AnswerState{"IN PROGRESS", cliv1.Remediating}
	IsBlocked   = AnswerState{"BLOCKED", cliv1.Blocked}

	// Of an owner of machines: all its machines have a Ready node, or not. Blocked means that a person has to do something.
	CapacityComplete = AnswerState{"COMPLETE", cliv1.Healthy}
	CapacityMissing  = AnswerState{"CAPACITY MISSING", cliv1.Remediating}
	CapacityBlocked  = AnswerState{"CAPACITY BLOCKED", cliv1.Blocked}
	// Of a policy or an override.
	IsBlocking    = AnswerState{"BLOCKING", cliv1.Blocked}
	BlocksNothing = AnswerState{"BLOCKS NOTHING", cliv1.Healthy}
	// Of a machine that does not exist any more.
	IsReplaced    = AnswerState{"REPLACED", cliv1.Healthy}
	IsNotReplaced = AnswerState{"NOT REPLACED", cliv1.NotChecked}
)

// finals are the states of answers about power cycles that have ended.
var finals = map[powercycle.State]AnswerState{
	powercycle.Succeeded: {"SUCCEEDED", cliv1.Healthy}, powercycle.OwnerRequested: {"OWNER REQUESTED", cliv1.Remediating},
	powercycle.Failed: {"FAILED", cliv1.Blocked}, powercycle.Ended: {"ENDED", cliv1.Remediating},
	powercycle.Stopped: {"TIMED OUT BY ITS CHECK", cliv1.Remediating},
}

// The actions of answers.
const (
	BeingRemediated     AnswerAction = "BEING REMEDIATED"
	NotRemediated       AnswerAction = "NOT REMEDIATED"
	RemediationBlocked  AnswerAction = "REMEDIATION BLOCKED"
	NotInCharge         AnswerAction = "NOT REMEDIATED BY KUBEMEND"
	StartsNow           AnswerAction = "REMEDIATION STARTS NOW"
	RemediationEnds     AnswerAction = "REMEDIATION ENDS"
	PutOffByOwner       AnswerAction = "PUT OFF BY ITS OWNER"
	IsBeingDeleted      AnswerAction = "BEING DELETED"
	ActionUnknown       AnswerAction = "ACTION UNKNOWN"
	KeptPoweredOff      AnswerAction = "HOST KEPT POWERED OFF"
	AboutToBePoweredOff AnswerAction = "HOST ABOUT TO BE POWERED OFF"
)

// Phase returns State and Action as programs read them.
func (a Answer) Phase() cliv1.Phase {
	if a.State == IsUnhealthy && (a.Action == BeingRemediated || a.Action == StartsNow || a.Action == IsBeingDeleted) {
		return cliv1.Remediating
	}
	return a.State.phase
}

// Text returns the answer in one line.
func (a Answer) Text(at Moment) string {
	text := a.State.text
	if a.Action != "" {
		text += ", " + string(a.Action)
	}
	why := joined(": ", a.Target, a.why(at))
	if why = joined("; ", why, a.Rest); why != "" {
		text += ": " + why
	}
	return text
}

func (a Answer) why(at Moment) string {
	reason := a.Reason
	if a.Implied {
		reason = ""
	}
	why := cmp.Or(a.By, reason, a.Detail)
	if more := strings.TrimPrefix(joined("; ", a.By, reason, a.Detail), why); more != "" {
		why += " (" + strings.TrimPrefix(more, "; ") + ")"
	}
	if !a.Since.IsZero() {
		why += " since " + at(a.Since)
	}
	if !a.Until.IsZero() {
		why += ", until " + at(a.Until)
	}
	if !a.Expires.IsZero() {
		why = "unhealthy at " + at(a.Expires) + " unless " + a.Unless
	}
	return why
}

// AnswerOn returns the answer about t, a target of c. If no manager acts, the answer says so even for a healthy target.
func (c *Check) AnswerOn(t *Target) Answer {
	a := c.answerOn(t)
	if c.Next.Reason != NoManager || a.Action != "" || a.Phase() != cliv1.Healthy && a.Phase() != cliv1.Pending {
		return a
	}
	if a.Action = NotRemediated; c.Mode == cliv1.ModeUnknown {
		a.Action = ActionUnknown
	}
	if a.Reason == "" {
		a.Reason = NoManager
	} else {
		a.Rest = NoManager
	}
	return a
}

func (c *Check) answerOn(t *Target) Answer {
	switch {
	case t.Skipped != "":
		return Answer{State: IsSkipped, Reason: Skipped, Implied: true, Detail: Clause(t.Skipped)}
	case t.State == cliv1.StateHealthy && t.InFlight:
		a := Answer{State: IsHealthy, Action: RemediationEnds}
		t.remediatedBy(&a)
		return a
	case t.State == cliv1.StateHealthy:
		return Answer{State: IsHealthy}
	case t.State == cliv1.StatePending:
		return c.awaited(t, IsPending)
	case t.State == cliv1.StateStarting:
		return c.awaited(t, IsStarting)
	case t.BlockedBy(MachineBeingDeleted):
		a := Answer{State: IsUnhealthy, Action: IsBeingDeleted, Reason: MachineBeingDeleted, Implied: true}
		if t.State == cliv1.StateUnknown {
			a.State = IsUnknown
		}
		return a
	case t.State == cliv1.StateUnknown:
		return c.unknown(t)
	}
	return c.unhealthy(t)
}

func (c *Check) unhealthy(t *Target) Answer {
	if t.InFlight || t.StartsNow || t.BlockedBy(RemediationUnderWay) {
		return c.remediated(t)
	}
	a := Answer{State: IsUnhealthy, Action: NotRemediated}
	c.blocked(&a, t.Blockers)
	switch {
	case c.ActsElsewhere():
		a.Action, a.Implied, a.Detail, a.ofCheck = NotInCharge, true, c.Mode.InCharge()+" acts on it", true
	case c.Mode == cliv1.ModeUnknown && t.BlockedBy(NoManager):
		a = Answer{State: IsUnhealthy, Action: ActionUnknown, Reason: NoManager, ofCheck: true}
	case len(t.Blockers) == 1 && t.BlockedBy(MissingPermission):
		a.Action, a.Detail = ActionUnknown, ""
	}
	return a
}

func (c *Check) remediated(t *Target) Answer {
	a := Answer{State: IsUnhealthy, Action: NotRemediated}
	switch {
	case t.Refused:
		a.Reason, a.Detail = t.OwnerReason, t.Owner
	case t.Deferred:
		a.Action, a.Reason, a.Detail = PutOffByOwner, t.OwnerReason, t.Owner
	case t.InFlight && t.BlockedBy(NoManager) && c.Mode != cliv1.ModeUnknown:
		a.Reason, a.Detail = NoManager, t.remediator()
	case t.StartsNow && !t.InFlight:
		a.Action, a.By, a.Reason, a.Implied = StartsNow, t.Remediator, RemediationStarts, true
	default:
		a.Action = BeingRemediated
		t.remediatedBy(&a)
		if t.Cycle == nil && t.Next.Manual && c.Mode != cliv1.ModeUnknown || t.Cycle != nil && t.Cycle.Answer().Phase() == cliv1.Blocked {
			a.Action, a.Implied, a.Detail = RemediationBlocked, false, ""
		}
	}
	return a
}

// remediatedBy sets in a what remediates t, and the current step or what the owner reports.
func (t *Target) remediatedBy(a *Answer) {
	a.By = t.remediator()
	switch {
	case t.Cycle != nil:
		a.Reason = t.Cycle.Reason
		if step := t.Cycle.stepInCourse(); step != "" {
			a.Implied, a.Detail = true, "step "+step
		}
	case t.OwnerAsked && t.OwnerReason != "":
		a.Reason = t.OwnerReason
	case t.InFlight:
		a.Reason, a.Implied = t.Next.Reason, true
	default:
		a.Reason, a.Implied = RemediationUnderWay, true
	}
}

// unknown returns the answer about a target that cannot be judged. First comes what prevents the judgement, then what prevents an action.
func (c *Check) unknown(t *Target) Answer {
	a := Answer{State: IsUnknown}
	first := slices.IndexFunc(t.Blockers, func(b Blocker) bool { return b.Reason != NotActing && b.Reason != mendv1.OverlapReason })
	c.blocked(&a, t.Blockers[max(first, 0):])
	return a
}

func (c *Check) blocked(a *Answer, blockers []Blocker) {
	if len(blockers) == 0 {
		return
	}
	b := &blockers[0]
	a.Reason, a.Detail, a.Until, a.ofCheck = b.Reason, b.Detail, b.Until, c.PartOf(b) != OfTarget
	switch {
	case b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && c.NodesUnknown != nil && !c.NodesNotReadable():
		a.Reason, a.Detail, a.Since = c.NodesUnknown.Reason, "", c.unreachableSince() // the limit counts nodes that cannot be read
	case b.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason: // both kinds of checks have this reason
		a.Detail = c.Numbers()
	case b.Reason == mendv1.UnreachableReason:
		a.Since = c.unreachableSince()
	case b.Cause != "" && b.Reason != MissingPermission && b.Reason != ClusterSilent:
		a.Reason = b.Cause
	}
}

// awaited returns the answer about a target that is pending or starting: when its first timeout expires.
func (c *Check) awaited(t *Target, state AnswerState) Answer {
	a := Answer{State: state}
	if first := firstToExpire(t.Findings); first != nil {
		a.Reason, a.Implied, a.Expires, a.Unless = first.Reason, true, first.Expires.Time, first.Unless
		return a
	}
	switch {
	case t.BlockedBy(AwaitsClusterAPI):
		a.Reason = AwaitsClusterAPI
	case t.BlockedBy(WithinTimeout) && !t.Blocker(WithinTimeout).Until.IsZero():
		a.Reason, a.Implied, a.Expires, a.Unless = WithinTimeout, true, t.Blocker(WithinTimeout).Until, "it recovers"
	default:
		a.Detail = "no start-up timeout"
	}
	return a
}

// firstToExpire returns the finding whose timeout expires first; nil if none is running.
func firstToExpire(findings []Finding) *Finding {
	var first *Finding
	for i := range findings {
		if f := &findings[i]; !f.Expired && (first == nil || f.Expires.Before(first.Expires)) {
			first = f
		}
	}
	return first
}

// unless returns what would keep f from counting, as a clause.
func unless(f *health.Finding) string {
	text := "it recovers"
	switch {
	case f.Reason == health.NodeStartup:
		text = "its node appears"
	case f.Signal.Type == "Ready":
		text = "Ready"
	case f.Signal.Type != "":
		text = f.Signal.Type + " changes"
	}
	if late := f.Signal.Late; late == health.NotSinceStamp || late == health.NotSinceOutage { // the manager may have observed it earlier
		text += ", or earlier"
	}
	return text
}

// remediator returns what remediates t: its owner or a request, which may belong to another check.
func (t *Target) remediator() string {
	switch underWay := t.Blocker(RemediationUnderWay); {
	case t.OwnerAsked:
		return t.Owner
	case len(t.Requests) > 0:
		return t.Requests[0].String()
	case underWay != nil:
		return underWay.Object.String()
	}
	return cmp.Or(t.Remediator, t.Owner)
}

// Blocker returns the first blocker of t with that reason; nil if there is none.
func (t *Target) Blocker(reason string) *Blocker {
	for i := range t.Blockers {
		if t.Blockers[i].Reason == reason {
			return &t.Blockers[i]
		}
	}
	return nil
}
