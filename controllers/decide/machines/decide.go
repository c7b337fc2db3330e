package machines

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Settling is how long nothing starts after a change that may be the first of many. (docs/adr/0035-the-first-change-waits-for-nothing.md)
const Settling = 100 * time.Millisecond

// Decide returns the plan for f: what blocks each machine, how many remediations may start, and which do.
func Decide(f Facts) Plan {
	p := Plan{Decisions: make([]Decision, len(f.Targets)), Population: budget.Population{Healthy: f.Healthy}}
	sudden := make([]time.Time, len(f.Targets))
	for i := range f.Targets {
		t, d := &f.Targets[i], &p.Decisions[i]
		d.InFlight = InFlight(f.Template, t)
		d.Blockers = own(&f, t, d.InFlight)
		d.Waits = waits(&f, t, d)
		if until := f.Memory.settledAt(t.ID, f.Now); d.Waits && f.Limited && f.Now.Before(until) {
			d.Waits, sudden[i] = false, until
		}
		count(&p.Population, f.Template, t, d)
	}
	if f.Counted != nil {
		p.Population = p.Population.Complete(f.Counted.Total, f.Counted.Healthy)
	}
	grant(&f, &p)
	queue(&f, &p)
	for i := range f.Targets {
		block(&f, &p, i, sudden[i])
	}
	p.Recheck = health.Earliest(p.Storm.Recheck, settles(&p, sudden))
	p.Memory = f.Memory.after(&f, &p)
	return p
}

// InFlight reports whether a remediation of t was begun and is not over: a request of this check exists, or the owner was asked and has neither
// finished nor was the machine healthy again. It is read from what is observed, so no crash can lose it; only what was begun so lately that the
// caches may not show it yet is remembered.
func InFlight(template Template, t *Target) bool {
	switch {
	case t.Begun:
		return true
	case t.Request != NoRequest:
		return t.Request == OwnRequest
	case template.Unread && t.Announced:
		return true
	case t.Verdict.State == health.Healthy && !t.Deleting || t.Owner == NotAsked:
		return false
	}
	canRequest := template.External && template.Known
	return !canRequest || t.Owner == Asked // that there is a template now is news to one whose owner cannot remediate it
}

// Occupies reports whether t has one of the places that the limit on remediations in flight allows: its remediation is in progress, and somebody
// carries it out. A machine whose owner cannot replace it waits for a person, however long, and the others go on.
// (docs/adr/0034-what-cannot-go-on-waits-last.md)
func Occupies(template Template, t *Target) bool {
	return t.Cycle != nil || InFlight(template, t) && (t.Deleting || t.Owner != CannotRemediate)
}

// waits reports whether nothing about t itself, nor about its check, blocks a remediation. A check that is only observed counts those too.
func waits(f *Facts, t *Target, d *Decision) bool {
	if t.Verdict.State != health.Unhealthy || d.InFlight || t.Request != NoRequest && f.Template.External {
		return false
	}
	for _, b := range d.Blockers {
		if b.Reason != NotActing {
			return false
		}
	}
	return !f.Template.External || f.Template.Known && !f.Template.Missing && !f.Template.Refused
}

func count(p *budget.Population, template Template, t *Target, d *Decision) {
	if Occupies(template, t) {
		p.InFlight++
	}
	if d.Waits {
		p.Waiting++
	}
	p.Count(ClassOf(t))
}

// ClassOf is what the limits count t as.
func ClassOf(t *Target) budget.Class {
	if t.Deleting {
		return budget.Deleting
	}
	return classes[t.Verdict.State]
}

var classes = map[health.State]budget.Class{
	health.Healthy: budget.Healthy, health.Unhealthy: budget.Unhealthy, health.Pending: budget.Pending, health.Starting: budget.Starting,
	health.Unknown: budget.Unknown,
}

// grant applies the limits, and the cooldown after they were exceeded. Limits that cannot be read grant nothing, and nobody knows how a cooldown
// goes on then.
func grant(f *Facts, p *Plan) {
	if f.Invalid {
		p.Storm.Storm = f.Storm
		return
	}
	p.Grant = budget.Decide(p.Population, f.Limits)
	if p.Storm = storm(f, p); p.Storm.Blocks && !p.Grant.ShortCircuited() {
		p.Grant = budget.Grant{Reason: budget.CoolingDown}
	}
}

// storm is what has become of the storm. As with a NodeHealthCheck, machines whose timeout has not expired make none: they would in every rollout. While an
// answer of the workload cluster is awaited, the storm is neither begun nor ended.
func storm(f *Facts, p *Plan) budget.StormStep {
	tooMany := p.Grant.Reason == budget.TooMany && (f.Storm.Active || p.Population.Unhealthy > 0)
	if !f.Settled && f.Storm.CoolingSince.IsZero() {
		return budget.StormStep{Storm: f.Storm, Blocks: f.Storm.Active && f.Cooldown != nil}
	}
	is := f.Storm.Next(f.Cooldown, tooMany && f.Settled, f.Now)
	if is.Turn == budget.StormCooling { // as it is stored, so that the end does not move
		is.CoolingSince = is.CoolingSince.Truncate(time.Second)
		is.Recheck = is.CoolingSince.Add(*f.Cooldown)
	}
	return is
}

// queue decides which of the machines that wait are tried now. A machine does not use up its place if no request can be made for it, or if there
// is no owner to ask: nothing is in flight then, and nothing will tell that it is over.
//
// Those come last whose remediation could not be begun when it was tried, the longest ago first, and those that nobody owns: else one machine
// that nobody can remediate would keep all others waiting. Before them, those marked by hand are first, then those that have been due for
// longest, and by name where that is the same.
func queue(f *Facts, p *Plan) {
	var waiting []int
	for i := range p.Decisions {
		if p.Decisions[i].Waits {
			waiting = append(waiting, i)
		}
	}
	slices.SortStableFunc(waiting, func(i, j int) int {
		a, b := &f.Targets[i], &f.Targets[j]
		return cmp.Or(cmp.Compare(last(f, a), last(f, b)), a.Refused.Compare(b.Refused), -cmp.Compare(byHand(a), byHand(b)),
			a.Verdict.OverdueSince(f.Now).Compare(b.Verdict.OverdueSince(f.Now)), cmp.Compare(a.Name, b.Name))
	})
	left := p.Grant.Start
	if !f.Acts || f.queueUnread() {
		left = 0
	}
	for _, i := range waiting {
		if left == 0 {
			break
		}
		p.Decisions[i].Tried = true
		if t := &f.Targets[i]; f.Template.External && !t.Unusable || !f.Template.External && t.Owned {
			left--
		}
	}
}

// queueUnread reports whether the queue of remediations matters and is not known, as not all machines were read.
func (f *Facts) queueUnread() bool { return f.Counted != nil && f.Limits.InFlight != budget.Unlimited }

// last is 1 for a machine that comes after all others in the queue, else 0.
func last(f *Facts, t *Target) int {
	if !t.Refused.IsZero() || f.Template.External && t.RequestFailed || !f.Template.External && !t.Owned {
		return 1
	}
	return 0
}

// byHand is 1 for a machine that a person has marked, else 0.
func byHand(t *Target) int {
	if slices.ContainsFunc(t.Verdict.Findings, func(is health.Finding) bool { return is.Reason == health.MarkedByHand }) {
		return 1
	}
	return 0
}

// block completes the blockers of a machine with those that depend on the others. What is in flight has begun, and the limits have counted it.
func block(f *Facts, p *Plan, i int, sudden time.Time) {
	t, d := &f.Targets[i], &p.Decisions[i]
	if d.InFlight {
		return
	}
	if !sudden.IsZero() {
		d.Blockers = append(d.Blockers, Blocker{Reason: JustSeen, Until: sudden})
	}
	d.Blockers = append(d.Blockers, notGranted(f, p, d)...)
	d.Blockers = append(d.Blockers, unrequestable(f, t)...)
	if t.Unusable {
		d.Blockers = append(d.Blockers, Blocker{Reason: TemplateUnusable})
	}
	if t.Verdict.State != health.Unhealthy && len(d.Blockers) == 0 {
		d.Blockers = append(d.Blockers, Blocker{Reason: NotUnhealthy})
	}
}

// settles is when a remediation starts that waits for the changes that come with the one that was seen first; zero if none does.
func settles(p *Plan, sudden []time.Time) time.Time {
	var next time.Time
	if p.Grant.Reason == budget.Enough || p.Grant.Reason == budget.AtWork {
		for _, until := range sudden {
			next = health.Earliest(next, until)
		}
	}
	return next
}

// settledAt is when the time is over in which nothing starts for a machine: it was first seen not healthy, or few enough machines were, just now.
func (m Memory) settledAt(machine string, now time.Time) time.Time {
	since, known := m.NotHealthy[machine]
	if !m.Known || m.ShortCircuited || !known {
		return now.Add(Settling) // if few enough are unhealthy in this reconcile, it is the first one
	}
	if m.Calm.After(since) {
		since = m.Calm
	}
	return since.Add(Settling)
}

// after is the memory that goes with the plan for f.
func (m Memory) after(f *Facts, p *Plan) Memory {
	is := Memory{Known: true, NotHealthy: map[string]time.Time{}, Calm: m.Calm, ShortCircuited: p.Grant.ShortCircuited()}
	if m.ShortCircuited && !is.ShortCircuited {
		is.Calm = f.Now
	}
	for i := range f.Targets {
		if t := &f.Targets[i]; t.Verdict.State != health.Healthy {
			is.NotHealthy[t.ID] = f.Now
		}
	}
	for name, since := range m.NotHealthy {
		if _, still := is.NotHealthy[name]; still {
			is.NotHealthy[name] = since
		}
	}
	return is
}
