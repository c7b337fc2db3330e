package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// CheckMessage is the message of c, a condition of a check. It is the same to the letter while the observed state is.
func CheckMessage(f *machines.Facts, p *machines.Plan, c machines.Condition) string {
	if c.Remove {
		return ""
	}
	switch c.Type {
	case machines.RemediationAllowed:
		_, message := RemediationAllowed(f, p)
		return message
	case machines.WorkloadClusterReachable:
		return reachable(f, c)
	case machines.TargetsExclusive:
		return overlapping(f)
	case machines.RemediationTemplateAvailable:
		if f.Template.Missing != "" {
			return NoTemplate(f)
		}
	case machines.StormCooldown:
		if c.Status == "True" {
			return coolingUntil(f, p)
		}
		return "Too many machines are not healthy. When few enough are, the cooldown begins: " + ptr.Deref(f.About.Spelled.Cooldown, "")
	case machines.SpareHostAvailable:
		return waitForSpare(f, p)
	case machines.CapacityBack:
		if c.Status == "False" {
			return capacityMissing(&f.Capacity)
		}
	case machines.PausedCondition:
		if c.Status == "True" {
			return paused(f)
		}
	}
	return ""
}

// paused is Cluster API's message of the condition Paused.
func paused(f *machines.Facts) string {
	var why []string
	if f.About.ClusterPaused {
		why = append(why, "Cluster spec.paused is set to true")
	}
	if f.About.PausedBy != nil {
		why = append(why, "MachineHealthCheck has the cluster.x-k8s.io/paused annotation")
	}
	return strings.Join(why, ", ")
}

// reachable says why nodes cannot be judged, and since when; it is empty if they can.
func reachable(f *machines.Facts, c machines.Condition) string {
	switch {
	case f.ReachStands():
		return f.Reach.Message
	case !f.Cluster.Initialized:
		return "The control plane of the Cluster is not initialized"
	case c.Status == "Unknown":
		return "The first connection to the workload cluster is being made"
	case c.Status == "True":
		return ""
	}
	message := fmt.Sprintf("The workload cluster has been out of reach since %s; machines cannot be judged as far as their nodes are concerned, "+
		"and nothing is started or ended because of them", c.Since.UTC().Format(time.RFC3339))
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

// overlapping names the other checks that select machines of this one. Both say so; the older one acts.
func overlapping(f *machines.Facts) string {
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
	return strings.Join(lines, "\n")
}

// RemediationAllowed is the reason and the message of the condition RemediationAllowed.
func RemediationAllowed(f *machines.Facts, p *machines.Plan) (reason, message string) {
	reason = p.Allowed.Reason
	switch reason {
	case mendv1.ClusterNotFoundReason:
		message = fmt.Sprintf("Remediation is not allowed, spec.clusterName: there is no Cluster %s in namespace %s", f.About.Cluster, f.About.Namespace)
	case mendv1.InvalidSelectorReason:
		message = "Remediation is not allowed, spec.selector: " + f.About.InvalidSelector
	case mendv1.InvalidLimitReason:
		message = "Remediation is not allowed, " + f.About.InvalidField + ": " + f.About.InvalidWhy
	case clusterv1.MachineHealthCheckTooManyUnhealthyReason:
		message = machineArithmetic(f, p)
	case mendv1.CoolingDownReason:
		message = coolingUntil(f, p)
	case mendv1.NoneAtOnceReason:
		message = fmt.Sprintf("Remediation is not allowed, metadata.annotations[%s] is %q: none may be in flight",
			mendv1.MaxInFlightAnnotation, *f.About.Spelled.InFlight)
	default:
		if p.Grant.Reason == budget.AtWork {
			message = queue(f, p)
		}
	}
	if f.Counted != nil { // the manager has counted what was not read
		if stored := f.About.Allowed; stored.Status == p.Allowed.Status && stored.Reason == reason {
			message = stored.Message
		}
		return reason, message
	}
	if left := leftToCycles(p); p.Allowed.Status == "True" && left != "" {
		message = strings.TrimPrefix(message+". "+left, ". ")
	}
	return reason, message
}

// maxNames is how many machines a message names; the rest are counted.
const maxNames = 10

// leftToCycles names the unhealthy machines that are left to a power cycle which the check did not request; empty if there is none.
func leftToCycles(p *machines.Plan) string {
	var left []string
	for _, i := range p.Open {
		d := p.Decisions[i]
		if t := d.Target; t.Cycle != nil && d.Verdict.State == health.Unhealthy && !t.Deleting {
			left = append(left, fmt.Sprintf("%s to %s %s", t.Name, t.Cycle.Kind, t.Cycle.Name))
		}
	}
	switch n := len(left); {
	case n == 0:
		return ""
	case n > maxNames:
		return fmt.Sprintf("Left to a power cycle that is under way: %s and %d more", strings.Join(left[:maxNames], ", "), n-maxNames)
	}
	return "Left to a power cycle that is under way: " + strings.Join(left, ", ")
}

// queue says how many wait because of how many are remediated at once.
func queue(f *machines.Facts, p *machines.Plan) string {
	waiting, inFlight := p.Population.Waiting-p.Grant.Start, p.Population.InFlight+p.Grant.Start
	wait := "remediations wait"
	if waiting == 1 {
		wait = "remediation waits"
	}
	return fmt.Sprintf("%d %s, %d of at most %d %s in flight (%s)", waiting, wait, inFlight, f.Limits.InFlight, Are(inFlight), mendv1.MaxInFlightAnnotation)
}

// machineArithmetic says why nothing is remediated: Cluster API's sentence, with the field's name of today, and the sum that decided.
func machineArithmetic(f *machines.Facts, plan *machines.Plan) string {
	p, spelled := plan.Population, &f.About.Spelled
	sum := fmt.Sprintf("%d of %d targets are not healthy: %d unhealthy, %d pending, %d starting, %d being deleted, %d unknown",
		p.NotHealthy(), p.Total(), p.Unhealthy, p.Pending, p.Starting, p.Deleting, p.Unknown)
	if p.Unread > 0 {
		sum = fmt.Sprintf("%d of %d targets are not healthy", p.NotHealthy(), p.Total())
	}
	if spelled.Range != "" {
		return fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range "+
			"(total: %d, unhealthy: %d, unhealthyInRange: %s). %s; the range allows %d to %d",
			p.Total(), p.Unhealthy, spelled.Range, sum, f.Limits.AtLeast, f.Limits.AtMost)
	}
	limit := spelled.MaxUnhealthy
	return fmt.Sprintf("Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo "+
		"(total: %d, unhealthy: %d, unhealthyLessThanOrEqualTo: %s). %s; %s of %d allows %d",
		p.Total(), p.Unhealthy, limit, sum, limit, p.Total(), f.Limits.AtMost)
}

// coolingUntil says until when nothing starts after a storm.
func coolingUntil(f *machines.Facts, p *machines.Plan) string {
	return fmt.Sprintf("Remediation is not allowed before %s: until %s too many machines were not healthy, and the cooldown after that is %s (%s)",
		p.Storm.Recheck.UTC().Format(time.RFC3339), p.Storm.CoolingSince.UTC().Format(time.RFC3339),
		ptr.Deref(f.About.Spelled.Cooldown, ""), mendv1.StormCooldownAnnotation)
}
