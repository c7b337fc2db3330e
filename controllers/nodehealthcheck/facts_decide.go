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

// Facts is everything that a decision depends on, read once. Its objects are shared with the cache: read only.
type Facts struct {
	Now   time.Time
	Check *nhcv1.NodeHealthCheck
	// Awaited are kinds that are not read yet. Nothing is decided before, because an object that was not read would count as missing.
	Awaited []schema.GroupVersionKind

	Policy    health.Policy // from the conditions in the check
	Storm     budget.Storm  // after the previous reconcile
	Resync    time.Duration
	Templates []Template // the steps of the escalation, in their order
	Disabled  Disabled

	Upgrade         Upgrade
	TerminatingLeft bool // a MachineHealthCheck of OpenShift handles nodes with the condition Terminating

	Outages []Outage
	Since   time.Time     // when this process began to reconcile
	Grace   time.Duration // how long kubelets have to report after Since, and after an outage of the API server
	// ClockAhead is how far the manager's clock is ahead of the API server's; negative if it is behind, and 0 for up to 30 s.
	ClockAhead time.Duration

	Nodes        []Node        // the nodes that the check selects or has to finish, by name
	ControlPlane *ControlPlane // nil while no remediation of a control-plane node may have to begin

	Placeless map[types.UID][]rule.Blocker // the blockers by RemediationPolicies, by the UIDs of place.Target

	Turned  string    // the UID of a node whose live conditions differ from cached ones: only the live ones count, from now
	Recheck time.Time // when to read objects again that are not watched
	Retry   time.Time // when to read objects again that could not be read
	Trouble []error   // errors of reads that the decision does not need
	Memory  Memory
}

// FactsOf returns the facts from the check itself. Only here the durations of its conditions become rules.
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

func (f *Facts) single() bool { return f.Check.Spec.RemediationTemplate != nil }

// healthyDelay returns how long the requests of a healthy node are kept; negative if a user has to confirm that the node is healthy.
func (f *Facts) healthyDelay() time.Duration {
	return ptr.Deref(f.Check.Spec.HealthyDelay, metav1.Duration{}).Duration
}

// Limits returns minHealthy and maxUnhealthy as written in the check; empty if it does not set them.
func (f *Facts) Limits() (minHealthy, maxUnhealthy string) {
	spelled := func(amount *intstr.IntOrString) string {
		if amount == nil {
			return ""
		}
		return amount.String()
	}
	return spelled(f.Check.Spec.MinHealthy), spelled(f.Check.Spec.MaxUnhealthy)
}

// Outage is a time span in which the API server could not be reached.
type Outage struct{ From, To time.Time }

// after returns the length of the part of o that is after at.
func (o Outage) after(at time.Time) time.Duration { return max(0, o.To.Sub(health.Latest(at, o.From))) }

// Upgrade is what objects other than nodes and Clusters say about an upgrade.
type Upgrade struct {
	Unread      bool
	Progressing string // name of the ClusterVersion of OpenShift that is progressing
}

// Memory is what a decision needs to know from earlier decisions. At worst its loss delays a remediation.
type Memory struct {
	Judged  time.Time                 // when nodes were last judged; zero if the last reconcile did not judge them
	Rules   []health.Rule             // the rules by which they were judged
	Seen    map[string]health.Seen    // the conditions that matched Rules, by the UID of the node
	Streaks map[string]health.Streaks // since when these conditions have been unhealthy, by the UID of the node
	// Decided is when the last decision was made; zero if there was none. Started in Requests includes the outages before it.
	Decided    time.Time
	Requests   map[string]RequestMemory // by the UID of the request
	Refusals   map[string]Refusal       // by the name of the node
	Recoveries map[string]Recovery      // by the UID of the node
}

// RequestMemory is what the controller remembers of a request.
type RequestMemory struct {
	Started     time.Time // when the timeout of the request begins, if that is later than its creation
	Flagged     bool      // the metric of old requests has counted the request
	Unpatchable bool      // the API server forbids the annotation that makes the remediator stop
	Succeeded   bool      // the remediator has reported success
}

// Plan is the result of a decision.
type Plan struct {
	Disabled   Disabled
	Population budget.Population
	Limits     budget.Limits
	Grant      budget.Grant
	Storm      budget.StormStep
	// Blockers are why no new remediation starts at all, in the order in which they are reported. Begun remediations go on.
	Blockers     []Blocker
	Decisions    []*Decision // one for each of Facts.Nodes
	Order        []int       // the indexes of the nodes for which there is something to do, in the order in which it is done
	Recheck      time.Time   // the first moment at which the plan changes although no object changes
	NextDeadline time.Time   // the first moment at which a timeout makes a node unhealthy
	Memory       Memory
}

// Blocker returns the first reason why no new remediation starts, which the check reports; zero if there is none.
func (p *Plan) Blocker() Blocker { return headOf(p.Blockers) }

func headOf(blockers []Blocker) Blocker {
	if len(blockers) == 0 {
		return Blocker{}
	}
	return blockers[0]
}

// Minimum returns how many nodes have to be healthy.
func (p *Plan) Minimum() int { return p.Population.Total() - p.Limits.AtMost }

// Decision is the part of a plan that is about one node.
type Decision struct {
	*Node
	Verdict     health.Verdict
	Left        bool         // the node is left to OpenShift's MachineHealthCheck for nodes with the condition Terminating
	Class       budget.Class // how the limits count the node; empty if they do not
	InFlight    bool         // the limits count a remediation of the node
	Missing     bool         // a remediation deleted the node, and no new node has replaced it yet
	MissedSince time.Time    // from when on a new node counts as the replacement of the missing node
	Blockers    []Blocker    // all, in the order of the rules: a remediation starts exactly if there are none
	Start       int          // the step that starts now; -1 if none does
	Would       int          // the step that starts once nothing blocks it; -1 if none will
	Nothing     Reason       // why no step will start, if Would is -1

	GaveUp escalation.Decision // the decision to give up a step now; zero if none is given up
	Answer escalation.Decision // what the escalation decides after that; zero if it was not consulted

	Requests  []RequestState // those of the node
	Delayed   bool           // the healthy delay goes on
	Unconfirm bool           // remove the annotation by which a user has confirmed that the node is healthy
	Leasing   LeaseAction
	Term      Term      // of the lease that is taken or renewed
	Remember  []int     // the indexes of those of Node.Gone that the escalation still needs
	Recheck   time.Time // the first moment at which the decision changes although no object changes
	Next      rule.Step // the next thing that happens to the node, for users
}

func (d *Decision) starts() bool { return d.Start >= 0 }

// Blocker returns the first blocker, which is the one that is reported; zero if there is none.
func (d *Decision) Blocker() Blocker { return headOf(d.Blockers) }

// RequestState is what is decided about a request.
type RequestState struct {
	*Request

	// Counted is when the timeout of its step begins: its creation, or later because of outages or because it was adopted.
	Counted time.Time
	// Over says that the request is being deleted because the node was healthy or gone meanwhile, and that nothing else was begun since.
	Over   bool
	Note   map[string]any // the annotations to set; nil as a value removes an annotation
	End    bool           // delete the request
	Adopt  bool           // the request, which is over and still being deleted, becomes the first request of a new failure
	GiveUp bool           // the step of the request is given up

	// These three are set when the plan is carried out.
	noted       bool // the annotations were set, or need not be
	unpatchable bool // the remediator cannot be notified, because the API server forbids the annotation
	ended       bool // the request was deleted
}

func (s *RequestState) note(annotation string, value any) {
	if s.Note == nil {
		s.Note = map[string]any{}
	}
	s.Note[annotation] = value
}

// Former reports whether the request belongs to an earlier failure: the node was healthy or gone since it was created.
func (s RequestState) Former() bool { return s.Over || s.Counted.After(s.started()) }

// Reasons of Decision.Next.
const (
	DelayEnds   = "HealthyDelayEnds"
	AskedAgain  = "ReadAgain"
	StepExpires = "StepTimesOut"
	StaysAway   = "NodeStaysAway"
)

// LeaseAction is what to do about a lease.
type LeaseAction int

// The actions.
const (
	KeepLease LeaseAction = iota
	TakeLease             // the lease has no holder, or has expired
	RenewLease
	DropLease
)

// Reason names a blocker.
type Reason string

// Reasons why no new remediation starts at all. The condition RemediationAllowed uses the same reasons.
const (
	CheckDisabled Reason = "HealthCheckDisabled"
	Paused        Reason = "PauseRequested"
	Upgrading     Reason = "ClusterUpgrading"
)

// Reasons why the remediation of one node does not start, in the order of the rules. The last three, NodeGone and NotSelected are also
// values of Decision.Nothing.
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
	NoneFollows        Reason = "NoTemplateFollows" // no further template can be used for the node
)

// Disabled is why a check is disabled, as its condition reports it. The texts are those of medik8s, with namespace and name added.
type Disabled struct{ Reason, Message string }

// Is reports whether d disables the check.
func (d Disabled) Is() bool { return d.Reason != "" }

// fixes has what a user can do about each reason. The reason is enough: it may come from a condition that another process has written.
var fixes = map[string]string{
	nhcv1.ConflictReason:          "delete the MachineHealthChecks of OpenShift, except the one that OpenShift creates",
	nhcv1.TemplateNotFoundReason:  "make the template, or have the check name one that is there",
	nhcv1.TemplateInvalidReason:   "fix the template, or have the check name another one",
	nhcv1.TemplateForbiddenReason: "install the remediator's ClusterRole that allows kubemend to read its kinds",
	nhcv1.SelectorInvalidReason:   "fix spec.selector",
	nhcv1.InvalidLimitReason:      "fix spec.minHealthy or spec.maxUnhealthy",
}

// ConflictMessage is the message of a check that is disabled because of MachineHealthChecks of OpenShift.
const ConflictMessage = "Custom MachineHealthCheck(s) detected, disabling NodeHealthCheck to avoid conflicts"

// TeardownMessage is the message of a check that is disabled while kubemend is being uninstalled.
const TeardownMessage = "kubemend is being uninstalled: " +
	"it does not act on this check any more, and deletes its remediation requests and leases"

// SelectorInvalid disables a check whose selector cannot be parsed.
func SelectorInvalid(err error) Disabled {
	return Disabled{Reason: nhcv1.SelectorInvalidReason, Message: "spec.selector is invalid: " + err.Error()}
}

// TemplateNotFound disables a check whose template does not exist. It names the template, because the API server's error has no namespace.
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

// TemplateForbidden disables a check if the manager may not read kind, the kind of a template or of its requests.
func TemplateForbidden(t *Template, kind string, err error) Disabled {
	return Disabled{Reason: nhcv1.TemplateForbiddenReason, Message: fmt.Sprintf(
		"kubemend may not read %s. Install the remediator's ClusterRole that allows it, with the label "+
			"rbac.ext-remediation/aggregate-to-ext-remediation: \"true\": %q",
		kind, t.Place()+": "+innermost(err))}
}

// innermost returns the text of the innermost error in err, which comes from the API server.
func innermost(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}
