package machines

import (
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Judge returns the verdicts on f.Targets, in the same order.
func Judge(f *Facts) []health.Verdict {
	reached := f.reachedAgain()
	verdicts := make([]health.Verdict, len(f.Targets))
	for i, target := range f.Targets {
		verdicts[i] = health.Judge(f.health(target, reached), f.Policy, f.Now)
	}
	return verdicts
}

// reachedAgain is when the workload cluster was reached again after an outage; zero if it never was unreachable.
func (f *Facts) reachedAgain() time.Time {
	if cond := reach(f); cond.Reason == mendv1.ReachableAgainReason {
		return cond.Since
	}
	return time.Time{}
}

// health is what the verdict on target depends on.
func (f *Facts) health(target *Target, reached time.Time) health.Target {
	facts, cluster := target.Health, &f.Cluster
	facts.Paused, facts.Reached = facts.Paused || cluster.Paused, reached
	for _, start := range [...]time.Time{cluster.InitializedAt, cluster.ReadyAt, reached} {
		if start.After(facts.AwaitedSince) {
			facts.AwaitedSince = start
		}
	}
	switch {
	case !cluster.Initialized && !target.ControlPlane:
		facts.Gate = health.ControlPlaneNotInitialized
	case !cluster.InfrastructureReady:
		facts.Gate = health.InfrastructureNotReady
	}
	return facts
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
	return decision.Verdict.State == health.Healthy && !target.Deleting && target.Request == NoRequest && target.Cycle == nil &&
		!f.Template.Unread && target.Healthy
}
