package machinehealthcheck

import (
	"slices"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// contradicted reports whether all that is held against the machine of decision is a failure that a provider once wrote, while its node is
// Ready: one with a wrong credential writes that of every machine.
func contradicted(facts *Facts, decision *Decision) bool {
	due := decision.Verdict.Due(facts.Now)
	believed := func(finding health.Finding) bool { return finding.Reason != health.MachineFailed }
	return decision.Target.NodeReady() && len(due) > 0 && !slices.ContainsFunc(due, believed)
}

// oneByOne lets one of those machines wait for its turn, once the capacity of the one before is back: no remediation goes on, and all
// machines have nodes. After one that does not come back a person has to see why. A reader of one machine does not know whose turn it is.
func oneByOne(facts *Facts, plan *Plan) {
	turn := facts.Capacity.Missing == 0 && facts.Counted == nil
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
