package machines

import (
	"slices"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// contradicted reports whether all that is held against the machine of d is a failure that a provider once wrote, while its node is Ready: a provider with a
// wrong credential writes that of every machine.
func contradicted(f *Facts, d *Decision) bool {
	due := d.Verdict.Due(f.Now)
	return d.Target.NodeReady && len(due) > 0 &&
		!slices.ContainsFunc(due, func(is health.Finding) bool { return is.Reason != health.MachineFailed })
}

// oneByOne lets one of those machines wait for its turn, once the capacity of the one before is back. Of one that does not come back a person has to see
// why. A reader that has not read the others does not know whose turn it is.
func oneByOne(f *Facts, p *Plan) {
	turn := f.Capacity.Missing == 0 && !slices.ContainsFunc(p.Open, func(i int) bool { return away(p.Decisions[i]) })
	for _, d := range waiting(f, p) {
		if !contradicted(f, d) {
			continue
		}
		why := FailureContradicted
		if f.Counted != nil {
			why = QueueUnread
		} else if turn {
			turn = false
			continue
		}
		d.Waits, d.Blockers = false, append(d.Blockers, Blocker{Reason: why})
		p.Population.Waiting--
	}
}

// away reports whether the capacity of the machine of d is not back: its remediation goes on, or it has no node yet.
func away(d *Decision) bool {
	return d.InFlight || d.Target.Deleting || d.Target.Health.Node == health.NodeAwaited
}
