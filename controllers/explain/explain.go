// Package explain describes decisions: the verdict on a machine or a node with its findings, the action, what blocks it, and the next step.
// Its types are those of package api/cli/v1alpha1, and add what only pages and the first line of a page need.
package explain

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
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
		}
		if !f.Due.IsZero() && f.Limit > 0 {
			finding.Timeout = &metav1.Duration{Duration: f.Limit}
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

// Group returns the names of targets of one class.
func Group(class budget.Class, names []string) cliv1.Group {
	field, _, _ := strings.Cut(string(class), " ") // two classes have several words, and fields of other names
	switch class {
	case budget.Deleting:
		field = "deleting"
	case budget.Unread:
		field = "unread"
	}
	return cliv1.Group{Class: field, Names: names}
}
