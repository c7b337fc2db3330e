package document

import (
	"slices"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Answer is the phase of t, a target of c, and the reason why it is not Healthy. It agrees with the first line of a page (explain.Check.AnswerOn).
func Answer(c *explain.Check, t *explain.Target) (cliv1.Phase, string) {
	switch {
	case t.Skipped != "":
		return cliv1.NotChecked, explain.Skipped
	case t.State == health.Healthy:
		return cliv1.Healthy, ""
	case t.State == health.Pending || t.State == health.Starting:
		return cliv1.Pending, soonest(t.Findings)
	case t.State == health.Unknown:
		return cliv1.Unknown, first(t)
	case t.BlockedBy(explain.MachineBeingDeleted):
		return cliv1.Remediating, explain.MachineBeingDeleted
	}
	return unhealthy(c, t)
}

// unhealthy is the phase of a target that is unhealthy. Where it is not known whether a manager runs, that none was seen blocks nothing.
func unhealthy(c *explain.Check, t *explain.Target) (cliv1.Phase, string) {
	switch {
	case t.PutOff || t.Refused || t.Ownerless || t.StartsNow && t.Next.Manual:
		return cliv1.Blocked, t.Next.Reason
	case c.Mode != explain.Unknown && t.InFlight && t.Next.Manual:
		return cliv1.Blocked, t.Next.Reason
	case c.Mode != explain.Unknown && t.InFlight && t.BlockedBy(explain.NoManager):
		return cliv1.Blocked, explain.NoManager
	case t.InFlight || t.StartsNow:
		return cliv1.Remediating, t.Next.Reason
	}
	return cliv1.Blocked, first(t)
}

// first is the reason of the first blocker of t; empty if there is none.
func first(t *explain.Target) string {
	if len(t.Blockers) == 0 {
		return ""
	}
	return t.Blockers[0].Reason
}

// soonest is the reason of the finding whose timeout expires first; empty if none is running.
func soonest(findings []explain.Finding) string {
	var first *explain.Finding
	for i := range findings {
		if f := &findings[i]; !f.Expired && (first == nil || f.Expires.Before(first.Expires)) {
			first = f
		}
	}
	if first == nil {
		return ""
	}
	return string(first.Reason)
}

// worst are the phases from the worst to the best.
var worst = []cliv1.Phase{cliv1.Blocked, cliv1.Remediating, cliv1.Unknown, cliv1.Pending, cliv1.NotChecked, cliv1.Healthy}

// checkPhase is the worst of the phases of targets, and of what their numbers say of those that were not read.
func checkPhase(c *explain.Check, targets []explain.Target) cliv1.Phase {
	at := len(worst) - 1
	for i := range targets {
		if phase, _ := Answer(c, &targets[i]); phase != cliv1.NotChecked {
			at = min(at, slices.Index(worst, phase))
		}
	}
	switch {
	case c.Mode == explain.Unknown, c.NodesUnknown != "", c.Population.Unread > 0, len(targets) == 0 && c.ModeText != "" && c.Population.Total() == 0:
		at = min(at, slices.Index(worst, cliv1.Unknown))
	}
	return worst[at]
}

// Remediation is the power cycle of a host.
func Remediation(r *explain.Remediation) cliv1.HostRemediation {
	is := cliv1.HostRemediation{
		Reference: Reference(r.Ref), Machine: Optional(r.Machine), Node: r.Node, Host: r.Host, RemediationPhase: r.Phase, State: r.State,
		Phase: RemediationPhase(r), Attempt: r.Attempt, Attempts: r.Attempts, Reason: r.Reason, Acts: r.Acts, AttemptStarted: Moment(r.AttemptStarted),
		StateSince: Moment(r.StateSince), Deadline: Moment(r.Deadline), Blockers: blockers(nil, r.Blockers), Evidence: r.Evidence, ReadErrors: r.ReadErrors,
		Next: OptionalStep(r.Next), Message: r.Text,
	}
	return is
}

// RemediationPhase is the phase of the power cycle of a host.
func RemediationPhase(r *explain.Remediation) cliv1.Phase {
	switch state := powercycle.State(r.State); {
	case state == powercycle.Succeeded:
		return cliv1.Healthy
	case state == powercycle.Failed || r.Next.Manual:
		return cliv1.Blocked
	}
	return cliv1.Remediating
}
