package nodes

import (
	"cmp"
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Decide returns the plan for f: the verdict on each node, what blocks its remediation, and what is done about its requests and its lease.
//
// What has begun is never blocked by what the population allows: requests end, time out and follow each other, leases are renewed. Only
// what would add a node is.
func Decide(f Facts) Plan {
	p := Plan{Decisions: make([]Decision, len(f.Nodes))}
	d := &decider{f: &f, p: &p, steps: stepsOf(f.Templates)}
	d.judge()
	d.recall()
	missing := d.missing()
	d.settled = d.settledAt()
	d.population()
	d.awaitsKubelets = !d.settled.IsZero() && d.awaiting()
	d.now.upgrading, d.now.upgraded = d.upgrade(health.Unhealthy)
	d.ahead.upgrading, d.ahead.upgraded = d.upgrade(health.Unhealthy, health.Pending)
	p.Blockers = (&Case{decider: d, view: &d.now, begins: true}).ask(ofCheck)
	d.members()
	p.Recheck = health.Earliest(health.Earliest(f.Recheck, f.Retry), health.Earliest(health.Earliest(missing, d.settled), p.Storm.Recheck))
	for i := range f.Nodes {
		d.decide(i)
		p.Recheck = health.Earliest(p.Recheck, p.Decisions[i].Recheck)
		if p.Decisions[i].acts() {
			p.Order = append(p.Order, i)
		}
	}
	slices.SortStableFunc(p.Order, d.comesFirst)
	return p
}

type decider struct {
	f     *Facts
	p     *Plan
	steps []escalation.Step
	plane controlplane.Plane
	// settledAt is until when kubelets have had no time to report, zero if they have had; awaitsKubelets that a node may be unhealthy for
	// that.
	settled        time.Time
	awaitsKubelets bool
	// now is what blocks the nodes that are unhealthy, ahead what will block those that are not due yet, if nothing else changes.
	now, ahead view
}

// view is what a node is blocked by besides itself.
type view struct {
	upgrading string // by what the cluster is being changed; empty if by nothing
	upgraded  rule.Ref
	first     int    // whose turn it is of the control plane's nodes, if that is known; -1 if none waits
	etcd      Reason // why etcd cannot do without that one; empty if it can
}

func stepsOf(templates []Template) []escalation.Step {
	steps := make([]escalation.Step, 0, len(templates))
	for i := range templates {
		steps = append(steps, escalation.Step{Timeout: templates[i].timeout()})
	}
	return steps
}

// members finds out which of the control plane's nodes goes first.
func (d *decider) members() {
	c := d.f.ControlPlane
	if c == nil {
		return
	}
	if c.Unread == "" {
		d.plane = c.plane(d.f.Now)
	}
	if due := d.dueMembers(); len(due) > 0 {
		d.now.first, d.now.etcd = d.queue(due)
		d.ahead.first, d.ahead.etcd = d.now.first, d.now.etcd
		return
	}
	d.now.first, d.ahead.first = -1, d.nextMember()
	if d.ahead.first >= 0 && c.Unread == "" {
		d.ahead.etcd = c.Etcd.against(d.f.Nodes[d.ahead.first].Name)
	}
}

// comesFirst puts those first for which something starts, and of these those that have been due for longest.
func (d *decider) comesFirst(i, j int) int {
	a, b := &d.p.Decisions[i], &d.p.Decisions[j]
	starts := func(d *Decision) int {
		if d.Starts() {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(starts(a), starts(b)), a.Verdict.OverdueSince(d.f.Now).Compare(b.Verdict.OverdueSince(d.f.Now)))
}

// acts reports whether anything is done about the node, or reported.
func (d *Decision) acts() bool {
	return len(d.End)+len(d.Flag)+len(d.Delay)+len(d.Resume)+len(d.Stop)+len(d.Adopt)+len(d.GiveUp) > 0 ||
		d.Starts() || d.Lease != KeepLease || d.Unconfirm || d.Verdict.State == health.Unhealthy && d.Blocker().Message != ""
}

func (d *decider) population() {
	f, p := d.f, d.p
	for i := range f.Nodes {
		n, decision := &f.Nodes[i], &p.Decisions[i]
		decision.InFlight = n.Remediated() || decision.Missing
		if !d.counts(i) {
			continue
		}
		decision.Class = d.classOf(i)
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
	// Nodes that are not due yet make no storm: they would in every rollout.
	tooMany := p.Grant.ShortCircuited() && (f.Storm.Active || p.Population.Unhealthy > 0)
	var cooldown *time.Duration // none
	if f.Check.Spec.StormCooldownDuration != nil {
		cooldown = &f.Check.Spec.StormCooldownDuration.Duration
	}
	p.Storm = f.Storm.Next(cooldown, tooMany, f.Now)
}

// counts reports whether the limits count the node. One that is gone counts while a remediation that may have taken it away goes on, or it
// is missing.
func (d *decider) counts(i int) bool {
	n := &d.f.Nodes[i]
	return n.Selected || !n.Exists() && (d.p.Decisions[i].Missing || len(n.Unseen) > 0 ||
		slices.ContainsFunc(n.Requests, func(r Request) bool { return !r.Clings(d.f.Now) }))
}

func (d *decider) classOf(i int) budget.Class {
	n, state := &d.f.Nodes[i], d.p.Decisions[i].Verdict.State
	switch {
	case !n.Exists(), state == health.Unhealthy:
		return budget.Unhealthy
	case state == health.Unknown:
		return budget.Unknown
	case state == health.Pending:
		return budget.Pending
	case n.Remediated(), len(n.Orphaned) > 0:
		return budget.Recovering
	}
	return budget.Healthy
}

// settledAt is when kubelets have had time to report since the manager started, or the API server came back; zero if they have had it.
func (d *decider) settledAt() time.Time {
	f := d.f
	since, allowed := f.Since, f.condition(nhcv1.RemediationAllowedCondition)
	awaited := allowed != nil && allowed.Reason == nhcv1.KubeletsAwaitedReason
	if awaited && !f.Now.Before(allowed.LastTransitionTime.Add(3*f.Grace)) {
		since = time.Time{} // a manager that is started again and again before they had time would wait without end
	}
	if n := len(f.Outages); n > 0 && f.Outages[n-1].To.After(since) {
		since = f.Outages[n-1].To
	}
	return later(since.Add(f.Grace), f.Now)
}

// later is at if that is to come; else zero.
func later(at, now time.Time) time.Time {
	if !now.Before(at) {
		return time.Time{}
	}
	return at
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
