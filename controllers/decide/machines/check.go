package machines

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// CyclesUnreadFor is for how long no remediation starts for a machine on a host while it is not known which power cycles are in progress.
const CyclesUnreadFor = 10 * time.Minute

// The conditions of a check. RemediationAllowed is also its own reason while remediation is allowed. (Cluster API)
const (
	RemediationAllowed           = "RemediationAllowed"
	WorkloadClusterReachable     = "WorkloadClusterReachable"
	TargetsExclusive             = "TargetsExclusive"
	RemediationTemplateAvailable = "RemediationTemplateAvailable"
	StormCooldown                = "StormCooldown"
	SpareHostAvailable           = "SpareHostAvailable"
	CapacityBack                 = "CapacityBack"
	PausedCondition              = "Paused"
)

// The reasons of these conditions, where they are not those of blockers.
const (
	ClusterNotFound Reason = "ClusterNotFound"
	InvalidSelector Reason = "InvalidSelector"

	NotInitialized    Reason = "NotInitialized"
	Reachable         Reason = "Reachable"
	ReachableAgain    Reason = "ReachableAgain"
	Unreachable       Reason = "Unreachable"
	KubeconfigRefused Reason = "KubeconfigRefused"
	Changed           Reason = "WorkloadClusterChanged"

	exclusive        Reason = "Exclusive"
	overlap          Reason = "Overlap"
	templateFound    Reason = "TemplateFound"
	templateNotFound Reason = "RemediationTemplateNotFound"
	storm            Reason = "Storm"
	paused           Reason = "Paused"
	notPaused        Reason = "NotPaused"
)

// checkConditions are the conditions of the check that this decision sets or removes: those that are kubemend's to write, and known. All others stand.
func checkConditions(f *Facts, p *Plan) []Condition {
	switch {
	case f.Mode == Paused && f.ActsUnclaimed && !f.Claimed: // the condition Paused of a claimed check is Cluster API core's
		return []Condition{condition(PausedCondition, conditionTrue, paused)}
	case (f.Mode == NoCluster || f.Mode == BadSelector) && (f.Claimed || f.ActsUnclaimed):
		return []Condition{p.Allowed}
	case f.Mode != Active:
		return nil
	}
	all := []Condition{p.Reach, exclusiveTargets(f)}
	if f.Cluster.Settled() {
		all = append(all, p.Allowed, cooldown(p), sparesAwaited(p))
	}
	if f.Template.Known || f.Template.Missing != "" {
		all = append(all, templateAvailable(f))
	}
	if back, set := capacityBack(f); set {
		all = append(all, back)
	}
	if !f.Claimed {
		all = append(all, condition(PausedCondition, conditionFalse, notPaused))
	}
	return all
}

func condition(kind, status string, reason Reason) Condition {
	return Condition{Type: kind, Status: status, Reason: string(reason)}
}

// allowed is the condition RemediationAllowed. A number that is out of the range has the same reason, too many or too few. (Cluster API)
func allowed(f *Facts, p *Plan) Condition {
	not := func(why Reason) Condition { return condition(RemediationAllowed, conditionFalse, why) }
	switch {
	case f.Mode == NoCluster:
		return not(ClusterNotFound)
	case f.Mode == BadSelector:
		return not(InvalidSelector)
	case f.Invalid:
		return not(InvalidLimit)
	case p.Grant.ShortCircuited():
		return not(TooManyUnhealthy)
	case p.Grant.Reason == budget.CoolingDown:
		return not(CoolingDown)
	case f.Limits.InFlight == 0:
		return not(NoneAtOnce)
	}
	return condition(RemediationAllowed, conditionTrue, RemediationAllowed)
}

// restriction is why the limits keep a machine from being remediated, or cannot be read; empty if they do not.
//
// The limits are mostly exceeded before that, since pending machines count as well; but a warning before any machine is
// unhealthy would warn of every rollout. (Cluster API does not warn of those either.)
func restriction(f *Facts, p *Plan) string {
	switch {
	case f.Invalid:
		return string(InvalidLimit)
	case p.Grant.ShortCircuited() && p.Population.Unhealthy > 0:
		return string(TooManyUnhealthy)
	case p.Grant.Reason == budget.CoolingDown:
		return string(CoolingDown)
	}
	return ""
}

// reach is the condition WorkloadClusterReachable: whether nodes can be judged, and since when.
func reach(f *Facts) Condition {
	was := &f.Reach
	c := Condition{Type: WorkloadClusterReachable, Since: f.Now.Truncate(time.Second)}
	switch {
	case f.ReachStands():
		c.Status, c.Reason = was.Status, was.Reason
	case f.Cluster.Link == LinkUnsure:
		c.Status, c.Reason = conditionUnknown, string(NotInitialized)
	case f.Cluster.Link == LinkUp && (was.Status == conditionFalse || was.Reason == string(ReachableAgain)):
		c.Status, c.Reason = conditionTrue, string(ReachableAgain)
	case f.Cluster.Link == LinkUp:
		c.Status, c.Reason = conditionTrue, string(Reachable)
	case f.Outage.Changed != "":
		c.Status, c.Reason = conditionFalse, string(Changed)
	case f.Outage.Refused != "":
		c.Status, c.Reason = conditionFalse, string(KubeconfigRefused)
	default:
		c.Status, c.Reason = conditionFalse, string(Unreachable)
	}
	if was.Status == c.Status {
		c.Since = was.Since
	}
	return c
}

// ReachStands reports whether the condition WorkloadClusterReachable stands as it was, with its message: an answer of the workload cluster is awaited, or
// a reader repeats what the manager reports of it.
func (f *Facts) ReachStands() bool {
	switch {
	case !f.Cluster.Initialized:
		return false
	case f.Outage.Reported && f.Reach.Status == conditionFalse && f.Reach.Message != "":
		return true
	}
	return f.Cluster.Link == LinkUnsure && f.Reach.Status != ""
}

// exclusiveTargets is the condition TargetsExclusive: whether other checks select machines of this one.
func exclusiveTargets(f *Facts) Condition {
	if slices.ContainsFunc(f.Overlaps, func(o Overlap) bool { return o.Shared > 0 }) {
		return condition(TargetsExclusive, conditionFalse, overlap)
	}
	return condition(TargetsExclusive, conditionTrue, exclusive)
}

// templateAvailable is the condition RemediationTemplateAvailable, which a check without a template does not have.
func templateAvailable(f *Facts) Condition {
	switch {
	case !f.Template.External:
		return Condition{Type: RemediationTemplateAvailable, Remove: true}
	case f.Template.Refused:
		return condition(RemediationTemplateAvailable, conditionFalse, TemplateRefused)
	case f.Template.Missing != "":
		return condition(RemediationTemplateAvailable, conditionFalse, templateNotFound)
	}
	return condition(RemediationTemplateAvailable, conditionTrue, templateFound)
}

// capacityBack is the condition CapacityBack. While it is not known what is missing it stands as it is, and a check of which nothing was ever missing has none.
func capacityBack(f *Facts) (c Condition, set bool) {
	switch is := &f.Capacity; {
	case !is.Known:
		return Condition{}, false
	case is.Missing > 0:
		return condition(CapacityBack, conditionFalse, Reason(is.Reason)), true
	default:
		return condition(CapacityBack, conditionTrue, CapacityBack), is.Reported
	}
}

// cooldown is the condition StormCooldown, which there is only during a storm and its cooldown. It turned True when the cooldown began: so a cooldown
// outlives a restart of the manager.
func cooldown(p *Plan) Condition {
	switch {
	case !p.Storm.Active:
		return Condition{Type: StormCooldown, Remove: true}
	case p.Storm.CoolingSince.IsZero():
		return condition(StormCooldown, conditionFalse, storm)
	}
	c := condition(StormCooldown, conditionTrue, CoolingDown)
	c.Since = p.Storm.CoolingSince
	return c
}
