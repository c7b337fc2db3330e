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

// recall takes over the memory of nodes and requests that still exist or are in the check's status, and drops the rest.
func (d *decider) recall() {
	last, next := &d.f.Memory, &d.p.Memory
	next.Decided = d.f.Now
	next.Requests, next.Refusals, next.Recoveries = map[string]RequestMemory{}, map[string]Refusal{}, map[string]Recovery{}
	for _, decision := range d.p.Decisions {
		n := decision.Node
		for j := range n.Requests {
			r := &n.Requests[j]
			known := last.Requests[r.ID()]
			known.Succeeded = r.succeeded() == escalation.Yes
			decision.Requests = append(decision.Requests, d.stateOf(n, r, &known))
			next.Requests[r.ID()] = known
		}
		for j := range n.Gone {
			id := string(n.Gone[j].Resource.UID)
			if known, remembered := last.Requests[id]; remembered {
				next.Requests[id] = known
			}
		}
		d.recallRefusal(decision)
		d.recallRecovery(decision)
	}
}

// stateOf returns the state of a request. The time in which its remediator could do nothing does not count for the timeout: outages of the
// API server, and time without a manager, which the first reconcile sees from the lease on the node: if the lease was not renewed after
// half of its term, all time since the last renewal does not count. The memory and the check's status keep the result.
func (d *decider) stateOf(n *Node, r *Request, known *RequestMemory) RequestState {
	over := !r.Deleting().IsZero() && (r.Listed == nil || !n.healthySince().IsZero())
	state := RequestState{Request: r, Over: over, Counted: health.Latest(d.f.countedFrom(r, over), known.Started)}
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
	if state.Counted.After(r.started()) {
		known.Started = state.Counted
	}
	return state
}

// countedFrom returns when the timeout of r's step begins.
//
// A node may become unhealthy again while its remediator still keeps a deleted request of the earlier failure, and may still work. So the
// new failure adopts that request, with the part of the timeout that was left when it was deleted. Until a remediation of the node could
// begin, the request is not adopted, and its remaining time does not shrink.
func (f *Facts) countedFrom(r *Request, over bool) time.Time {
	switch {
	case over:
		return f.Now.Add(-max(0, r.Deleting().Sub(r.started())))
	case r.Listed != nil && r.Listed.Started.After(r.started()):
		return r.Listed.Started.Time
	}
	return r.started()
}

// restartSlack is how much later than planned a lease may be renewed, because reconciles take a while.
const restartSlack = 5 * time.Second

// unrenewed returns the outages that count at the first reconcile of a process: all time since l was renewed, if it is overdue for
// renewal; else those outages that this process saw and that ended after the renewal. Earlier outages were considered before.
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

// missing sets Missing for nodes that a remediation has deleted and no new node has replaced yet, and returns when the first of them stops
// being missing.
//
// A remediator that replaces machines reports success when the old machine is gone, long before the new node exists. If the limits did not
// count the missing node meanwhile, each replacement would lower the total of which a percentage may be unhealthy. A missing node stays in
// the check's status, without requests, so that the next manager counts it too. It stops being missing when it comes back, when a new
// node is created (one for each missing node), or after ReplacementPatience. MissedSince is at least the creation of the newest node,
// so that no node replaces two.
func (d *decider) missing() time.Time {
	taken := slices.DeleteFunc(slices.Clone(d.p.Decisions), func(decision *Decision) bool { return !d.takenAway(decision.Node) })
	if len(taken) == 0 {
		return time.Time{}
	}
	since := func(decision *Decision) time.Time { return decision.GoneSince(d.f.Now) }
	slices.SortStableFunc(taken, func(a, b *Decision) int { return since(a).Compare(since(b)) })
	made, newest := d.nodesMade()
	var until time.Time
	for _, decision := range taken {
		if j := slices.IndexFunc(made, since(decision).Before); j >= 0 {
			made = made[j+1:]
			continue
		}
		decision.Missing, decision.MissedSince = true, health.Latest(since(decision), newest)
		until = health.Earliest(until, since(decision).Add(controlplane.ReplacementPatience))
	}
	return until
}

// nodesMade returns the creation times of the selected nodes, the oldest first and without nodes that came back, and the newest of all.
func (d *decider) nodesMade() (made []time.Time, newest time.Time) {
	for i := range d.f.Nodes {
		n := &d.f.Nodes[i]
		if !n.Selected || !n.exists() {
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

// takenAway reports whether a remediation may have deleted n lately. If a user deletes a Node, no remediator reports anything about it.
func (d *decider) takenAway(n *Node) bool {
	switch {
	case n.exists() || len(n.Unseen) > 0 || !d.f.Now.Before(n.GoneSince(d.f.Now).Add(controlplane.ReplacementPatience)):
		return false
	case len(n.Requests) > 0:
		return slices.ContainsFunc(n.Requests, func(r Request) bool {
			return r.succeeded() == escalation.Yes || r.deletesNode() || r.MachineThere || r.kept()
		})
	}
	return n.remembered()
}

// GoneSince returns since when n is known to be gone.
func (n *Node) GoneSince(now time.Time) time.Time {
	if since := n.healthySince(); !since.IsZero() {
		return since
	}
	return now
}

// nodeAway is how long a node may be gone while a remediator keeps its finalizer on an unfinished request: it may have deleted the Node to
// create it again. (Poison Pill, and Self Node Remediation before v0.8, do so while the node reboots.)
const nodeAway = 10 * time.Minute

// gone decides about a node that does not exist any more: its requests are deleted, except those that are awaited. The lease ends after the
// last request. If a request is awaited and Kubernetes deletes the lease with the node, the lease is taken again, because the node may come
// back under its name.
func (c *Case) gone() {
	kept := false
	for j := range c.Requests {
		r := &c.Requests[j]
		if !r.Deleting().IsZero() {
			c.lookAgain(later(r.Deleting().Add(clingingFor), c.f.Now))
			c.stops(r)
			continue
		}
		if until := c.awaited(r); c.f.Now.Before(until) {
			c.happens(rule.Step{At: until, Reason: StaysAway, Text: "the node has stayed away for too long, and its request is deleted"})
			kept = true
			continue
		}
		c.stops(r)
		r.End = true
	}
	if kept {
		c.leased()
	} else if len(c.Requests) == 0 {
		c.unleased()
	}
}

// stops notifies the remediator of a request with finalizers: otherwise Self Node Remediation never releases a request whose Node is gone.
func (c *Case) stops(r *RequestState) {
	if r.kept() && !r.notified() && !c.f.Memory.Requests[r.ID()].Unpatchable {
		r.note(nhcv1.TimedOutAnnotation, stamp(c.f.Now))
	}
}

// awaited returns until when a request is kept although its node is gone; zero if it is deleted at once. An unfinished request is kept
//   - for the timeout of its step, or without a timeout for tooOld, if its remediator announces that it deletes the Node, or if it is about
//     a Machine that still exists: the remediator may have deleted the Node so that it comes back;
//   - for nodeAway, if it has a finalizer.
func (c *Case) awaited(r *RequestState) time.Time {
	switch {
	case r.succeeded() == escalation.Yes || r.succeeded() == escalation.No:
		return time.Time{}
	case r.deletesNode() || r.MachineThere:
		if step := r.Step; step >= 0 && c.f.Templates[step].timeout() > 0 {
			return r.Counted.Add(c.f.Templates[step].timeout())
		}
		return r.started().Add(tooOld)
	case r.kept():
		return c.GoneSince(c.f.Now).Add(nodeAway)
	}
	return time.Time{}
}

// tooOld is the age at which a request is flagged and counted as old. (Seed 002.)
const tooOld = 48 * time.Hour
