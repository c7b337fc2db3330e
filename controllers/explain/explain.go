// Package explain describes decisions: the verdict on a machine or a node with its findings, the action, what blocks it, and the next step.
// Its types are those of package api/cli/v1alpha1, and add what only pages and the first line of a page need.
package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

type (
	// Ref names an object.
	Ref = rule.Ref
	// Blocker says why something does not begin, or does not go on.
	Blocker = rule.Blocker
	// Step is what happens next.
	Step = rule.Step
	// Finding is a rule that a target matches.
	Finding = cliv1.Finding
)

// ErrUnread wraps the error of a read that failed for the reader of a page, such as for a missing right. It says nothing about the
// manager's rights, and controllers that act never get it.
var ErrUnread = errors.New("it was not read")

// Missing is the error that an object does not exist.
type Missing string

// Error says what does not exist.
func (m Missing) Error() string { return string(m) }

// NoSuch returns the error that an object does not exist; namespace is empty for kinds without one.
func NoSuch(kind, namespace, name string) Missing {
	if namespace != "" {
		namespace = " in namespace " + namespace
	}
	return Missing("there is no " + kind + " " + name + namespace)
}

// Check is a check of the API, and what pages and answers need besides.
type Check struct {
	cliv1.Check
	// ModeDetail is ModeMessage in a few words.
	ModeDetail string
	// Counts are how many targets there are of each class. If the targets could not be read, all count as healthy or unknown.
	Counts budget.Population
	// Targets are all targets that the check selects, sorted by name, including those that it skips.
	Targets []Target
}

// Target is a target of the API, and what pages and answers need besides.
type Target struct {
	cliv1.Target
	// Class is the class in which the limits count the target; empty if they do not count it.
	Class budget.Class
	// Remediator is what will carry out a remediation: a kind of requests, or the owner of the machine.
	Remediator string
	// OwnerAsked reports that the owner was asked to replace the machine. Owner is the owner's name, OwnerReason what it reports.
	OwnerAsked  bool
	Owner       string
	OwnerReason string
	// Cycle is the power cycle that remediates the target; nil if there is none, if it was not read, or if it has asked the owner.
	Cycle *Remediation
}

// Findings returns the findings of a verdict at now.
func Findings(verdict health.Verdict, now time.Time) []Finding {
	found := make([]Finding, 0, len(verdict.Findings))
	for _, f := range verdict.Findings {
		finding := Finding{
			Reason: string(f.Reason), Message: f.Observed(), Expires: cliv1.Moment(f.Due), Expired: f.DueAt(now),
			SinceMessage: f.Late.Since(), Observed: f.Observed(), Unless: unless(&f),
		}
		if finding.Expired {
			finding.Message = f.Text()
			if f.Other.Name != "" {
				finding.Message += ". " + f.Other.Text()
			}
		}
		if !f.Due.IsZero() {
			finding.Since = cliv1.Moment(f.Due.Add(-f.Limit))
			if f.Limit > 0 {
				finding.Timeout = &metav1.Duration{Duration: f.Limit}
			}
		}
		found = append(found, finding)
	}
	return found
}

// IgnoredFindings returns the findings of a verdict that do not count, and why.
func IgnoredFindings(verdict health.Verdict) []cliv1.IgnoredFinding {
	ignored := make([]cliv1.IgnoredFinding, 0, len(verdict.Void))
	for _, void := range verdict.Void {
		finding := cliv1.IgnoredFinding{Reason: string(void.Late), Message: void.Observed(), Why: "its node says otherwise now"}
		switch {
		case void.Reason == health.NodeStartup:
			finding.Why = "its timeout stands still, as Cluster API has not reconciled the machine since a pause"
		case void.Late == health.NotSincePause:
			finding.Why = "it was written before a pause, and Cluster API has not reconciled the machine since"
		}
		ignored = append(ignored, finding)
	}
	return ignored
}

// Soonest returns the earliest of the next steps of targets that have a time; zero if none has.
func Soonest(targets []Target) Step {
	var next Step
	for i := range targets {
		t := &targets[i]
		next = Sooner(next, Step{At: t.Next.At, Reason: t.Next.Reason, Target: t.Name, Text: t.Name + ": " + t.Next.Text})
	}
	return next
}

// Sooner returns the earlier of two steps; zero if neither has a time.
func Sooner(a, b Step) Step {
	switch {
	case a.At.IsZero() && b.At.IsZero():
		return Step{}
	case a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At):
		return b
	default:
		return a
	}
}

// States are the verdicts as documents name them.
var States = map[health.State]cliv1.State{
	health.Healthy: cliv1.StateHealthy, health.Starting: cliv1.StateStarting, health.Pending: cliv1.StatePending,
	health.Unhealthy: cliv1.StateUnhealthy, health.Unknown: cliv1.StateUnknown,
}

// Document returns c for programs. Phase, if it is set already, is kept: it is about all targets, and c may have only some of them.
func (c *Check) Document() cliv1.Check {
	document := c.Check
	document.Phase, document.Population = cmp.Or(c.Phase, c.Answer().Phase()), c.population()
	for i := range c.Targets {
		target, answer := c.Targets[i].Target, c.AnswerOn(&c.Targets[i])
		target.Phase, target.Reason = answer.Phase(), answer.Reason
		document.Targets = append(document.Targets, target)
	}
	return document
}

// population returns nil if the targets could not be counted.
func (c *Check) population() *cliv1.Population {
	p := c.Counts
	if c.NodesNotReadable() || c.Mode == cliv1.ModeUnknown || p.Total() == 0 && c.ModeMessage != "" {
		return nil
	}
	return &cliv1.Population{
		Total: p.Total(), NotHealthy: p.NotHealthy(), Healthy: p.Healthy, Unhealthy: p.Unhealthy, Pending: p.Pending, Starting: p.Starting,
		Recovering: p.Recovering, Deleting: p.Deleting, Unknown: p.Unknown, Unread: p.Unread, Remediating: p.InFlight, Waiting: p.Waiting,
	}
}

// SetLimits sets the limits of c as numbers. AtMost stays nil if the limit cannot be parsed.
func (c *Check) SetLimits(limits budget.Limits, remaining int) {
	c.Limits.AtLeast, c.Limits.Remaining = limits.AtLeast, remaining
	disabled := ptr.Deref(meta.FindStatusCondition(c.Conditions, nhcv1.DisabledCondition), metav1.Condition{})
	if c.Reason != mendv1.InvalidLimitReason && (disabled.Status != metav1.ConditionTrue || disabled.Reason != nhcv1.InvalidLimitReason) {
		most := max(limits.AtMost, 0)
		c.Limits.AtMost = &most
	}
}

// The reasons and causes of blockers that pages and answers treat differently.
const (
	NotActing            = "NotActing"
	MachineBeingDeleted  = "MachineBeingDeleted"
	AwaitsClusterAPI     = "AwaitsClusterAPI"
	WithinTimeout        = "WithinTimeout"
	RemediationUnderWay  = "RemediationUnderWay"
	OtherCheckRemediates = "OtherCheckRemediates"
	// NotJudged is the reason while the manager has written nothing about a machine yet.
	NotJudged         = "NotJudged"
	NotRead           = "NotRead"
	MissingPermission = rule.MissingPermission
	NoOwner           = "NoOwner"

	// NotServed: kubemend does not act on the kind.
	NotServed = "KindNotServed"
	// NoManager: no manager acts on the object.
	NoManager = "NoManager"
	// NodesUnread and MachineUnread are causes of blockers with the reason MissingPermission: the reader may not read the nodes of a
	// workload cluster, or the Machine of a node.
	NodesUnread   = "NodesUnread"
	MachineUnread = "MachineUnread"
	// ClusterSilent: the workload cluster did not answer the reader in time.
	ClusterSilent = "NoAnswer"
	// NotExplained: the check could not be explained, because something is missing that its controller reads.
	NotExplained = "CannotBeExplained"
)

// The reasons of steps that are not also reasons of blockers, conditions or power cycles.
const (
	RemediationStarts = "RemediationStarts"
	TimeoutExpires    = "TimeoutExpires"
	OwnerActs         = "OwnerActs"
	// RemediatorActs: the controller of the remediation request goes on.
	RemediatorActs = "RemediatorActs"
	// OtherControllerActs: another controller acts on the target, such as Cluster API core or the controller of an older check.
	OtherControllerActs = "OtherControllerActs"
	BeingDeleted        = "BeingDeleted"
	// Skipped: a user has annotated the target so that checks skip it.
	Skipped     = "Skipped"
	NotSelected = "NotSelected"
	// NoRule: the node is not Ready, and no rule of a check that selects it covers that.
	NoRule = "NoRuleMatches"
	// HostOutOfService: the host is marked unhealthy, so that no machine is put on it.
	HostOutOfService = "OutOfService"
	// LimitAllowsNone: the limit of the check allows none of its targets to be unhealthy.
	LimitAllowsNone = "LimitAllowsNone"
	NothingExpected = "NothingExpected"
	ReadAgain       = "ReadAgain"
	// CooldownEnds: the cooldown after a storm is over.
	CooldownEnds = "CooldownEnds"
	// ConfirmationAwaited: a user has to confirm that the node is healthy.
	ConfirmationAwaited = "ConfirmationAwaited"
	// NodeStaysAway: the node is gone, and its request is deleted.
	NodeStaysAway   = "NodeStaysAway"
	RequestsDeleted = "RequestsDeleted"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
	NoConnection               = "no connection: " // the error follows
)

// Silent reports whether why means that a cluster does not answer. Such a failed read says nothing about rights.
func Silent(why string) bool { return why == NoAnswer || strings.HasPrefix(why, NoConnection) }

// Unexplained describes a check that could not be explained.
func Unexplained(check Ref, why error) Check {
	c := Check{
		Check: cliv1.Check{Reference: check, Mode: cliv1.ModeUnknown, Next: Step{Reason: NotExplained, Text: "Ask again", Manual: true},
			Reason: NotExplained, Message: "It could not be explained: " + why.Error()},
	}
	if status := apierrors.APIStatus(nil); apierrors.IsForbidden(why) && errors.As(why, &status) && status.Status().Details != nil {
		details := status.Status().Details
		c.ModeDetail = strings.TrimSuffix(details.Kind+"."+details.Group, ".")
		c.Next.Text = "Ask as a user who may read " + c.ModeDetail
	}
	return c
}

// notExplained sets in a why c could not be explained: MissingPermission and the kind that the user may not read, or the reason of c.
func (c *Check) notExplained(a *Answer) {
	if a.Reason, a.Detail = c.Reason, c.ModeDetail; c.ModeDetail != "" {
		a.Reason = MissingPermission
	}
}

// KindNotServed says why kubemend acts on no object of a kind.
func KindNotServed(because string) string { return "kubemend does not serve the kind: " + because }

// NoManagerActs returns why none of managers acts on an object, and what a user can do. offs has the reasons of the managers that run.
func NoManagerActs(managers []managerlease.Manager, offs []managerlease.Off) (because, fix string) {
	var reasons, fixes []string
	for _, off := range offs {
		if off.Because != "" {
			reasons = append(reasons, off.Because)
		}
		if off.Fix != "" && !slices.Contains(fixes, off.Fix) {
			fixes = append(fixes, off.Fix)
		}
	}
	if len(reasons) > 0 {
		return "No manager of kubemend would act on it: " + strings.Join(reasons, "; "), strings.Join(fixes, ", or ")
	}
	because, fix = "No manager of kubemend was found; a manager without a manager lease, "+
		"or without the binding of kubemend's packages, cannot be found",
		"Start the manager of kubemend, or see in its log why it keeps no lease"
	var gone time.Time
	for i := range managers {
		if m := &managers[i]; !m.Alive && !m.Gone.Before(gone) {
			gone, fix = m.Gone, "Start the manager of kubemend"
			because = fmt.Sprintf("The manager of kubemend in namespace %s does not run", m.Namespace)
			if !gone.IsZero() {
				because = fmt.Sprintf("The manager of kubemend in namespace %s has not run since %s", m.Namespace, stamp(gone))
			}
		}
	}
	return because, fix
}
