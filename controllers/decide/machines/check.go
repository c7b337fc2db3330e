package machines

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// CyclesUnreadFor is for how long no remediation starts for a machine on a host while it is not known which power cycles are in progress.
const CyclesUnreadFor = 10 * time.Minute

// RemediationAllowed is the condition of a check, and its own reason while remediation is allowed.
const RemediationAllowed = clusterv1.MachineHealthCheckRemediationAllowedCondition

// checkConditions are the conditions of the check that this decision sets or removes: those that are kubemend's to write, and known. All others stand.
func checkConditions(f *Facts, p *Plan) []Condition {
	switch {
	case f.Mode == Paused && f.ActsUnclaimed && !f.Claimed: // the condition Paused of a claimed check is Cluster API core's
		return []Condition{condition(clusterv1.PausedCondition, conditionTrue, clusterv1.PausedReason, f.About.pausedForAll())}
	case (f.Mode == NoCluster || f.Mode == BadSelector) && (f.Claimed || f.ActsUnclaimed):
		return []Condition{p.Allowed}
	case f.Mode != Active:
		return nil
	}
	all := []Condition{p.Reach, exclusiveTargets(f)}
	if f.Cluster.Settled() {
		all = append(all, p.Allowed, cooldown(f, p), sparesAwaited(f, p))
	}
	if f.Template.Known || f.Template.Missing != "" {
		all = append(all, templateAvailable(f))
	}
	if back, set := capacityBack(f); set {
		all = append(all, back)
	}
	if !f.Claimed {
		all = append(all, condition(clusterv1.PausedCondition, conditionFalse, clusterv1.NotPausedReason, ""))
	}
	return all
}

func condition(kind, status, reason, message string) Condition {
	return Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// pausedForAll is Cluster API's message of the condition Paused.
func (a *About) pausedForAll() string {
	var why []string
	if a.ClusterPaused {
		why = append(why, "Cluster spec.paused is set to true")
	}
	if a.PausedBy != nil {
		why = append(why, "MachineHealthCheck has the cluster.x-k8s.io/paused annotation")
	}
	return strings.Join(why, ", ")
}

// allowed is the condition RemediationAllowed. A number that is out of the range has the same reason, too many or too few. (Cluster API)
//
// A reader that has not counted all machines repeats the message of the manager, which has.
func allowed(f *Facts, p *Plan) Condition {
	c := allowedAsCounted(f, p)
	if f.Counted != nil {
		if stored := f.About.Allowed; stored.Status == c.Status && stored.Reason == c.Reason {
			c.Message = stored.Message
		}
		return c
	}
	if left := leftToCycles(p); c.Status == conditionTrue && left != "" {
		c.Message = strings.TrimPrefix(c.Message+". "+left, ". ")
	}
	return c
}

func allowedAsCounted(f *Facts, p *Plan) Condition {
	not := func(why, message string) Condition {
		return condition(RemediationAllowed, conditionFalse, why, "Remediation is not allowed"+message)
	}
	switch {
	case f.Mode == NoCluster:
		return not(mendv1.ClusterNotFoundReason, fmt.Sprintf(", spec.clusterName: there is no Cluster %s in namespace %s", f.About.Cluster, f.About.Namespace))
	case f.Mode == BadSelector:
		return not(mendv1.InvalidSelectorReason, ", spec.selector: "+f.About.InvalidSelector)
	case f.Invalid:
		return not(mendv1.InvalidLimitReason, ", "+f.About.InvalidField+": "+f.About.InvalidWhy)
	case p.Grant.ShortCircuited():
		return not(clusterv1.MachineHealthCheckTooManyUnhealthyReason, ", "+arithmetic(f, p))
	case p.Grant.Reason == budget.CoolingDown:
		return not(mendv1.CoolingDownReason, coolingUntil(f, p))
	case f.Limits.InFlight == 0:
		return not(mendv1.NoneAtOnceReason, fmt.Sprintf(", metadata.annotations[%s] is %q: none may be in flight",
			mendv1.MaxInFlightAnnotation, ptr.Deref(f.About.Spelled.InFlight, "")))
	}
	message := ""
	if p.Grant.Reason == budget.AtWork {
		message = queueText(f, p)
	}
	return condition(RemediationAllowed, conditionTrue, RemediationAllowed, message)
}

// arithmetic is why too many or too few are unhealthy: Cluster API's sentence, with the field's name of today, and the sum that decided.
func arithmetic(f *Facts, plan *Plan) string {
	p, spelled := plan.Population, &f.About.Spelled
	sum := fmt.Sprintf("%d of %d targets are not healthy", p.NotHealthy(), p.Total())
	if p.Unread == 0 {
		sum += fmt.Sprintf(": %d unhealthy, %d pending, %d starting, %d being deleted, %d unknown",
			p.Unhealthy, p.Pending, p.Starting, p.Deleting, p.Unknown)
	}
	if spelled.Range != "" {
		return fmt.Sprintf("the number of not started or unhealthy machines does not fall within the range "+
			"(total: %d, unhealthy: %d, unhealthyInRange: %s). %s; the range allows %d to %d",
			p.Total(), p.Unhealthy, spelled.Range, sum, f.Limits.AtLeast, f.Limits.AtMost)
	}
	limit := spelled.MaxUnhealthy
	return fmt.Sprintf("the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo "+
		"(total: %d, unhealthy: %d, unhealthyLessThanOrEqualTo: %s). %s; %s of %d allows %d",
		p.Total(), p.Unhealthy, limit, sum, limit, p.Total(), f.Limits.AtMost)
}

// coolingUntil is until when nothing starts after a storm, as it follows that remediation is not allowed.
func coolingUntil(f *Facts, p *Plan) string {
	return fmt.Sprintf(" before %s: until %s too many machines were not healthy, and the cooldown after that is %s (%s)",
		stamp(p.Storm.Recheck), stamp(p.Storm.CoolingSince), ptr.Deref(f.About.Spelled.Cooldown, ""), mendv1.StormCooldownAnnotation)
}

// queueText is how many wait because of how many are remediated at once.
func queueText(f *Facts, p *Plan) string {
	waiting, inFlight := p.Population.Waiting-p.Grant.Start, p.Population.InFlight+p.Grant.Start
	wait := "remediations wait"
	if waiting == 1 {
		wait = "remediation waits"
	}
	return fmt.Sprintf("%d %s, %d of at most %d %s in flight (%s)",
		waiting, wait, inFlight, f.Limits.InFlight, are(inFlight), mendv1.MaxInFlightAnnotation)
}

// leftToCycles names the unhealthy machines that are left to a power cycle which the check did not request; empty if there is none.
func leftToCycles(p *Plan) string {
	var left []string
	for _, i := range p.Open {
		d := p.Decisions[i]
		if t := d.Target; t.Cycle != nil && d.Verdict.State == health.Unhealthy && !t.Deleting {
			left = append(left, fmt.Sprintf("%s to %s %s", t.Name, t.Cycle.Kind, t.Cycle.Name))
		}
	}
	if len(left) == 0 {
		return ""
	}
	return "Left to a power cycle that is under way: " + firstOf(left)
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
	c := Condition{Type: mendv1.WorkloadClusterReachable, Since: f.Now.Truncate(time.Second)}
	switch {
	case f.ReachStands():
		c.Status, c.Reason = was.Status, was.Reason
	case f.Cluster.Link == LinkUnsure:
		c.Status, c.Reason = conditionUnknown, mendv1.NotInitializedReason
	case f.Cluster.Link == LinkUp && (was.Status == conditionFalse || was.Reason == mendv1.ReachableAgainReason):
		c.Status, c.Reason = conditionTrue, mendv1.ReachableAgainReason
	case f.Cluster.Link == LinkUp:
		c.Status, c.Reason = conditionTrue, mendv1.ReachableReason
	case f.Outage.Changed != "":
		c.Status, c.Reason = conditionFalse, mendv1.ChangedReason
	case f.Outage.Refused != "":
		c.Status, c.Reason = conditionFalse, mendv1.KubeconfigRefusedReason
	default:
		c.Status, c.Reason = conditionFalse, mendv1.UnreachableReason
	}
	if was.Status == c.Status {
		c.Since = was.Since
	}
	c.Message = reachText(f, c)
	return c
}

// reachText is why nodes cannot be judged, and since when; empty if they can.
func reachText(f *Facts, c Condition) string {
	switch {
	case f.ReachStands():
		return f.Reach.Message
	case !f.Cluster.Initialized:
		return "The control plane of the Cluster is not initialized"
	case c.Status == conditionUnknown:
		return "The first connection to the workload cluster is being made"
	case c.Status == conditionTrue:
		return ""
	}
	message := "The workload cluster has been out of reach since " + stamp(c.Since) + "; machines cannot be judged as far as their nodes are concerned, " +
		"and nothing is started or ended because of them"
	if f.Outage.Changed != "" {
		message = fmt.Sprintf("Cluster %s: %s. %s", f.About.Cluster, f.Outage.Changed, message)
	}
	if f.Outage.Silent {
		message = "The API server answers probes, and leaves other requests unanswered or answers them without end, " +
			"so it is asked one at a time, after pauses. " + message
	}
	if f.Outage.Refused != "" {
		message = fmt.Sprintf("Secret %s-kubeconfig: %s. %s", f.About.Cluster, f.Outage.Refused, message)
	}
	return message
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

// exclusiveTargets is the condition TargetsExclusive: which other checks select machines of this one. Both say so; the older one acts.
func exclusiveTargets(f *Facts) Condition {
	var lines []string
	for _, other := range f.Overlaps {
		acts := "this check is older and acts on them"
		if other.Older {
			acts = "that check is older and acts on them"
		}
		if other.Shared > 0 {
			const shared = "* %d of %d targets are selected by MachineHealthCheck %s too: %s"
			lines = append(lines, fmt.Sprintf(shared, other.Shared, len(f.Targets), other.Name, acts))
		}
	}
	if len(lines) > 0 {
		return condition(mendv1.TargetsExclusive, conditionFalse, mendv1.OverlapReason, strings.Join(lines, "\n"))
	}
	return condition(mendv1.TargetsExclusive, conditionTrue, mendv1.ExclusiveReason, "")
}

// templateAvailable is the condition RemediationTemplateAvailable, which a check without a template does not have.
func templateAvailable(f *Facts) Condition {
	switch {
	case !f.Template.External:
		return Condition{Type: mendv1.RemediationTemplateAvailable, Remove: true}
	case f.Template.Refused:
		return condition(mendv1.RemediationTemplateAvailable, conditionFalse, mendv1.TemplateRefusedReason, f.noTemplate())
	case f.Template.Missing != "":
		return condition(mendv1.RemediationTemplateAvailable, conditionFalse, mendv1.TemplateNotFoundReason, f.noTemplate())
	}
	return condition(mendv1.RemediationTemplateAvailable, conditionTrue, mendv1.TemplateFoundReason, "")
}

// capacityBack is the condition CapacityBack: of how many remediations it is missing, and what the oldest waits for. While that is not known it
// stands as it is, and a check of which nothing was ever missing has none.
func capacityBack(f *Facts) (c Condition, set bool) {
	capacity := &f.Capacity
	if !capacity.Known {
		return Condition{}, false
	}
	if capacity.Missing == 0 {
		return condition(mendv1.CapacityBack, conditionTrue, mendv1.CapacityBackReason, ""), capacity.Reported
	}
	message := "The capacity of " + capacity.Target + " is not back"
	if capacity.Missing > 1 {
		message = fmt.Sprintf("The capacity of %d remediations is not back, for the longest time that of %s", capacity.Missing, capacity.Target)
	}
	if capacity.Message != "" {
		message += ": " + capacity.Message
	}
	return condition(mendv1.CapacityBack, conditionFalse, capacity.Reason, message), true
}

// cooldown is the condition StormCooldown, which there is only during a storm and its cooldown. It turned True when the cooldown began: so a cooldown
// outlives a restart of the manager.
func cooldown(f *Facts, p *Plan) Condition {
	switch {
	case !p.Storm.Active:
		return Condition{Type: mendv1.StormCooldown, Remove: true}
	case p.Storm.CoolingSince.IsZero():
		return condition(mendv1.StormCooldown, conditionFalse, mendv1.StormReason,
			"Too many machines are not healthy. When few enough are, the cooldown begins: "+ptr.Deref(f.About.Spelled.Cooldown, ""))
	}
	c := condition(mendv1.StormCooldown, conditionTrue, mendv1.CoolingDownReason, "Remediation is not allowed"+coolingUntil(f, p))
	c.Since = p.Storm.CoolingSince
	return c
}
