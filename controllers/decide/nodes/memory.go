package nodes

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// recall takes over what is remembered of the nodes and requests that there are, and forgets about the others.
func (d *decider) recall() {
	last, next := &d.f.Memory, &d.p.Memory
	next.Known, next.Decided = true, d.f.Now
	next.Flagged, next.Unpatchable, next.Succeeded, next.Recovered = map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	next.Started, next.Refusals, next.Recoveries = map[string]time.Time{}, map[string]Refusal{}, map[string]Recovery{}
	for i := range d.f.Nodes {
		n := &d.f.Nodes[i]
		if len(n.Requests) > 0 {
			d.p.Decisions[i].Requests = make([]RequestState, len(n.Requests))
		}
		for j := range n.Requests {
			r := &n.Requests[j]
			d.p.Decisions[i].Requests[j] = d.stateOf(n, r, i)
			if r.succeeded() == escalation.Yes {
				next.Succeeded[r.ID()] = true
			}
			if last.Flagged[r.ID()] {
				next.Flagged[r.ID()] = true
			}
			if last.Unpatchable[r.ID()] {
				next.Unpatchable[r.ID()] = true
			}
		}
		for j := range n.Gone {
			if id := string(n.Gone[j].Resource.UID); last.Succeeded[id] {
				next.Succeeded[id] = true
			}
		}
		d.recallRefusal(i)
		d.recallRecovery(i)
	}
}

func (d *decider) stateOf(n *Node, r *Request, i int) RequestState {
	over := !r.Deleting().IsZero() && (r.Listed == nil || r.ListedHealthy)
	state := RequestState{Over: over, Counted: d.f.countedFrom(r, over), Recovered: d.recovered(n, r, i)}
	d.p.Memory.Recovered[r.ID()] = state.Recovered
	d.delayed(n, r, &state)
	return state
}

// countedFrom is from when on the time of r's step counts.
//
// A node may become unhealthy again while a request of the last time is still there: it was deleted when the node was healthy, or gone,
// and its remediator has not released it. It may be at work or not. So the new failure begins with that request: it is a step of it, with
// the time that it had left when it was deleted. Until something could be begun for the node, though, nothing is begun with it either.
func (f *Facts) countedFrom(r *Request, over bool) time.Time {
	switch {
	case over:
		return f.Now.Add(-max(0, r.Deleting().Sub(r.Started())))
	case r.Listed != nil && r.Listed.Started.After(r.Started()):
		return r.Listed.Started.Time
	}
	return r.Started()
}

// recovered reports whether r is known to have succeeded when its node was seen healthy, whatever the clocks say. Of those that were seen
// healthy before this process began the status tells: they were delayed. It goes on saying so of a node that is unhealthy again, until
// that is begun anew.
func (d *decider) recovered(n *Node, r *Request, i int) bool {
	had, known := d.f.Memory.Recovered[r.ID()]
	healthy := n.Exists() && d.p.Decisions[i].Verdict.State == health.Healthy
	return had || r.succeeded() == escalation.Yes && (healthy || !known && n.delayed())
}

// delayed gives a request the time back in which its remediator could do nothing: the API server was out of reach; or no manager ran, for
// whatever reason. That is known by the lease on the node, which is renewed after half of its term at the latest: then all the time since
// it was renewed last is given back, at the first reconcile. It is remembered here, and for the next manager in the status.
func (d *decider) delayed(n *Node, r *Request, state *RequestState) {
	outages := d.f.Outages
	if !d.f.Memory.Known {
		outages = n.Lease.unrenewed(d.f.Outages, d.f.Now)
	}
	if at, known := d.f.Memory.Started[r.ID()]; known && at.After(state.Counted) {
		state.Counted = at
	}
	if state.Over {
		return
	}
	for _, o := range outages {
		if o.To.After(d.f.Memory.Decided) {
			state.Counted = state.Counted.Add(o.after(state.Counted))
		}
	}
	if state.Counted.After(r.Started()) {
		d.p.Memory.Started[r.ID()] = state.Counted
	}
}

// restartSlack is by how much a lease may be renewed later than it should be: reconciles take a while.
const restartSlack = 5 * time.Second

// unrenewed is the time in which no remediator could work, as a process sees it that begins: all of the time since l was renewed, if the
// check should have done that again meanwhile; else of what this process has seen itself what came after that. What was before it was
// given back already.
func (l *Lease) unrenewed(seen []Outage, now time.Time) []Outage {
	if l == nil || !l.Own || l.Renewed.IsZero() {
		return seen
	}
	if now.Sub(l.Renewed) > (l.Duration-leaseBuffer)/2+restartSlack {
		return []Outage{{l.Renewed, now}}
	}
	return slices.DeleteFunc(slices.Clone(seen), func(o Outage) bool { return !o.To.After(l.Renewed) })
}
