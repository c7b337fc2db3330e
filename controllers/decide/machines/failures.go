package machines

import (
	"slices"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// contradicted reports whether all that is held against the machine of d is a failure that a provider once wrote, while its node is
// Ready: one with a wrong credential writes that of every machine.
func contradicted(f *Facts, d *Decision) bool {
	due := d.Verdict.Due(f.Now)
	believed := func(is health.Finding) bool { return is.Reason != health.MachineFailed }
	return d.Target.NodeReady && len(due) > 0 && !slices.ContainsFunc(due, believed)
}

// oneByOne lets one of those machines wait for its turn, once the capacity of the one before is back: no remediation goes on, and all
// machines have nodes. After one that does not come back a person has to see why. A reader of one machine does not know whose turn it is.
func oneByOne(f *Facts, p *Plan) {
	turn := f.Capacity.Missing == 0 && f.Counted == nil
	for _, i := range p.Open {
		d := p.Decisions[i]
		turn = turn && !d.InFlight && !d.Target.Deleting && d.Target.Health.Node != health.NodeAwaited
	}
	for _, d := range waiting(f, p) {
		switch {
		case !contradicted(f, d):
		case turn:
			turn = false
		default:
			d.Waits, d.AwaitsTurn = false, true
			p.Population.Waiting--
		}
	}
}
