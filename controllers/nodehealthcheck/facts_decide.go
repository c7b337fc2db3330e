package nodehealthcheck

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Facts is everything that one decision depends on, read once. Its objects are shared with the cache: read only.
type Facts struct {
	Now   time.Time
	Check *nhcv1.NodeHealthCheck
	// Awaited are the kinds of which not all objects were read. Until they are, nothing is decided: what was not read is not "none".
	Awaited []schema.GroupVersionKind

	Policy    health.Policy // of the conditions that the check names
	Storm     budget.Storm  // as of the reconcile before
	Resync    time.Duration
	Templates []Template // the steps of the escalation, in the order of use
	Disabled  Disabled

	Upgrade         Upgrade
	TerminatingLeft bool // a MachineHealthCheck of OpenShift ends nodes with the condition Terminating

	// Since is when this process began to reconcile, Grace how long kubelets have to report then, and after an outage of the API server.
	Outages []Outage
	Since   time.Time
	Grace   time.Duration
	// ClockAhead is how far the clock of the manager is ahead of the API server's; less than 0 if it is behind, 0 up to 30 s.
	ClockAhead time.Duration

	Nodes        []Node        // those that the check selects or has not done with, by name
	ControlPlane *ControlPlane // nil as long as no remediation of one of its nodes may have to begin

	// Placeless are what RemediationPolicies hold against what would begin, by the UIDs that they know the nodes by.
	Placeless map[types.UID][]rule.Blocker

	// Turned is the UID of a node whose conditions no reconcile has seen, since the cache shows others: they count from now.
	Turned string
	// Recheck is when what no watch tells has to be read again, Retry when what could not be read is tried again.
	Recheck, Retry time.Time
	// Trouble is what could not be read, of what a decision can do without.
	Trouble []error
	Memory  Memory
}

// FactsOf is what a check itself says. This is the one place where the durations of its conditions become rules.
func FactsOf(check *nhcv1.NodeHealthCheck, now time.Time) Facts {
	f := Facts{Now: now, Check: check}
	for _, c := range check.Spec.UnhealthyConditions {
		f.Policy.Rules = append(f.Policy.Rules, health.Rule{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), For: c.Duration.Duration,
		})
	}
	f.Storm.Active = meta.IsStatusConditionTrue(check.Status.Conditions, nhcv1.StormActiveCondition)
	if cooldown := conditionOf(check, nhcv1.StormCooldownActiveCondition); cooldown != nil && cooldown.Status == metav1.ConditionTrue {
		f.Storm.CoolingSince = cooldown.LastTransitionTime.Time
	}
	return f
}

func conditionOf(check *nhcv1.NodeHealthCheck, kind string) *metav1.Condition {
	return meta.FindStatusCondition(check.Status.Conditions, kind)
}

// Single reports whether the check names one template and no escalation.
func (f *Facts) Single() bool { return f.Check.Spec.RemediationTemplate != nil }

// healthyDelay is for how long the requests of a healthy node are kept; below zero a person ends that.
func (f *Facts) healthyDelay() time.Duration {
	return ptr.Deref(f.Check.Spec.HealthyDelay, metav1.Duration{}).Duration
}

// Limits are minHealthy and maxUnhealthy as the check spells them; empty if it does not set them.
func (f *Facts) Limits() (minHealthy, maxUnhealthy string) {
	spelled := func(amount *intstr.IntOrString) string {
		if amount == nil {
			return ""
		}
		return amount.String()
	}
	return spelled(f.Check.Spec.MinHealthy), spelled(f.Check.Spec.MaxUnhealthy)
}

// Outage is a time in which the API server could not be reached.
type Outage struct{ From, To time.Time }

// after is how much of o there was after at.
func (o Outage) after(at time.Time) time.Duration { return max(0, o.To.Sub(health.Latest(at, o.From))) }

// Upgrade is what no single node tells of upgrades of the cluster. Progressing names the ClusterVersion that is progressing.
type Upgrade struct {
	Unread      bool
	Progressing string
}

// Memory is what a decision must know of those before it. Losing it delays a remediation at worst.
type Memory struct {
	// Judged is when nodes were judged last, zero if the last reconcile did not get to that.
	Judged time.Time
	// Seen are the conditions of the nodes that met one of the Rules when they were judged last, Streaks for how long they have been bad;
	// by the UID of the node.
	Seen    map[string]health.Seen
	Rules   []health.Rule
	Streaks map[string]health.Streaks
	// Requests is by the UID of the request. Decided is to when outages are in Started of all; zero if there was no decision before.
	Requests   map[string]RequestMemory
	Decided    time.Time
	Refusals   map[string]Refusal  // by the name of the node
	Recoveries map[string]Recovery // by the UID of the node
}

// RequestMemory is what is remembered of a request.
type RequestMemory struct {
	// Started is from when on the time of the request counts, if not from its creation.
	Started time.Time
	// Flagged says that it was counted as old, Unpatchable that it may not be annotated so that its remediator stops, Succeeded that its
	// remediator has said so.
	Flagged, Unpatchable, Succeeded bool
}

// Plan is what follows from the facts.
type Plan struct {
	Disabled   Disabled
	Population budget.Population
	Limits     budget.Limits
	Grant      budget.Grant
	Storm      budget.StormStep
	// Blockers is all that keeps anything new from starting, in the order in which it is reported. What has begun goes on.
	Blockers []Blocker
	// Decisions are about Facts.Nodes, in the same order; Order are the places of those about which something is done, in that order.
	Decisions []Decision
	Order     []int
	// Recheck is the first moment at which time alone changes the plan, NextDeadline the first at which it makes a node unhealthy.
	Recheck, NextDeadline time.Time
	Memory                Memory
}

// Blocker is why nothing new starts, as the check reports it; the zero Blocker if it may.
func (p *Plan) Blocker() Blocker { return headOf(p.Blockers) }

func headOf(blockers []Blocker) Blocker {
	if len(blockers) == 0 {
		return Blocker{}
	}
	return blockers[0]
}

// Minimum is how many nodes have to be healthy.
func (p *Plan) Minimum() int { return p.Population.Total() - p.Limits.AtMost }

// Decision is the part of a plan that is about one node.
type Decision struct {
	Verdict health.Verdict
	// Left says that the node is left to the MachineHealthCheck that ends such nodes, however it is.
	Left bool
	// Class is what the limits count it as; empty if they do not. InFlight says that they count a remediation of it.
	Class    budget.Class
	InFlight bool
	// Missing says that a remediation took the node away and nothing has replaced it yet, since MissedSince.
	Missing     bool
	MissedSince time.Time
	Blockers    []Blocker // all, in the order in which they are asked: a remediation starts exactly if there are none
	// Start is the step that starts, Would the one that starts when nothing blocks it any more; -1 if none does. Nothing says why none
	// would.
	Start, Would int
	Nothing      Reason
	// GaveUp is what the escalation gives up first, Answer what it decides then; zero if it was not asked.
	GaveUp, Answer escalation.Decision

	Requests []RequestState // of Node.Requests
	Delayed  bool           // the healthy delay goes on
	// Unconfirm says that the confirmation of a person that the node is healthy has served its purpose.
	Unconfirm bool
	Lease     LeaseAction
	Term      Term // of the lease that is taken or renewed
	// Remember are the requests that are gone and say something of the escalation still, by their places in Node.Gone.
	Remember []int
	// Recheck is the first moment at which time alone changes the decision, Next the first that users want to know of.
	Recheck time.Time
	Next    rule.Step
}

// Starts reports whether a remediation starts.
func (d *Decision) Starts() bool { return d.Start >= 0 }

// Blocker is the first blocker that there is to report; the zero Blocker if there is none.
func (d *Decision) Blocker() Blocker { return headOf(d.Blockers) }

// RequestState is what is decided of a request.
type RequestState struct {
	// Counted is from when on the time of its step counts: its creation, or later if a new failure begins with it.
	Counted time.Time
	// Over says that it is being deleted because the node was healthy, or gone, since, and that nothing is done about the node since then.
	Over bool
	// Note are the annotations that it is to get, nil for one that is to go. End says that it is over, Adopt that a new failure begins with
	// it, which is left of the last one, GiveUp that it has had its chance.
	Note               map[string]any
	End, Adopt, GiveUp bool
}

func (s *RequestState) note(annotation string, value any) {
	if s.Note == nil {
		s.Note = map[string]any{}
	}
	s.Note[annotation] = value
}

// Former reports whether the request was made before the node was healthy, or gone, the last time.
func (s RequestState) Former(r *Request) bool { return s.Over || s.Counted.After(r.Started()) }

// What happens to a node at moments that users want to know of, as reasons of steps.
const (
	DelayEnds   = "HealthyDelayEnds"
	AskedAgain  = "ReadAgain"
	StepExpires = "StepTimesOut"
	StaysAway   = "NodeStaysAway"
)

// LeaseAction is what to do about a lease.
type LeaseAction int

// What is done about a lease.
const (
	KeepLease LeaseAction = iota
	TakeLease             // it has no holder, or none that still counts
	RenewLease
	DropLease
)

// Reason names a blocker.
type Reason string

// What keeps anything new from starting. Where the condition RemediationAllowed says the same, it has the same reason.
const (
	CheckDisabled Reason = "HealthCheckDisabled"
	Paused        Reason = "PauseRequested"
	Upgrading     Reason = "ClusterUpgrading"
)

// What keeps the remediation of one node from starting, in the order in which it is asked. The last three are also why nothing would start.
const (
	NotUnhealthy       Reason = "NotUnhealthy"
	NodeGone           Reason = "NodeGone"
	NotSelected        Reason = "NotSelected"
	MachineUnread      Reason = "MachineUnread"
	TemplateOfMachines Reason = "TemplateOfMachines"
	TemplateElsewhere  Reason = "TemplateInOtherNamespace"
	EtcdAtRisk         Reason = "EtcdAtRisk"
	EtcdUnread         Reason = "EtcdUnread"
	EtcdBudgets        Reason = "EtcdDisruptionBudgets"
	NoTemplate         Reason = "NoTemplate"
	NoTemplateLeft     Reason = "NoTemplateLeft"
	NoneFollows        Reason = "NoTemplateFollows" // that can be about the node
)

// Disabled is why a check can do nothing, as its condition says. The texts are medik8s', with namespace and name.
type Disabled struct{ Reason, Message string }

// Is reports whether d disables the check.
func (d Disabled) Is() bool { return d.Reason != "" }

// fixes are what a user has to do about it. They depend on the reason alone, which may be that of a condition that another process wrote.
var fixes = map[string]string{
	nhcv1.ConflictReason:          "delete the MachineHealthChecks of OpenShift but the one that it brings along",
	nhcv1.TemplateNotFoundReason:  "make the template, or have the check name one that is there",
	nhcv1.TemplateInvalidReason:   "fix the template, or have the check name another one",
	nhcv1.TemplateForbiddenReason: "bind the rights that the remediator's ClusterRole is to bring",
	nhcv1.SelectorInvalidReason:   "fix spec.selector",
	nhcv1.InvalidLimitReason:      "fix spec.minHealthy or spec.maxUnhealthy",
}

// ConflictMessage is what a check says that is disabled beside MachineHealthChecks of OpenShift.
const ConflictMessage = "Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"

// TeardownMessage is what a check says that is disabled while kubemend is being uninstalled.
const TeardownMessage = "kubemend is being uninstalled: " +
	"it does not act on this check any more, and deletes its remediation requests and leases"

// SelectorInvalid disables a check whose selector cannot be parsed.
func SelectorInvalid(err error) Disabled {
	return Disabled{Reason: nhcv1.SelectorInvalidReason, Message: "spec.selector is invalid: " + err.Error()}
}

// TemplateNotFound disables a check whose template does not exist. It names the template: the API server's NotFound has no namespace.
func TemplateNotFound(t *Template, err error) Disabled {
	why := "failed to get " + t.Place() + ": " + innermost(err)
	return Disabled{Reason: nhcv1.TemplateNotFoundReason, Message: fmt.Sprintf("Remediation template not found: %q", why)}
}

// TemplateInvalid disables a check whose template cannot be used.
func TemplateInvalid(t *Template, err error) Disabled {
	text := fmt.Sprintf("Remediation template is invalid: %q", innermost(err))
	if t.Step != nil {
		text += ", of " + t.Place()
	}
	return Disabled{Reason: nhcv1.TemplateInvalidReason, Message: text}
}

// TemplateForbidden disables a check if objects of kind, a template or its requests, may not be read.
func TemplateForbidden(t *Template, kind string, err error) Disabled {
	return Disabled{Reason: nhcv1.TemplateForbiddenReason, Message: fmt.Sprintf(
		"%s may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: \"true\" has to allow it, "+
			"as the remediator brings one: %q",
		kind, t.Place()+": "+innermost(err))}
}

// innermost is the text of the innermost of err, which is the API server's.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
