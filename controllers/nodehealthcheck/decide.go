package nodehealthcheck

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Decide returns the plan for f: the verdict on each node, what blocks its remediation, and what to do about its requests and its lease.
//
// The limits of the check block only remediations of further nodes. A remediation that has begun goes on: requests end, time out and follow
// each other, and leases are renewed.
func Decide(f Facts) Plan {
	p := Plan{}
	d := newDecider(&f, &p)
	for i := range f.Templates {
		d.steps = append(d.steps, escalation.Step{Timeout: f.Templates[i].timeout()})
	}
	d.judge()
	d.recall()
	missing := d.missing()
	d.settled = d.settledAt()
	d.population()
	notHealthy := func(decision *Decision) bool { // selected or not
		return decision.Verdict.State == health.Unhealthy || decision.Verdict.State == health.Pending
	}
	d.awaitsKubelets = !d.settled.IsZero() && (p.Population.Unhealthy > 0 || slices.ContainsFunc(p.Decisions, notHealthy))
	d.now, d.ahead = d.upgrading(health.Unhealthy), d.upgrading(health.Unhealthy, health.Pending)
	p.Blockers = (&Case{decider: d, upgrade: &d.now, begins: true}).ask(ofCheck)
	d.first, d.next = d.firstMember(), d.nextMember()
	p.Recheck = health.Earliest(health.Earliest(f.Recheck, f.Retry), health.Earliest(health.Earliest(missing, d.settled), p.Storm.Recheck))
	for i, decision := range p.Decisions {
		d.decide(decision)
		p.Recheck = health.Earliest(p.Recheck, decision.Recheck)
		if decision.acts() {
			p.Order = append(p.Order, i)
		}
	}
	// Nodes for which a step starts come first, and among them the nodes that have been due for longest.
	slices.SortStableFunc(p.Order, func(i, j int) int {
		a, b := p.Decisions[i], p.Decisions[j]
		return cmp.Or(cmp.Compare(min(b.Start, 0), min(a.Start, 0)), a.Verdict.OverdueSince(f.Now).Compare(b.Verdict.OverdueSince(f.Now)))
	})
	return p
}

type decider struct {
	f              *Facts
	p              *Plan
	steps          []escalation.Step
	settled        time.Time // until when kubelets have time to report; zero if that is over
	awaitsKubelets bool      // nodes may be unhealthy only because their kubelets have not had that time
	now            upgrade   // the upgrade that affects unhealthy nodes
	ahead          upgrade   // the upgrade that will affect pending nodes when they are due, if nothing else changes
	first          *Node     // the control-plane node that is first in the queue; nil if none waits
	next           *Node     // the control-plane node that will be first when it is due; nil if there is none
}

func newDecider(f *Facts, p *Plan) *decider {
	for i := range f.Nodes {
		p.Decisions = append(p.Decisions, &Decision{Node: &f.Nodes[i]})
	}
	return &decider{f: f, p: p}
}

// upgrade is an upgrade of the cluster that goes on, and the object that says so; zero if there is none.
type upgrade struct {
	text string
	by   rule.Ref
}

// acts reports whether there is anything to do or to report about the node.
func (d *Decision) acts() bool {
	requests := slices.ContainsFunc(d.Requests, func(r RequestState) bool { return r.End || r.Adopt || r.GiveUp || len(r.Note) > 0 })
	reported := d.Verdict.State == health.Unhealthy && d.Blocker().Text != ""
	return requests || d.starts() || d.Leasing != KeepLease || d.Unconfirm || reported
}

func (d *decider) population() {
	f, p := d.f, d.p
	for _, decision := range p.Decisions {
		decision.InFlight = decision.remediated() || decision.Missing
		// A node that is gone counts while it is missing or a remediation goes on that may have deleted it.
		held := func(r RequestState) bool { return !r.clings(f.Now) }
		goesOn := decision.Missing || len(decision.Unseen) > 0 || slices.ContainsFunc(decision.Requests, held)
		if !decision.Selected && (decision.exists() || !goesOn) {
			continue
		}
		decision.Class = decision.classOf()
		p.Population.Count(decision.Class)
		if decision.InFlight {
			p.Population.InFlight++
		} else if decision.Verdict.State == health.Unhealthy {
			p.Population.Waiting++
		}
	}
	minHealthy, maxUnhealthy := f.Limits()
	var err error
	if p.Limits, err = budget.NodeLimits(minHealthy, maxUnhealthy, p.Population.Total()); err != nil && !f.Disabled.Is() {
		f.Disabled = Disabled{Reason: nhcv1.InvalidLimitReason, Message: err.Error()}
	}
	p.Disabled, p.Grant = f.Disabled, budget.Decide(p.Population, p.Limits)
	// Pending nodes alone make no storm, or there would be one in every rollout.
	tooMany := p.Grant.ShortCircuited() && (f.Storm.Active || p.Population.Unhealthy > 0)
	var cooldown *time.Duration // none
	if f.Check.Spec.StormCooldownDuration != nil {
		cooldown = &f.Check.Spec.StormCooldownDuration.Duration
	}
	p.Storm = f.Storm.Next(cooldown, tooMany, f.Now)
}

func (d *Decision) classOf() budget.Class {
	switch state := d.Verdict.State; {
	case !d.exists(), state == health.Unhealthy:
		return budget.Unhealthy
	case state == health.Unknown:
		return budget.Unknown
	case state == health.Pending:
		return budget.Pending
	case d.remediated(), len(d.Orphaned) > 0:
		return budget.Recovering
	}
	return budget.Healthy
}

// settledAt returns until when kubelets have time to report after the manager started or the API server came back; zero if that is over.
func (d *decider) settledAt() time.Time {
	f := d.f
	since, allowed := f.Since, conditionOf(f.Check, nhcv1.RemediationAllowedCondition)
	awaited := allowed != nil && allowed.Reason == nhcv1.KubeletsAwaitedReason
	if awaited && !f.Now.Before(allowed.LastTransitionTime.Add(3*f.Grace)) {
		since = time.Time{} // a manager that restarts again and again within f.Grace would otherwise wait forever
	}
	if n := len(f.Outages); n > 0 && f.Outages[n-1].To.After(since) {
		since = f.Outages[n-1].To
	}
	return later(since.Add(f.Grace), f.Now)
}

// later returns at if it is after now; else zero.
func later(at, now time.Time) time.Time {
	if !now.Before(at) {
		return time.Time{}
	}
	return at
}

// Signals returns the conditions of n that match a rule, whatever their age; reported says that the node has a Ready condition.
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
		if slices.ContainsFunc(f.Policy.Rules, func(r health.Rule) bool { return r.Type == signal.Type && r.Status == signal.Status }) {
			signals = append(signals, signal)
		}
	}
	return signals, reported
}

// Concerns reports whether a condition of the node matches a rule, or Ready is missing. The controller reads the Machine of a node, and the
// requests with its name, only for such nodes.
func (f *Facts) Concerns(n *Node) bool {
	signals, reported := f.Signals(n)
	return n.exists() && (len(signals) > 0 || !reported)
}

// sees returns what is seen of n now, where last was seen before.
//
// A node without a Ready condition counts as Ready=Unknown: since its creation, if this process ran then, else since that was first seen,
// because a client may have replaced the list of conditions of a healthy node. Other missing conditions match no rule. (medik8s ignores a
// node without Ready forever.)
func (f *Facts) sees(n *Node, last health.Seen, blind bool) health.Seen {
	signals, reported := f.Signals(n)
	now, created := health.Seen{Object: n.ID(), At: f.Now, Signals: signals}, n.Object.CreationTimestamp.Time
	if !reported {
		missing := health.ReadyMissing
		if !created.Before(f.Since) {
			missing.Since = created
		}
		now.Signals = append(now.Signals, missing)
	}
	return last.Next(now, created, blind)
}

// again repeats the decision about n with the live Node from the API server; nil if the Node is gone.
func (f *Facts) again(n *Node, live *corev1.Node) *Decision {
	facts, i := *f, slices.IndexFunc(f.Nodes, func(other Node) bool { return other.Name == n.Name })
	if facts.Nodes = slices.Clone(f.Nodes); live != nil && string(live.UID) != n.ID() {
		live = nil // another Node with the same name
	}
	facts.Nodes[i].Object = live
	same := func(a, b health.Signal) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Since.Equal(b.Since)
	}
	before, reported := f.Signals(n)
	if now, stillReported := f.Signals(&facts.Nodes[i]); stillReported != reported || !slices.EqualFunc(before, now, same) {
		facts.Turned = n.ID()
	}
	return Decide(facts).Decisions[i]
}

// unseenFor is how late a reconcile may be before a node may have been healthy unnoticed.
const unseenFor = time.Minute

func (d *decider) judge() {
	f := d.f
	longest := f.Resync
	for _, rule := range f.Policy.Rules {
		longest = max(longest, rule.For)
	}
	blind := f.Now.Sub(f.Memory.Judged) > longest+unseenFor
	next := &d.p.Memory
	next.Seen, next.Streaks, next.Rules, next.Judged = map[string]health.Seen{}, map[string]health.Streaks{}, f.Policy.Rules, f.Now
	for _, decision := range d.p.Decisions {
		n := decision.Node
		if !n.exists() {
			continue
		}
		last, streaks := f.Memory.Seen[n.ID()], f.Memory.Streaks[n.ID()]
		switch {
		case f.Turned == n.ID():
			last, streaks = health.Seen{Object: n.ID(), At: f.Now}, nil
		case !slices.Equal(f.Memory.Rules, f.Policy.Rules):
			last.At = time.Time{}
		}
		seen := f.sees(n, last, blind)
		next.Seen[n.ID()] = seen
		// Different unhealthy statuses count together only as long as the node is not being remediated. A node that boots is Unknown, then
		// False, then True, and that must not make its remediation fail. (Seed 002, "Special cases".)
		if !n.remediated() {
			if streaks, seen.Signals = streaks.After(seen.Signals, f.Policy.Rules, blind, time.Time{}); streaks != nil {
				next.Streaks[n.ID()] = streaks
			}
		}
		decision.Verdict = health.Judge(health.Target{Node: health.NodePresent, NodeName: n.Name, Signals: seen.Signals}, f.Policy, f.Now)
		if f.TerminatingLeft && n.terminating() { // a MachineHealthCheck of OpenShift handles the node: start nothing, and end nothing
			decision.Left, decision.Verdict.State = true, health.Unknown
		}
		d.p.NextDeadline = health.Earliest(d.p.NextDeadline, decision.Verdict.Recheck)
	}
}

// Release returns the plan for a deleted check: delete its requests, then its leases. While kubemend is being uninstalled, the leases are
// deleted although remediators keep their requests for too long.
func Release(f Facts, uninstalling bool) Plan {
	p := Plan{Recheck: f.Recheck}
	d := newDecider(&f, &p)
	d.recall()
	for i, decision := range p.Decisions {
		c, clings := d.caseOf(decision), true
		c.Start, c.Would = -1, -1
		for j := range c.Requests {
			r := &c.Requests[j]
			r.End = r.Deleting().IsZero()
			clings = clings && r.clings(f.Now)
		}
		if len(c.Requests) == 0 || uninstalling && clings {
			c.unleased()
		} else {
			c.leased()
		}
		p.Order = append(p.Order, i)
		p.Recheck = health.Earliest(p.Recheck, c.Recheck)
	}
	return p
}
