// Package document makes the documents of `kubectl mend -o json` (package api/cli/v1alpha1) of explanations.
package document

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Time is a moment, in UTC as the API server writes it.
func Time(t time.Time) metav1.Time { return metav1.NewTime(t.UTC()) }

// Moment is a moment that may be missing.
func Moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := Time(t)
	return &at
}

// Reference names the object that r does.
func Reference(r explain.Ref) cliv1.Reference {
	return cliv1.Reference{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// Optional is the reference to an object that may be missing.
func Optional(r explain.Ref) *cliv1.Reference {
	if r == (explain.Ref{}) {
		return nil
	}
	is := Reference(r)
	return &is
}

// Step is a next step.
func Step(s explain.Step) cliv1.Step {
	_, target, has := strings.Cut(s.Target, " ") // of a node its kind is named too
	if !has {
		target = s.Target
	}
	return cliv1.Step{Reason: s.Reason, Time: Moment(s.At), NotBefore: Moment(s.NotBefore), Target: target, Manual: s.Manual, Message: s.Text}
}

// OptionalStep is a next step that may be missing.
func OptionalStep(s explain.Step) *cliv1.Step {
	if s == (explain.Step{}) {
		return nil
	}
	is := Step(s)
	return &is
}

// EventType is that of a warning, or of what is none.
func EventType(warning bool) cliv1.EventType {
	if warning {
		return cliv1.Warning
	}
	return cliv1.Normal
}

// states are the verdicts.
var states = map[health.State]cliv1.State{
	health.Healthy: cliv1.StateHealthy, health.Starting: cliv1.StateStarting, health.Pending: cliv1.StatePending, health.Unknown: cliv1.StateUnknown,
	health.Unhealthy: cliv1.StateUnhealthy,
}

func stateOf(t *explain.Target) cliv1.State {
	if t.Skipped != "" {
		return cliv1.StateSkipped
	}
	return states[t.State]
}

// population is nil if the targets could not be counted.
func population(c *explain.Check) *cliv1.Population {
	p := c.Population
	if c.NodesNotReadable() || c.Mode == explain.Unknown || p.Total() == 0 && c.ModeText != "" {
		return nil
	}
	return &cliv1.Population{
		Total: p.Total(), NotHealthy: p.NotHealthy(), Healthy: p.Healthy, Unhealthy: p.Unhealthy, Pending: p.Pending, Starting: p.Starting,
		Recovering: p.Recovering, Deleting: p.Deleting, Unknown: p.Unknown, Unread: p.Unread, Remediating: p.InFlight, Waiting: p.Waiting,
	}
}

func limits(c *explain.Check) cliv1.Limits {
	return cliv1.Limits{Spec: c.Limit, AtMost: atMost(c), AtLeast: c.Limits.AtLeast, MaxInFlight: inFlight(c), Remaining: c.Remaining}
}

// atMost is how many targets may be not healthy; nil if the limit cannot be parsed.
func atMost(c *explain.Check) *int {
	if c.LimitInvalid() {
		return nil
	}
	most := max(c.Limits.AtMost, 0)
	return &most
}

// inFlight is how many remediations may be in progress; nil if any number may.
func inFlight(c *explain.Check) *int {
	if c.Limits.InFlight == budget.Unlimited || c.Kind == "NodeHealthCheck" {
		return nil
	}
	most := c.Limits.InFlight
	return &most
}
