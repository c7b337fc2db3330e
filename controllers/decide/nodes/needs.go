package nodes

import "github.com/kubemend/kubemend/controllers/decide/health"

// NeedsControlPlane reports whether a node of the control plane is, or will be, blocked by nothing but the others: then the control plane
// has to be read.
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

// Release returns the plan for the orphaned requests and leases of a deleted check: the requests end, and the lease on a node after them.
// During an uninstall the requests are not waited for without end.
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
