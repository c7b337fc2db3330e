package machines

import (
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Judge returns the verdicts on f.Targets, in the same order.
func Judge(f *Facts) []health.Verdict {
	initialized := ConditionTrue(f.Cluster, clusterv1.ClusterControlPlaneInitializedCondition)
	ready := ConditionTrue(f.Cluster, clusterv1.ClusterInfrastructureReadyCondition)
	paused, reached := ClusterPaused(f.Cluster), f.reachedAgain()
	starts := [...]time.Time{Since(initialized), Since(ready), reached}
	verdicts := make([]health.Verdict, len(f.Targets))
	for i, target := range f.Targets {
		facts := target.Health
		facts.Paused, facts.Reached = facts.Paused || paused, reached
		for _, start := range starts {
			if start.After(facts.AwaitedSince) {
				facts.AwaitedSince = start
			}
		}
		_, controlPlane := target.Labels[clusterv1.MachineControlPlaneLabel]
		switch {
		case initialized == nil && !controlPlane:
			facts.Gate = health.ControlPlaneNotInitialized
		case ready == nil:
			facts.Gate = health.InfrastructureNotReady
		}
		verdicts[i] = health.Judge(facts, f.Policy, f.Now)
	}
	return verdicts
}

// reachedAgain is when the workload cluster was reached again after an outage; zero if it never was unreachable.
func (f *Facts) reachedAgain() time.Time {
	if cond := reach(f); cond.Reason == mendv1.ReachableAgainReason {
		return cond.LastTransitionTime.Time
	}
	return time.Time{}
}

// decisions are those about f.Targets to begin with, in the same order, and the places of those about which there is something to decide.
func (f *Facts) decisions() (decisions []*Decision, open []int) {
	list := make([]Decision, len(f.Targets)) // in one piece: there may be thousands
	decisions = make([]*Decision, len(f.Targets))
	for i, target := range f.Targets {
		decision := &list[i]
		decision.Target, decision.Verdict = target, f.Verdicts[i]
		if f.plain(decision) {
			decision.Blockers = notUnhealthy
		} else {
			open = append(open, i)
		}
		decisions[i] = decision
	}
	return decisions, open
}

// plain reports whether there is nothing to decide about the machine of decision: it is healthy, which time alone does not change, and
// nothing was begun for it. Nearly all machines are.
func (f *Facts) plain(decision *Decision) bool {
	target := decision.Target
	return decision.Verdict.State == health.Healthy && !Deleting(target.Machine) && target.Ownership == NoRequest && target.Cycle == nil &&
		MarkedHealthy(target.Machine)
}
