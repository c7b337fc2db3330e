package machines

import (
	"slices"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// contradicted reports whether all that is held against the machine of d is a failure that a provider once wrote, while its node is
// Ready: one with a wrong credential writes that of every machine.
func contradicted(facts *Facts, d *Decision) bool {
	due := d.Verdict.Due(facts.Now)
	believed := func(finding health.Finding) bool { return finding.Reason != health.MachineFailed }
	return d.Target.NodeReady() && len(due) > 0 && !slices.ContainsFunc(due, believed)
}

// oneByOne lets one of those machines wait for its turn, once the capacity of the one before is back: no remediation goes on, and all
// machines have nodes. After one that does not come back a person has to see why. A reader of one machine does not know whose turn it is.
func oneByOne(facts *Facts, plan *Plan) {
	turn := facts.Capacity.Missing == 0 && facts.Counted == nil
	for _, i := range plan.Open {
		d := plan.Decisions[i]
		turn = turn && !d.InFlight && !Deleting(d.Target.Machine) && d.Target.Health.Node != health.NodeAwaited
	}
	for _, d := range waiting(facts, plan) {
		switch {
		case !contradicted(facts, d):
		case turn:
			turn = false
		default:
			d.Waits, d.AwaitsTurn = false, true
			plan.Population.Waiting--
		}
	}
}
