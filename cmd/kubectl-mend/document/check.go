package document

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// modes are who acts on checks.
var modes = map[explain.Mode]cliv1.Mode{
	explain.Acting: cliv1.ModeActing, explain.Observing: cliv1.ModeObserving, explain.Core: cliv1.ModeCore, explain.Other: cliv1.ModeOther,
	explain.Paused: cliv1.ModePaused, explain.None: cliv1.ModeNone, explain.Unknown: cliv1.ModeUnknown,
}

// Check is c with its targets. The answer is about all targets of the check, which may be more.
func Check(c *explain.Check, answer explain.Answer) cliv1.Check {
	is := cliv1.Check{
		Reference: Reference(c.Ref), Cluster: c.Cluster, Phase: answer.Phase(), Reason: c.Reason, Mode: modes[c.Mode], ModeMessage: c.ModeText,
		Population: population(c), Limits: limits(c), CountedByStatus: c.CountedByStatus, StatusChanged: Moment(c.StatusChanged),
		NodesUnknown: nodesUnknown(c), Conditions: c.Conditions, ReadErrors: c.ReadErrors, Next: OptionalStep(c.Next), Message: c.Text,
	}
	for i := range c.Targets {
		is.Targets = append(is.Targets, target(c, &c.Targets[i]))
	}
	return is
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

func nodesUnknown(c *explain.Check) *cliv1.NodesUnknown {
	if c.NodesUnknown == "" {
		return nil
	}
	is := &cliv1.NodesUnknown{Reason: mendv1.UnreachableReason, Since: Moment(c.NodesUnknownSince), Message: c.NodesUnknown}
	said := meta.FindStatusCondition(c.Conditions, mendv1.WorkloadClusterReachable)
	switch {
	case c.NodesNotReadable():
		is.Reason = explain.MissingPermission
	case said != nil && said.Status != metav1.ConditionTrue:
		is.Reason = said.Reason
	}
	return is
}

func target(c *explain.Check, t *explain.Target) cliv1.Target {
	answer := c.AnswerOn(t)
	is := cliv1.Target{
		Reference: Reference(t.Ref), Node: t.Node, State: stateOf(t), Phase: answer.Phase(), Reason: answer.Reason, Skipped: t.Skipped, StartsNow: t.StartsNow,
		InFlight: t.InFlight, InFlightSince: Moment(t.InFlightSince), Deferred: t.PutOff, Refused: t.Refused, Blockers: blockers(c, t.Blockers),
		Next: OptionalStep(t.Next), Message: t.Report,
	}
	if t.Machine != nil {
		is.Machine = Optional(*t.Machine)
	}
	for i := range t.Findings {
		is.Findings = append(is.Findings, finding(&t.Findings[i]))
	}
	for _, f := range t.Ignored {
		is.Ignored = append(is.Ignored, cliv1.IgnoredFinding{Reason: string(f.Reason), Message: f.Text, Why: f.Why})
	}
	for _, m := range t.Startup {
		is.Startup = append(is.Startup, cliv1.Milestone{Time: Time(m.At), Latest: m.Latest, Message: m.Text})
	}
	if t.Act.Kind != "" {
		is.Action = &cliv1.Action{Kind: cliv1.ActionKind(t.Act.Kind), Target: Optional(t.Act.Target), Message: t.Action}
	}
	for _, r := range t.Requests {
		is.Requests = append(is.Requests, Reference(r))
	}
	return is
}

func finding(f *explain.Finding) cliv1.Finding {
	is := cliv1.Finding{
		Reason: string(f.Reason), Since: Moment(f.Since), Expires: Moment(f.Expires), Expired: f.Expired, SinceMessage: f.SinceReason, Message: f.Text,
	}
	if f.Timeout.Duration > 0 {
		timeout := f.Timeout
		is.Timeout = &timeout
	}
	return is
}

// blockers are those of a target of c, or of a remediation if c is nil.
func blockers(c *explain.Check, all []explain.Blocker) []cliv1.Blocker {
	is := make([]cliv1.Blocker, 0, len(all))
	for i := range all {
		b := &all[i]
		blocker := cliv1.Blocker{Reason: b.Reason, Cause: b.Cause, Object: Optional(b.Object), Until: Moment(b.Until), Fix: b.Fix, Message: b.Text}
		if c != nil && (c.PartOf(b) == explain.SameAsLimit || b.Reason == string(machines.RemediationsInProgress)) {
			p := c.Population
			blocker.Limit = &cliv1.LimitUse{
				Total: p.Total(), NotHealthy: p.NotHealthy(), AtMost: atMost(c), AtLeast: c.Limits.AtLeast, InFlight: p.InFlight, MaxInFlight: inFlight(c),
			}
		}
		is = append(is, blocker)
	}
	return is
}
