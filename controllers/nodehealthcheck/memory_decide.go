package nodehealthcheck

import (
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// recall takes over what is remembered of the nodes and requests that there are, and forgets about the others.
func (d *decider) recall() {
	last, next := &d.f.Memory, &d.p.Memory
	next.Decided = d.f.Now
	next.Requests, next.Refusals, next.Recoveries = map[string]RequestMemory{}, map[string]Refusal{}, map[string]Recovery{}
	for i := range d.f.Nodes {
		n := &d.f.Nodes[i]
		states := make([]RequestState, 0, len(n.Requests))
		for j := range n.Requests {
			r := &n.Requests[j]
			known := last.Requests[r.ID()]
			known.Succeeded = r.succeeded() == escalation.Yes
			states = append(states, d.stateOf(n, r, &known))
			next.Requests[r.ID()] = known
		}
		d.p.Decisions[i].Requests = states
		for j := range n.Gone {
			id := string(n.Gone[j].Resource.UID)
			if known, remembered := last.Requests[id]; remembered {
				next.Requests[id] = known
			}
		}
		d.recallRefusal(i)
		d.recallRecovery(i)
	}
}

// stateOf gives a request the time back in which its remediator could do nothing: the API server was out of reach; or no manager ran, for
// whatever reason. That is known by the lease on the node, which is renewed after half of its term at the latest: then all the time since
// it was renewed last is given back, at the first reconcile. It is remembered here, and for the next manager in the status.
func (d *decider) stateOf(n *Node, r *Request, known *RequestMemory) RequestState {
	over := !r.Deleting().IsZero() && (r.Listed == nil || !n.healthySince().IsZero())
	state := RequestState{Over: over, Counted: health.Latest(d.f.countedFrom(r, over), known.Started)}
	if known.Started = (time.Time{}); over {
		return state
	}
	outages := d.f.Outages
	if d.f.Memory.Decided.IsZero() {
		outages = n.Lease.unrenewed(d.f.Outages, d.f.Now)
	}
	for _, o := range outages {
		if o.To.After(d.f.Memory.Decided) {
			state.Counted = state.Counted.Add(o.after(state.Counted))
		}
	}
	if state.Counted.After(r.Started()) {
		known.Started = state.Counted
	}
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

// restartSlack is by how much a lease may be renewed later than it should be: reconciles take a while.
const restartSlack = 5 * time.Second

// unrenewed is the time in which no remediator could work, as a process sees it that begins: all of the time since l was renewed, if the
// check should have done that again meanwhile; else of what this process has seen itself what came after that. What was before it was
// given back already.
func (l *Lease) unrenewed(seen []Outage, now time.Time) []Outage {
	if !l.own() || l.Spec.RenewTime == nil {
		return seen
	}
	renewed := l.Spec.RenewTime.Time
	if now.Sub(renewed) > (l.expiry().Sub(renewed)-leaseBuffer)/2+restartSlack {
		return []Outage{{renewed, now}}
	}
	return slices.DeleteFunc(slices.Clone(seen), func(o Outage) bool { return !o.To.After(renewed) })
}

// A remediator that replaces machines says that it has succeeded when the old one is gone, which is long before there is a new node.
// Until then the node is missing: the limits count it as one that is being remediated, or else each replacement would lower the number of
// which the next ones may take their share. It stays in the status, without requests, so that the next manager knows it as well. What
// ends that is a node that is made after it had gone, one for each that is missing, or its own return, or that it takes too long.

// missing finds out which of the nodes that a remediation took away nothing has replaced yet, and returns until when the first of them is
// missed. What one node has replaced, or what has come back, is listed no more; so that no node is taken for the replacement of two, the
// others are missed since then.
func (d *decider) missing() time.Time {
	var taken []int
	for i := range d.f.Nodes {
		if d.takenAway(&d.f.Nodes[i]) {
			taken = append(taken, i)
		}
	}
	if len(taken) == 0 {
		return time.Time{}
	}
	since := func(i int) time.Time { return d.f.Nodes[i].GoneSince(d.f.Now) }
	slices.SortStableFunc(taken, func(a, b int) int { return since(a).Compare(since(b)) })
	made, newest := d.nodesMade()
	var until time.Time
	for _, i := range taken {
		if j := slices.IndexFunc(made, since(i).Before); j >= 0 {
			made = made[j+1:]
			continue
		}
		decision := &d.p.Decisions[i]
		decision.Missing, decision.MissedSince = true, health.Latest(since(i), newest)
		until = health.Earliest(until, since(i).Add(controlplane.ReplacementPatience))
	}
	return until
}

// nodesMade is when the selected nodes were made, the oldest first, without those that were away themselves; and when the newest was.
func (d *decider) nodesMade() (made []time.Time, newest time.Time) {
	for i := range d.f.Nodes {
		n := &d.f.Nodes[i]
		if !n.Selected || !n.Exists() {
			continue
		}
		created, gone := n.Object.CreationTimestamp.Time, n.healthySince()
		newest = health.Latest(newest, created)
		if back := !gone.IsZero() && created.After(gone); !back {
			made = append(made, created)
		}
	}
	slices.SortFunc(made, time.Time.Compare)
	return made, newest
}

// takenAway reports whether a remediation may have taken n away lately. Of a Node that a person deleted no remediator says anything.
func (d *decider) takenAway(n *Node) bool {
	switch {
	case n.Exists() || len(n.Unseen) > 0 || !d.f.Now.Before(n.GoneSince(d.f.Now).Add(controlplane.ReplacementPatience)):
		return false
	case len(n.Requests) > 0:
		return slices.ContainsFunc(n.Requests, func(r Request) bool {
			return r.succeeded() == escalation.Yes || r.deletesNode() || r.MachineThere || r.Kept()
		})
	}
	return n.remembered()
}

// GoneSince is since when n, which is not there, is known to be gone.
func (n *Node) GoneSince(now time.Time) time.Time {
	if since := n.healthySince(); !since.IsZero() {
		return since
	}
	return now
}

// nodeAway is how long a node may be gone while a remediator has its finalizer on a request that it has not answered: it may have deleted
// the Node, to make it again. (Poison Pill and Self Node Remediation before v0.8 do, while the node reboots.)
const nodeAway = 10 * time.Minute

// gone: the node is gone, not only out of the selection, so its requests have nothing left to do; but for those that wait (see awaited).
// The lease stays until the last of them is gone, also if Kubernetes deletes it with the node: that may come back under its name.
func (c *Case) gone() {
	kept := false
	for j := range c.n.Requests {
		r := &c.n.Requests[j]
		if !r.Deleting().IsZero() {
			c.lookAgain(later(r.Deleting().Add(ClingingFor), c.f.Now))
			c.stops(j)
			continue
		}
		if until := c.awaited(j); c.f.Now.Before(until) {
			c.happens(rule.Step{At: until, Reason: StaysAway, Text: "the node has stayed away for too long, and its request is deleted"})
			kept = true
			continue
		}
		c.stops(j)
		c.Requests[j].End = true
	}
	if kept {
		c.leased()
	} else if len(c.n.Requests) == 0 {
		c.unleased()
	}
}

// stops notifies the remediator of a request that keeps it: Self Node Remediation releases requests about a Node that is gone only then.
func (c *Case) stops(j int) {
	if r := &c.n.Requests[j]; r.Kept() && !r.notified() && !c.f.Memory.Requests[r.ID()].Unpatchable {
		c.Requests[j].note(nhcv1.TimedOutAnnotation, stamp(c.f.Now))
	}
}

// awaited is until when a request is kept whose node is gone; zero if not at all. Kept are those whose remediator says that the node is
// meant to go, until it has answered; those about a Machine that is still there: its remediator may have taken the node away, to have it
// come back; both for the timeout of the step, or until they have the age that no request should have; and for a while those that a
// remediator has its finalizer on.
func (c *Case) awaited(j int) time.Time {
	r := &c.n.Requests[j]
	switch {
	case r.succeeded() == escalation.Yes || r.succeeded() == escalation.No:
		return time.Time{}
	case r.deletesNode() || r.MachineThere:
		if step := r.Step; step >= 0 && c.f.Templates[step].timeout() > 0 {
			return c.Requests[j].Counted.Add(c.f.Templates[step].timeout())
		}
		return r.Started().Add(tooOld)
	case r.Kept():
		return c.n.GoneSince(c.f.Now).Add(nodeAway)
	}
	return time.Time{}
}

// tooOld is the age at which a request is counted. (Seed 002.)
const tooOld = 48 * time.Hour
