package machinehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Judge returns the verdicts on facts.Targets, in the same order.
func Judge(facts *Facts) []health.Verdict {
	initialized := ConditionTrue(facts.Cluster, clusterv1.ClusterControlPlaneInitializedCondition)
	ready := infrastructureReady(facts.Cluster)
	paused, reached := ClusterPaused(facts.Cluster), facts.ReachedAgain()
	starts := [...]time.Time{Since(initialized), Since(ready)}
	verdicts := make([]health.Verdict, len(facts.Targets))
	for i, target := range facts.Targets {
		judged := *target.Health
		judged.Paused, judged.Reached = judged.Paused || paused, reached
		for _, start := range starts {
			if start.After(judged.AwaitedSince) {
				judged.AwaitedSince = start
			}
		}
		if judged.AwaitedSince = judged.AwaitedSince.Add(judged.Lost); judged.Lost == 0 && reached.After(judged.AwaitedSince) {
			judged.AwaitedSince = reached
		}
		_, controlPlane := target.Labels[clusterv1.MachineControlPlaneLabel]
		switch {
		case facts.Policy.Misjudges(facts.ClockAhead):
			judged.Gate = health.ClockWrong
		case initialized == nil && !controlPlane:
			judged.Gate = health.ControlPlaneNotInitialized
		case ready == nil:
			judged.Gate = health.InfrastructureNotReady
		}
		verdicts[i] = health.Judge(judged, facts.Policy, facts.Now)
	}
	return verdicts
}

// infrastructureReady is the condition by which the infrastructure of cluster is ready; nil if it is not. A Cluster that names no
// infrastructure, beside a control plane that brings its own, has a condition that is Unknown for ever. (Cluster API,
// cluster_controller_status.go.)
func infrastructureReady(cluster *clusterv1.Cluster) *metav1.Condition {
	cond := ConditionOf(cluster, clusterv1.ClusterInfrastructureReadyCondition)
	named := cluster.Spec.InfrastructureRef.IsDefined() || cluster.Spec.Topology.IsDefined()
	switch {
	case cond == nil && !named:
		return &metav1.Condition{}
	case cond == nil, cond.Status == metav1.ConditionFalse, named && cond.Status != metav1.ConditionTrue:
		return nil
	}
	return cond
}

// ReachedAgain is when the workload cluster was reached again after an outage; zero if it never was unreachable.
func (facts *Facts) ReachedAgain() time.Time {
	if cond := reach(facts); cond.Reason == mendv1.ReachableAgainReason {
		return cond.LastTransitionTime.Time
	}
	return time.Time{}
}

// decisions are those about facts.Targets to begin with, in the same order, and the places of those about which there is something to
// decide.
func (facts *Facts) decisions() (decisions []*Decision, open []int) {
	list := make([]Decision, len(facts.Targets)) // in one piece: there may be thousands
	decisions = make([]*Decision, len(facts.Targets))
	for i, target := range facts.Targets {
		decision := &list[i]
		decision.Target, decision.Verdict = target, facts.Verdicts[i]
		if facts.plain(decision) {
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
func (facts *Facts) plain(decision *Decision) bool {
	target := decision.Target
	return decision.Verdict.State == health.Healthy && !Deleting(target.Machine) && target.Ownership == NoRequest && target.Cycle == nil &&
		MarkedHealthy(target.Machine)
}

// contradicted reports whether all that is held against the machine of decision is a failure that a provider once wrote, while its node is
// Ready: one with a wrong credential writes that of every machine.
func contradicted(facts *Facts, decision *Decision) bool {
	due := decision.Verdict.Due(facts.Now)
	believed := func(finding health.Finding) bool { return finding.Reason != health.MachineFailed }
	return decision.Target.NodeReady() && len(due) > 0 && !slices.ContainsFunc(due, believed)
}

// oneByOne lets one of those machines wait for its turn, once the capacity of the one before is back: no remediation goes on, and all
// machines have nodes. After one that does not come back a person has to see why.
func oneByOne(facts *Facts, plan *Plan) {
	turn := facts.Capacity.Missing == 0
	for _, i := range plan.Open {
		decision := plan.Decisions[i]
		turn = turn && !decision.InFlight && !Deleting(decision.Target.Machine) && decision.Target.Health.Node != health.NodeAwaited
	}
	for _, decision := range waiting(facts, plan) {
		switch {
		case !contradicted(facts, decision):
		case turn:
			turn = false
		default:
			decision.Waits, decision.AwaitsTurn = false, true
			plan.Population.Waiting--
		}
	}
}
