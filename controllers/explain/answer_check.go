package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Numbers are how many targets of c are not healthy, of how many, and the limit.
func (c *Check) Numbers() string {
	bad, all := c.Population.NotHealthy(), c.Population.Total()
	if c.Limits.AtLeast > 0 {
		return fmt.Sprintf("%d of %d, range %d-%d", bad, all, c.Limits.AtLeast, c.Limits.AtMost)
	}
	return fmt.Sprintf("%d of %d, limit %d", bad, all, max(c.Limits.AtMost, 0))
}

// Answer is the answer about c itself.
func (c *Check) Answer() Answer {
	p := c.Population
	a := Answer{State: c.worst()}
	switch {
	case c.NotCounted():
	case a.State == IsHealthy:
		a.Detail = fmt.Sprintf("%d of %d", p.Healthy, p.Total())
	default:
		a.Detail = fmt.Sprintf("%d of %d", p.NotHealthy(), p.Total())
	}
	switch {
	case c.Mode != Acting:
		c.otherwise(&a)
	case c.NodesUnknown != "":
		a.Reason, a.Detail, a.Since = c.unseenReason(), "", c.NodesUnknownSince
	case c.Reason == clusterv1.MachineHealthCheckTooManyUnhealthyReason && p.NotHealthy() > 0:
		a.Action, a.Reason, a.Detail = NotRemediated, c.Reason, c.Numbers()
	case c.Text != "" && c.Blocked() != string(budget.AtWork):
		a.Action, a.Reason = NotRemediated, c.Reason
	case p.Total() == 0:
		a.Detail = "it selects nothing"
	case p.NotHealthy() > 0:
		c.progress(&a)
	}
	return a
}

// otherwise is what is done about the targets of a check that kubemend does not act on.
func (c *Check) otherwise(a *Answer) {
	switch {
	case c.ActsElsewhere():
		a.Action = NotInCharge
		a.Detail = strings.TrimPrefix(a.Detail+", "+c.Mode.actor()+" acts on it", ", ")
	case c.Mode == Unknown && c.Reason != NotExplained:
		a.Action, a.Reason = ActionUnknown, NoManager
	case c.Mode == Unknown:
		a.Reason = c.Reason
	default:
		a.Action = NotRemediated
		c.notActing(a)
	}
}

// worst is the state of the worst of the targets of c.
func (c *Check) worst() AnswerState {
	switch p := c.Population; {
	case c.NotCounted():
		return IsUnknown
	case p.Unhealthy+p.Deleting+p.Recovering+p.Unread > 0:
		return IsUnhealthy
	case p.Pending > 0:
		return IsPending
	case p.Starting > 0:
		return IsStarting
	case p.Unknown > 0:
		return IsUnknown
	}
	return IsHealthy
}

// NotCounted reports whether it is not known how many targets of c are healthy: the user may not read them, or they were not read.
func (c *Check) NotCounted() bool {
	return c.NodesNotReadable() || c.Reason == NotExplained || c.Population.Total() == 0 && c.ModeText != ""
}

// unseenReason is why the nodes of c cannot be judged.
func (c *Check) unseenReason() string {
	if c.NodesNotReadable() && !c.notInitialized() {
		return MissingPermission
	}
	for i := range c.Conditions {
		if is := &c.Conditions[i]; is.Type == mendv1.WorkloadClusterReachable && is.Status != "True" {
			return is.Reason
		}
	}
	return mendv1.UnreachableReason
}

func (c *Check) notInitialized() bool {
	return slices.ContainsFunc(c.Targets, func(t Target) bool {
		return t.BlockedBy(mendv1.NotInitializedReason) || t.BlockedBy("ControlPlaneNotInitialized")
	})
}

// notActing is why neither kubemend nor another controller acts on c.
func (c *Check) notActing(a *Answer) {
	for i := range c.Targets {
		for j := range c.Targets[i].Blockers {
			if b := &c.Targets[i].Blockers[j]; c.PartOf(b) == SameAsMode {
				a.Reason, a.Detail = b.Reason, cmp.Or(b.Detail, a.Detail)
				return
			}
		}
	}
	switch {
	case c.TextHasMode():
		a.Reason, a.Detail = c.Reason, ""
	case c.ModeDetail != "":
		a.Reason, a.Detail = NotActing, c.ModeDetail
	case c.Reason != "":
		a.Reason = c.Reason
	case c.Mode == Paused:
		a.Reason = clusterv1.PausedCondition
	default:
		a.Reason = NotActing
	}
}

// progress is how many remediations are in flight, start and do not.
func (c *Check) progress(a *Answer) {
	flying := c.count((*Target).GoesOn)
	stuck := slices.IndexFunc(c.Targets, func(t Target) bool {
		return t.State == health.Unhealthy && !t.InFlight && len(t.Blockers) > 0 || t.Refused
	})
	switch {
	case flying > 0:
		a.Action = BeingRemediated
		a.Detail += fmt.Sprintf(", %d in flight", flying)
	case c.count(func(t *Target) bool { return t.StartsNow }) > 0:
		a.Action = StartsNow
	case c.count(func(t *Target) bool { return t.PutOff }) > 0:
		a.Action = PutOffByOwner
	case a.State == IsUnhealthy && stuck >= 0:
		detail := a.Detail
		*a = c.unhealthy(&c.Targets[stuck], nil)
		a.Detail = detail
	case a.State == IsPending || a.State == IsStarting:
		if soonest := Soonest(c.Targets); !soonest.At.IsZero() {
			a.Detail += ", " + soonest.Target + " first"
		}
	}
}

// count is how many targets of c are such.
func (c *Check) count(such func(*Target) bool) int {
	n := 0
	for i := range c.Targets {
		if such(&c.Targets[i]) {
			n++
		}
	}
	return n
}
