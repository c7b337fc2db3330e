package nodes

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

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
		decision.Missing, decision.MissedSince = true, latest(since(i), newest)
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
		newest = latest(newest, created)
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
	return !n.healthySince().IsZero() || n.Listed != nil && len(n.Listed.Remediations) > 0
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
			c.happens(Moment{At: until, What: NodeStaysAway, Text: "the node has stayed away for too long, and its request is deleted"})
			kept = true
			continue
		}
		c.stops(j)
		c.End = append(c.End, j)
	}
	if kept {
		c.leased()
	} else if len(c.n.Requests) == 0 {
		c.unleased()
	}
}

// stops notifies the remediator of a request that keeps it: Self Node Remediation releases requests about a Node that is gone only then.
func (c *Case) stops(j int) {
	if r := &c.n.Requests[j]; r.Kept() && r.notified().IsZero() && !c.f.Memory.Unpatchable[r.ID()] {
		c.Stop = append(c.Stop, j)
	}
}

// awaited is until when a request is kept whose node is gone; zero if not at all. Kept are those whose remediator says that the node is
// meant to go, until it has answered; those about a Machine that is still there: its remediator may have taken the node away, to have it
// come back; and for a while those that a remediator has its finalizer on.
func (c *Case) awaited(j int) time.Time {
	r := &c.n.Requests[j]
	switch {
	case r.succeeded() == escalation.Yes || r.succeeded() == escalation.No:
		return time.Time{}
	case r.deletesNode() || r.MachineThere:
		return c.patience(j)
	case r.Kept():
		return c.n.GoneSince(c.f.Now).Add(nodeAway)
	}
	return time.Time{}
}

// tooOld is the age at which a request is counted. (Seed 002.)
const tooOld = 48 * time.Hour

// patience is until when a remediator is waited for that has taken its node away for good: its timeout, or the age that no request should
// have.
func (c *Case) patience(j int) time.Time {
	r := &c.n.Requests[j]
	if r.Step >= 0 && c.f.Templates[r.Step].timeout() > 0 {
		return c.Requests[j].Counted.Add(c.f.Templates[r.Step].timeout())
	}
	return r.Started().Add(tooOld)
}
