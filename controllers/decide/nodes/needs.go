package nodes

import "github.com/kubemend/kubemend/controllers/decide/health"

// NeedsControlPlane reports whether the control plane has to be read: it alone blocks one of its nodes, or will.
func NeedsControlPlane(f Facts) bool {
	concerns := false
	for i := range f.Nodes {
		concerns = concerns || f.Nodes[i].ControlPlane() && f.Concerns(&f.Nodes[i])
	}
	if !concerns {
		return false
	}
	d := &decider{f: &f, p: &Plan{Decisions: make([]Decision, len(f.Nodes))}, steps: stepsOf(f.Templates)}
	d.judge()
	d.recall()
	return len(d.dueMembers()) > 0 || d.nextMember() >= 0
}

// Release is the plan for a deleted check: its requests end, and then its leases. An uninstall does not wait for requests without end.
func Release(f Facts, uninstalling bool) Plan {
	p := Plan{Decisions: make([]Decision, len(f.Nodes)), Recheck: f.Recheck}
	d := &decider{f: &f, p: &p}
	d.recall()
	for i := range f.Nodes {
		c, clings := d.caseOf(i, &d.now), true
		c.Start, c.Would = -1, -1
		for j := range c.n.Requests {
			if c.n.Requests[j].Deleting().IsZero() {
				c.End = append(c.End, j)
			}
			clings = clings && c.n.Requests[j].Clings(f.Now)
		}
		if len(c.n.Requests) == 0 || uninstalling && clings {
			c.unleased()
		} else {
			c.leased()
		}
		p.Order = append(p.Order, i)
		p.Recheck = health.Earliest(p.Recheck, c.Recheck)
	}
	return p
}
