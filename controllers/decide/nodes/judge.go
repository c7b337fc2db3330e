package nodes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Streaks are those of one node. As long as it is not being remediated its statuses count together. While it is, they do not: on its way
// back a node is Unknown, then False, then True, and that must not make its remediation a failure. (Seed 002, "Special cases".)
type Streaks = health.Streaks

func ruleFor(rules []health.Rule, c *health.Signal) *health.Rule {
	for i := range rules {
		if rules[i].Type == c.Type && rules[i].Status == c.Status {
			return &rules[i]
		}
	}
	return nil
}

// Signals are the conditions of n that meet a rule, whatever their age; reported says that the node has a Ready condition.
func (f *Facts) Signals(n *Node) (signals []health.Signal, reported bool) {
	if n.Object == nil {
		return nil, false
	}
	for i := range n.Object.Status.Conditions {
		c := &n.Object.Status.Conditions[i]
		reported = reported || c.Type == corev1.NodeReady
		signal := health.Signal{
			Source: health.OnNode, Type: string(c.Type), Status: string(c.Status), Reason: c.Reason, Since: c.LastTransitionTime.Time,
		}
		if ruleFor(f.Policy.Rules, &signal) != nil {
			signals = append(signals, signal)
		}
	}
	return signals, reported
}

// Concerns reports whether the node says anything that a healthy one does not. Only of such nodes Machines and requests of their names are
// read.
func (f *Facts) Concerns(n *Node) bool {
	signals, reported := f.Signals(n)
	return n.Exists() && (len(signals) > 0 || !reported)
}

// neverReported is the reason of the missing Ready condition of a node, as the node-lifecycle controller writes it.
const neverReported = "NodeStatusNeverUpdated"

// sees is what is seen of n now, after what was seen last.
//
// A node that has no Ready condition is taken as Ready=Unknown: since it was created, if this process was there then, else since that was
// first seen. Somebody may have replaced the list of conditions, and the node be as healthy as before. The other conditions say nothing as
// long as they are missing. (medik8s ignores such a node for ever.)
func (f *Facts) sees(n *Node, last health.Seen, blind bool) health.Seen {
	signals, reported := f.Signals(n)
	now, created := health.Seen{Object: n.ID(), At: f.Now, Signals: signals}, n.Object.CreationTimestamp.Time
	if !reported {
		missing := health.Signal{Source: health.OnNode, Type: "Ready", Status: "Unknown", Reason: neverReported}
		if !created.Before(f.Since) {
			missing.Since = created
		}
		now.Signals = append(now.Signals, missing)
	}
	return last.Next(now, created, blind)
}

func (f *Facts) judged(n *Node, signals []health.Signal) health.Verdict {
	return health.Judge(health.Target{Node: health.NodePresent, NodeName: n.Name, Signals: signals}, f.Policy, f.Now)
}

// Confirm is why the remediation must not start, as the API server has the node now (nil if it is gone); empty if nothing has changed.
func (d *Decision) Confirm(f *Facts, n *Node, live *corev1.Node) (doubt string) {
	if live == nil {
		return "the node is gone"
	}
	now := &Node{Name: n.Name, Object: live}
	state, same := d.Verdict.State, func(a, b health.Signal) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Since.Equal(b.Since)
	}
	signals, reported := f.Signals(n)
	liveSignals, reportedNow := f.Signals(now)
	if reported != reportedNow || !slices.EqualFunc(signals, liveSignals, same) { // the cache is behind: they count from now
		state = f.judged(now, f.sees(now, health.Seen{Object: now.ID(), At: f.Now}, false).Signals).State
	}
	excluded, _ := now.Excluded()
	switch {
	case now.ID() != n.ID():
		return "the node is another one"
	case state != health.Unhealthy:
		return "the node is " + state.String()
	case excluded:
		return "the node is excluded"
	}
	return ""
}

// unseenFor is how late a reconcile may be without a node having been healthy unseen.
const unseenFor = time.Minute

func (d *decider) judge() {
	f := d.f
	longest := f.Resync
	for _, rule := range f.Policy.Rules {
		longest = max(longest, rule.For)
	}
	blind := f.Now.Sub(f.Memory.Judged) > longest+unseenFor
	memory := &d.p.Memory
	memory.Seen, memory.Streaks, memory.Rules, memory.Judged = map[string]health.Seen{}, map[string]Streaks{}, f.Policy.Rules, f.Now
	for i := range f.Nodes {
		n, decision := &f.Nodes[i], &d.p.Decisions[i]
		if !n.Exists() {
			continue
		}
		last := f.Memory.Seen[n.ID()]
		if !slices.Equal(f.Memory.Rules, f.Policy.Rules) {
			last.At = time.Time{}
		}
		seen := f.sees(n, last, blind)
		memory.Seen[n.ID()] = seen
		if !n.Remediated() {
			var streaks Streaks
			if streaks, seen.Signals = f.Memory.Streaks[n.ID()].After(seen.Signals, f.Policy.Rules, blind, time.Time{}); streaks != nil {
				memory.Streaks[n.ID()] = streaks
			}
		}
		decision.Verdict = f.judged(n, seen.Signals)
		if f.TerminatingLeft && n.terminating() { // it is no longer ours to say how it is: neither a reason to act, nor one to end what is done
			decision.Left, decision.Verdict.State = true, health.Unknown
		}
		d.p.NextDeadline = health.Earliest(d.p.NextDeadline, decision.Verdict.Recheck)
	}
}
