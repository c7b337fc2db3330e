package explain

import (
	"cmp"
	"strings"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// States are the verdicts as documents have them.
var States = map[health.State]cliv1.State{
	health.Healthy: cliv1.StateHealthy, health.Starting: cliv1.StateStarting, health.Pending: cliv1.StatePending,
	health.Unhealthy: cliv1.StateUnhealthy, health.Unknown: cliv1.StateUnknown,
}

// Document is c for programs. Its phase is about all targets of the check: one that has only some of them has it already.
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

// population is nil if the targets could not be counted.
func (c *Check) population() *cliv1.Population {
	p := c.Counts
	if c.NodesNotReadable() || c.Mode == Unknown || p.Total() == 0 && c.ModeMessage != "" {
		return nil
	}
	return &cliv1.Population{
		Total: p.Total(), NotHealthy: p.NotHealthy(), Healthy: p.Healthy, Unhealthy: p.Unhealthy, Pending: p.Pending, Starting: p.Starting,
		Recovering: p.Recovering, Deleting: p.Deleting, Unknown: p.Unknown, Unread: p.Unread, Remediating: p.InFlight, Waiting: p.Waiting,
	}
}

// SetLimits sets the limits of c in numbers. AtMost stays nil if the limit cannot be parsed, and MaxInFlight where any number of
// remediations may be in progress.
func (c *Check) SetLimits(limits budget.Limits, remaining int) {
	c.Limits.AtLeast, c.Limits.Remaining = limits.AtLeast, remaining
	if !c.limitInvalid() {
		most := max(limits.AtMost, 0)
		c.Limits.AtMost = &most
	}
	if limits.InFlight != budget.Unlimited && c.Kind != "NodeHealthCheck" {
		c.Limits.MaxInFlight = &limits.InFlight
	}
}

// Group are the names of targets that are counted alike.
func Group(class budget.Class, names []string) cliv1.Group {
	field, _, _ := strings.Cut(string(class), " ") // of a class that is more than a word, the field is another one
	switch class {
	case budget.Deleting:
		field = "deleting"
	case budget.Unread:
		field = "unread"
	}
	return cliv1.Group{Class: field, Names: names}
}
