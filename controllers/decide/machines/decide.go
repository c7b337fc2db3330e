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

// CachesLag is how long a request that this process created is counted although the cache does not show it: a decision in between would not count
// it, and begin more than is allowed at once. It ends when the cache shows it; the limit is for one that was deleted before the cache ever did.
const CachesLag = 30 * time.Second

// Decide returns the plan for f: for each machine what blocks its remediation, how many remediations may start, and which do.
func Decide(f Facts) Plan {
	if f.Memory.Check != "" && f.Memory.Check == f.Check.UID { // the cache may not show the status yet that this process wrote
		f.Storm = f.Memory.Storm
	}
	p := Plan{Reach: reach(&f)}
	p.Decisions, p.Open = f.decisions()
	for _, i := range p.Open {
		d := p.Decisions[i]
		d.Begun = f.begun(d)
		d.InFlight = d.Begun || inFlight(&f, d)
		ask(&f, &p, d, false)
		d.Waits = waits(&f, d)
		count(&p.Population, d)
	}
	oneByOne(&f, &p)
	awaitSpares(&f, &p)
	settle(&f, &p)
	p.Population.Healthy += len(p.Decisions) - len(p.Open)
	if f.Counted != nil {
		p.Population = p.Population.Complete(f.Counted.Total, f.Counted.Healthy)
	}
	grant(&f, &p)
	queue(&f, &p)
	p.Allowed = allowed(&f, &p)
	p.Conditions = checkConditions(&f, &p)
	p.AllRequested = f.Template.Known && f.Settled() && p.Population.Waiting == 0 && !p.JustSeen
	p.Restriction = restriction(&f, &p)
	for _, i := range p.Open {
		ask(&f, &p, p.Decisions[i], true)
		step(&f, &p, p.Decisions[i])
	}
	p.Recheck = health.Earliest(health.Earliest(p.Storm.Recheck, settles(&p)), health.Earliest(observable(&f, &p), sparesUntil(&p)))
	p.Releases = releases(&f)
	p.VerdictsUntil = verdictsUntil(&p)
	p.Memory = f.Memory.after(&f, &p)
	p.Needs = needs(&f, &p)
	return p
}

// needs are the facts that this decision depends on and that were not read. The template is not read before it is known which machines are left to
// their power cycles.
func needs(f *Facts, p *Plan) Needs {
	var is Needs
	for _, i := range p.Open {
		d := p.Decisions[i]
		is.Cycles = is.Cycles || mayBeCycled(d)
		is.Template = is.Template || d.Tried || f.Explains && !d.InFlight && !d.Blocked(NotUnhealthy)
	}
	is.Cycles = is.Cycles && !f.Read.Cycles
	readable := f.Template.External && f.Template.Known && f.Template.Missing == ""
	is.Template = is.Template && readable && !is.Cycles && !f.Read.Template
	is.Spares = !is.Cycles && f.needSpares(p)
	return is
}

// mayBeCycled reports whether the machine of d could have a power cycle, which is a matter of hosts, and whether that makes a difference.
func mayBeCycled(d *Decision) bool {
	state := d.Verdict.State
	return OnHost(d.Target.Machine) && !Deleting(d.Target.Machine) && (state == health.Unhealthy || state == health.Pending)
}

var notUnhealthy = []Blocker{{Rule: NotUnhealthy}}

// inFlight reports whether it is observed that a remediation of the machine of d was begun and is not over: a request of this check exists, or the
// owner was asked and has neither finished nor was the machine healthy again. It is read from what is observed, so no crash can lose it.
func inFlight(f *Facts, d *Decision) bool {
	t := d.Target
	switch {
	case t.Ownership != NoRequest:
		return t.Ownership != ForeignRequest
	case f.Template.Unread && announced(t.Machine):
		return true
	case d.Verdict.State == health.Healthy && !Deleting(t.Machine) || OwnerOf(t.Machine) == NotAsked:
		return false
	}
	canRequest := f.Template.External && f.Template.Known
	return !canRequest || OwnerOf(t.Machine) == Asked // that there is a template now is news to one whose owner cannot remediate it
}

// begun reports whether this process began a remediation of the machine of d that the caches do not show yet. What was begun with another kind of
// requests than the check names now is over.
func (f *Facts) begun(d *Decision) bool {
	b := f.Memory.Begun[d.Target.UID]
	return d.Verdict.State != health.Healthy && b.Kind == f.Kind && f.Now.Before(b.At.Add(CachesLag)) && !inFlight(f, d)
}

// occupies reports whether the machine of d has one of the places that the limit on remediations in flight allows: its remediation is in progress, and
// somebody carries it out. A machine whose owner cannot replace it waits for a person, however long, and the others go on.
// (docs/adr/0034-what-cannot-go-on-waits-last.md)
func occupies(d *Decision) bool {
	t := d.Target
	return t.Cycle != nil || d.InFlight && (Deleting(t.Machine) || OwnerOf(t.Machine) != CannotRemediate)
}

// waits reports whether nothing about t itself, nor about its check, blocks a remediation. A check that is only observed counts those too.
func waits(f *Facts, d *Decision) bool {
	if d.Verdict.State != health.Unhealthy || d.InFlight || d.Target.Ownership != NoRequest {
		return false
	}
	for _, b := range d.Blockers {
		if b.Rule != NotActing {
			return false
		}
	}
	return f.Template.Known && f.Template.Missing == ""
}

func count(p *budget.Population, d *Decision) {
	if occupies(d) {
		p.InFlight++
	}
	if d.Waits {
		p.Waiting++
	}
	p.Count(d.Class())
}

// Class is what the limits count the machine of d as.
func (d *Decision) Class() budget.Class {
	if Deleting(d.Target.Machine) {
		return budget.Deleting
	}
	return classes[d.Verdict.State]
}

var classes = map[health.State]budget.Class{
	health.Healthy: budget.Healthy, health.Unhealthy: budget.Unhealthy, health.Pending: budget.Pending, health.Starting: budget.Starting,
	health.Unknown: budget.Unknown,
}

// grant applies the limits, and the cooldown after they were exceeded. Limits that cannot be read grant nothing, and how a cooldown goes on
// is not known then.
func grant(f *Facts, p *Plan) {
	if f.Invalid != nil {
		p.Storm.Storm = f.Storm
		return
	}
	p.Grant = budget.Decide(p.Population, f.Limits)
	if p.Storm = stormAfter(f, p); p.Storm.Blocks && !p.Grant.ShortCircuited() {
		p.Grant = budget.Grant{Reason: budget.CoolingDown}
	}
}

// stormAfter is what has become of the storm. As with a NodeHealthCheck, machines whose timeout has not expired make none: they would in every
// rollout. While an answer of the workload cluster is awaited, the storm is neither begun nor ended.
func stormAfter(f *Facts, p *Plan) budget.StormStep {
	tooMany := p.Grant.Reason == budget.TooMany && (f.Storm.Active || p.Population.Unhealthy > 0)
	if !f.Settled() && f.Storm.CoolingSince.IsZero() {
		return budget.StormStep{Storm: f.Storm, Blocks: f.Storm.Active && f.Cooldown != nil}
	}
	is := f.Storm.Next(f.Cooldown, tooMany && f.Settled(), f.Now)
	if is.Turn == budget.StormCooling { // as it is stored, so that the end does not move
		is.CoolingSince = is.CoolingSince.Truncate(time.Second)
		is.Recheck = is.CoolingSince.Add(*f.Cooldown)
	}
	return is
}

// queue decides which of the machines that wait are tried now. A machine does not use up its place if no request can be made for it, or if there
// is no owner to ask: nothing is in flight then, and nothing will tell that it is over.
//
// Those come last whose remediation could not be begun when it was tried, the longest ago first, and those without an owner: else one machine
// that cannot be remediated would keep all others waiting. Before them, those marked by hand are first, then those that have been due for
// longest, and by name where that is the same.
func queue(f *Facts, p *Plan) {
	left := p.Grant.Start
	if f.Mode != Active || f.queueUnread() {
		left = 0
	}
	for _, d := range waiting(f, p) {
		if left == 0 {
			break
		}
		d.Tried = true
		if t := d.Target; f.Template.External && t.Unusable == nil || !f.Template.External && owned(t.Machine) {
			left--
		}
	}
}

// waiting are the decisions about the machines that wait, in the order of the queue.
func waiting(f *Facts, p *Plan) []*Decision {
	all := make([]*Decision, 0, len(p.Open))
	for _, i := range p.Open {
		if d := p.Decisions[i]; d.Waits {
			all = append(all, d)
		}
	}
	slices.SortStableFunc(all, func(a, b *Decision) int {
		return cmp.Or(cmp.Compare(last(f, a), last(f, b)), f.Memory.Refused[a.Target.UID].Compare(f.Memory.Refused[b.Target.UID]),
			-cmp.Compare(byHand(a), byHand(b)), a.Verdict.OverdueSince(f.Now).Compare(b.Verdict.OverdueSince(f.Now)), cmp.Compare(a.Target.Name, b.Target.Name))
	})
	return all
}

// queueUnread reports whether the queue of remediations matters and is not known, as not all machines were read.
func (f *Facts) queueUnread() bool { return f.Counted != nil && f.Limits.InFlight != budget.Unlimited }

// last is 1 for a machine that comes after all others in the queue, else 0.
func last(f *Facts, d *Decision) int {
	t := d.Target
	if !f.Memory.Refused[t.UID].IsZero() || f.Template.External && RequestFailed(t.Machine) || !f.Template.External && !owned(t.Machine) {
		return 1
	}
	return 0
}

// byHand is 1 for a machine that a person has marked, else 0.
func byHand(d *Decision) int {
	if slices.ContainsFunc(d.Verdict.Findings, func(is health.Finding) bool { return is.Reason == health.MarkedByHand }) {
		return 1
	}
	return 0
}

// settle puts off what was just seen, and may be the first of many. What waits for a spare host is not put off: it says so while limits forbid its
// remediation too, and in a storm everything is just seen.
func settle(f *Facts, p *Plan) {
	if !f.Limited {
		return
	}
	for _, i := range p.Open {
		d := p.Decisions[i]
		if until := f.Memory.settledAt(d.Target.UID, f.Now); d.Waits && f.Now.Before(until) {
			d.Waits, d.SettlesAt, p.JustSeen = false, until, true
			p.Population.Waiting--
		}
	}
}

// settles is when a remediation starts that waits for the changes that come with the one that was seen first; zero if none does.
func settles(p *Plan) time.Time {
	var next time.Time
	if p.Grant.Reason == budget.Enough || p.Grant.Reason == budget.AtWork {
		for _, i := range p.Open {
			next = health.Earliest(next, p.Decisions[i].SettlesAt)
		}
	}
	return next
}

// verdictsUntil is the first moment at which time alone changes what is known of a machine: its verdict, or that its host is power-cycled.
func verdictsUntil(p *Plan) time.Time {
	var next time.Time
	for _, i := range p.Open {
		d := p.Decisions[i]
		next = health.Earliest(next, d.Verdict.Recheck)
		if t := d.Target; t.Cycle != nil && d.Verdict.State == health.Unhealthy && !Deleting(t.Machine) && !d.InFlight {
			next = health.Earliest(next, cycleUntil(t.Cycle))
		}
	}
	return next
}

// observable is when a remediation that was begun, and that was not observed yet, is not waited for any more; zero if there is none. No event says
// that a request was never observed because it was deleted at once.
func observable(f *Facts, p *Plan) time.Time {
	var next time.Time
	for _, i := range p.Open {
		if d := p.Decisions[i]; d.Begun {
			next = health.Earliest(next, f.Memory.Begun[d.Target.UID].At.Add(CachesLag))
		}
	}
	return next
}
