package machinehealthcheck

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
)

// Settling is how long nothing starts after a change that may be the first of many.
const Settling = 100 * time.Millisecond

// Decide returns the plan for facts: for each machine what blocks its remediation, how many remediations may start, and which do.
func Decide(facts Facts) Plan {
	if facts.Memory.Check != "" && facts.Memory.Check == facts.Check.UID { // the cache may not show the status yet that this process wrote
		facts.Storm = facts.Memory.Storm
	}
	plan := Plan{Reach: reach(&facts)}
	plan.Decisions, plan.Open = facts.decisions()
	plan.Population.Healthy = len(plan.Decisions) - len(plan.Open)
	for _, decision := range plan.Open {
		decision.InFlight = isInFlight(&facts, decision)
		decision.Waits = !decision.InFlight && !blockedAlone(&facts, &plan, decision)
		if occupies(&facts, decision) {
			plan.Population.InFlight++
		}
		if decision.Waits {
			plan.Population.Waiting++
		}
		plan.Population.Count(decision.Class())
	}
	queue := holdBack(&facts, &plan)
	grant(&facts, &plan)
	try(&facts, &plan, queue)
	for _, decision := range plan.Open {
		ask(&facts, &plan, decision)
		stepFor(&facts, &plan, decision)
	}
	plan.Allowed = allowed(&facts, &plan)
	plan.Conditions = checkConditions(&facts, &plan)
	plan.AllRequested = facts.Template.Known && facts.Settled() && plan.Population.Waiting == 0 &&
		!slices.ContainsFunc(plan.Open, func(decision *Decision) bool { return decision.PutOff.Reason != "" })
	plan.Restriction = restriction(&plan)
	plan.Recheck, plan.VerdictsUntil = plan.next(&facts)
	plan.Memory = facts.Memory.after(&facts, &plan)
	plan.Needs = needs(&facts, &plan)
	return plan
}

// needs are the facts that this decision depends on and that were not read. The template is not read before it is known which machines are
// left to their power cycles.
func needs(facts *Facts, plan *Plan) Needs {
	some := func(needs func(decision *Decision) bool) bool {
		return slices.ContainsFunc(plan.Open, needs)
	}
	if !facts.Read.Cycles && some((*Decision).needsCycles) {
		return Needs{Cycles: true}
	}
	var needed Needs
	if template := facts.Template; !facts.Read.Template && template.External && template.Known && template.Missing == "" {
		needed.Template = some(func(decision *Decision) bool {
			return decision.Tried || facts.Explains && !decision.InFlight && !decision.Blocked(NotUnhealthy)
		})
	}
	needed.Hosts = !facts.Read.Hosts && some(func(decision *Decision) bool { return decision.NeedsHost(facts) })
	if !facts.Read.Spares {
		needed.Spares = some(func(decision *Decision) bool { return decision.Spare != nil })
	}
	return needed
}

// NeedsHost reports whether something about the machine of decision depends on its host, which was not read.
func (decision *Decision) NeedsHost(facts *Facts) bool {
	machine := decision.Target.Machine
	if decision.Target.Host != nil || !OnHost(machine) || Deleting(machine) || decision.InFlight {
		return false
	}
	until := health.UpdatingUntil(machine, facts.Now)
	longUpdate := !until.IsZero() && !facts.Now.Before(until)
	return decision.Verdict.State == health.Unhealthy && longUpdate || decision.Tried && !facts.Template.External
}

func (decision *Decision) needsCycles() bool {
	due := decision.Verdict.State == health.Unhealthy || decision.Verdict.State == health.Pending
	return due && OnHost(decision.Target.Machine) && !Deleting(decision.Target.Machine)
}

var notUnhealthy = []Blocker{{Rule: NotUnhealthy}}

// isInFlight reports whether it is observed that a remediation of the machine of decision was begun and is not over: a request of this
// check exists, or the owner was asked and has neither finished nor was the machine healthy again. It is read from what is observed, so
// no crash can lose it.
func isInFlight(facts *Facts, decision *Decision) bool {
	target := decision.Target
	switch {
	case target.Ownership != NoRequest:
		return target.Ownership != ForeignRequest
	case decision.Verdict.State == health.Healthy && !Deleting(target.Machine) || OwnerOf(target.Machine) == NotAsked:
		return false
	case target.remediatedBy() != nil: // it counts for the check that asked
		return false
	}
	canRequest := facts.Template.External && facts.Template.Known
	return !canRequest || !target.stuck(facts.Now) // that there is a template now is news to one whose owner will not remediate it
}

// occupies reports whether the machine of decision has one of the places that the limit on remediations in flight allows: its remediation
// is in progress, and somebody carries it out. A machine whose owner cannot replace it, or does not answer, waits for a person, however
// long, and the others go on. So does a power cycle of a host that somebody else keeps off.
func occupies(facts *Facts, decision *Decision) bool {
	target := decision.Target
	switch {
	case target.Cycle != nil && !waitsForOthers(target.Cycle):
		return true
	case !decision.InFlight || waitsForOthers(target.Request):
		return false
	case Deleting(target.Machine):
		return true
	case OwnerOf(target.Machine) == CannotRemediate:
		return false
	case target.Ownership != NoRequest:
		return true
	}
	return !target.stuck(facts.Now)
}

func waitsForOthers(req *metav1.PartialObjectMetadata) bool {
	return req != nil && req.Annotations[mendv1.WaitsForAnnotation] != ""
}

// Class is what the limits count the machine of decision as.
func (decision *Decision) Class() budget.Class {
	if Deleting(decision.Target.Machine) {
		return budget.Deleting
	}
	return classes[decision.Verdict.State]
}

var classes = map[health.State]budget.Class{
	health.Healthy: budget.Healthy, health.Unhealthy: budget.Unhealthy, health.Pending: budget.Pending, health.Starting: budget.Starting,
	health.Unknown: budget.Unknown,
}

// grant applies the limits, and the cooldown after they were exceeded. Limits that cannot be read grant nothing, and how a cooldown goes on
// is not known then.
func grant(facts *Facts, plan *Plan) {
	if facts.Invalid != nil {
		plan.Storm.Storm = facts.Storm
		return
	}
	plan.Grant = budget.Decide(plan.Population, facts.Limits)
	if plan.Storm = stormAfter(facts, plan); plan.Storm.Blocks && !plan.Grant.ShortCircuited() {
		plan.Grant = budget.Grant{Reason: budget.CoolingDown}
	}
}

// stormAfter is what has become of the storm. As with a NodeHealthCheck, machines whose timeout has not expired make none: they would in
// every rollout. While an answer of the workload cluster is awaited, the storm is neither begun nor ended.
func stormAfter(facts *Facts, plan *Plan) budget.StormStep {
	tooMany := plan.Grant.Reason == budget.TooMany && (facts.Storm.Active || plan.Population.Unhealthy > 0)
	if !facts.Settled() && facts.Storm.CoolingSince.IsZero() {
		return budget.StormStep{Storm: facts.Storm, Blocks: facts.Storm.Active && facts.Cooldown != nil}
	}
	next := facts.Storm.Next(facts.Cooldown, tooMany && facts.Settled(), facts.Now)
	if next.Turn == budget.StormCooling { // as it is stored, so that the end does not move
		next.CoolingSince = next.CoolingSince.Truncate(time.Second)
		next.Recheck = next.CoolingSince.Add(*facts.Cooldown)
	}
	return next
}

// try decides which of the machines in the queue are tried now. A machine does not use up its place if no request can be made for it:
// nothing is in flight then, and nothing will tell that it is over.
func try(facts *Facts, plan *Plan, queue []*Decision) {
	left := plan.Grant.Start
	if facts.Mode != Active {
		left = 0
	}
	for _, decision := range queue {
		if left == 0 {
			break
		}
		decision.Tried = true
		if decision.Target.Unusable == nil {
			left--
		}
	}
}

// waiting are the decisions about the machines that wait, in the order of the queue.
//
// Those come last whose remediation could not be begun when it was tried, the longest ago first: else one
// machine that cannot be remediated would keep all others waiting. Before them, those marked by hand are first, then those that have been
// due for longest, and by name where that is the same.
func waiting(facts *Facts, plan *Plan) []*Decision {
	queue := make([]*Decision, 0, len(plan.Open))
	for _, decision := range plan.Open {
		if decision.Waits {
			queue = append(queue, decision)
		}
	}
	slices.SortStableFunc(queue, func(a, b *Decision) int {
		return cmp.Or(
			cmp.Compare(last(facts, a), last(facts, b)),
			facts.Memory.Refused[a.Target.UID].Compare(facts.Memory.Refused[b.Target.UID]),
			-cmp.Compare(byHand(a), byHand(b)),
			a.Verdict.OverdueSince(facts.Now).Compare(b.Verdict.OverdueSince(facts.Now)),
			cmp.Compare(a.Target.Name, b.Target.Name),
		)
	})
	return queue
}

// last is 1 for a machine that comes after all others in the queue, else 0.
func last(facts *Facts, decision *Decision) int {
	target := decision.Target
	if facts.Template.External && RequestFailed(target.Machine) || !facts.Memory.Refused[target.UID].IsZero() {
		return 1
	}
	return 0
}

func byHand(decision *Decision) int {
	if slices.ContainsFunc(decision.Verdict.Findings, func(finding health.Finding) bool { return finding.Reason == health.MarkedByHand }) {
		return 1
	}
	return 0
}

// holdBack finds those of the machines that wait which do not start now whatever the limits are, in the order of the queue: they take no
// place from others, and no host is counted for two of them. One that waits for a spare host says so while limits forbid its remediation
// too; in a storm everything is just seen. It returns the queue of the others.
func holdBack(facts *Facts, plan *Plan) []*Decision {
	turn, expected := facts.oneMay(plan), facts.Spares.Expected
	return slices.DeleteFunc(waiting(facts, plan), func(decision *Decision) bool {
		if contradicted(facts, decision) {
			decision.AwaitsTurn, turn = !turn, false
		}
		if !decision.AwaitsTurn {
			decision.Spare = facts.spareFor(decision, expected)
		}
		if decision.Spare != nil && !decision.Spare.blocks() {
			expected = append(slices.Clip(expected), facts.Spares.Fits[decision.Target.UID])
		}
		if off := facts.putOff(decision.Target); !decision.AwaitsTurn && !decision.Spare.blocks() && facts.Now.Before(off.Until) {
			decision.PutOff = off
		}
		blocked := decision.AwaitsTurn || decision.Spare.blocks() || decision.PutOff.Reason != ""
		if decision.Waits = !blocked && len(facts.Placeless[decision.Target.UID]) == 0; !decision.Waits {
			plan.Population.Waiting--
		}
		return !decision.Waits
	})
}

// oneMay reports whether one of the machines may be remediated whose failure is contradicted: the capacity of the one before is back, no
// remediation goes on, and all machines have nodes. After one that does not come back a person has to see why.
func (facts *Facts) oneMay(plan *Plan) bool {
	return facts.Capacity.Missing == 0 && !slices.ContainsFunc(plan.Open, func(decision *Decision) bool {
		return decision.InFlight || Deleting(decision.Target.Machine) || decision.Target.Health.Node == health.NodeAwaited
	})
}

const (
	// hearsSoon is how long after a Machine was first seen not healthy its other checks have usually judged it, as after a start.
	hearsSoon = 10 * time.Second
	// yieldsFor is how long after an attempt in vain a check lets others go first: longer than its answer may be awaited that was lost. A
	// check whose webhook does not answer would else keep the others waiting for ever.
	yieldsFor = time.Minute
)

// putOff is what a remediation of target waits for now that is due: what was just seen may be the first of many, and no machine starts
// before all its checks have judged it, but not for ever, since a kind of requests may never be read; nor while it is the turn of another
// check that finds it unhealthy.
func (facts *Facts) putOff(target *Target) PutOff {
	since, known := facts.Memory.NotHealthy[target.UID]
	if !known {
		since = facts.Now
	}
	waits := func(other Opinion) bool { return other.State == health.Unhealthy && !other.InFlight }
	tried, failed := facts.Memory.Refused[target.UID]
	heard, yields := since.Add(CyclesUnreadFor), tried.Add(yieldsFor)
	switch {
	case target.unheard() != nil && facts.Now.Before(heard):
		looks := since.Add(hearsSoon)
		if !facts.Now.Before(looks) {
			looks = heard
		}
		return PutOff{Reason: OtherCheckUnheard, Until: heard, Recheck: looks}
	case failed && facts.Now.Before(yields) && slices.ContainsFunc(target.Others, waits):
		return PutOff{Reason: OtherCheckGoesFirst, Until: yields, Recheck: yields}
	case !facts.Limited:
		return PutOff{}
	case facts.Memory.ShortCircuited:
		since = facts.Now // if few enough are unhealthy in this reconcile, it is the first one
	case facts.Memory.Calm.After(since):
		since = facts.Memory.Calm
	}
	settled := since.Add(Settling)
	return PutOff{Reason: JustSeen, Until: settled, Recheck: settled}
}

// next is the first moment at which time alone starts a remediation or changes the grant, and the first one at which it changes what is
// known of a machine: its verdict, or that its host is power-cycled.
func (plan *Plan) next(facts *Facts) (starts, verdicts time.Time) {
	starts = plan.Storm.Recheck
	settles := plan.Grant.Reason == budget.Enough || plan.Grant.Reason == budget.AtWork
	for _, decision := range plan.Open {
		verdicts = health.Earliest(verdicts, decision.Verdict.Recheck)
		if silent := decision.Target.silentFrom(); decision.InFlight && facts.Now.Before(silent) {
			verdicts = health.Earliest(verdicts, silent)
		}
		if settles {
			starts = health.Earliest(starts, decision.PutOff.Recheck)
		}
		for j := range decision.Blockers {
			switch blocker := &decision.Blockers[j]; blocker.Rule {
			case MachineUpdating, RemediationLoop, PowerCycleInProgress:
				verdicts = health.Earliest(verdicts, blocker.Until)
			case NoSpareHost, SpareHostsUnread, Reason(place.ClosedWindow), Reason(place.PoliciesUnread), Reason(place.HeldByOverride),
				Reason(place.GroupRate), Reason(place.SlowStart):
				starts = health.Earliest(starts, blocker.Until)
			}
		}
	}
	return starts, verdicts
}

// after is the memory that goes with the plan for facts.
func (m Memory) after(facts *Facts, plan *Plan) Memory {
	next := Memory{
		Check: facts.Check.UID, NotHealthy: map[types.UID]time.Time{}, Storm: plan.Storm.Storm,
		Calm: m.Calm, ShortCircuited: plan.Grant.ShortCircuited(),
		Refused: map[types.UID]time.Time{}, Opinions: map[types.UID]Opinion{},
	}
	if m.ShortCircuited && !next.ShortCircuited {
		next.Calm = facts.Now
	}
	for _, decision := range plan.Open {
		id := decision.Target.UID
		if decision.Verdict.State != health.Healthy {
			next.NotHealthy[id] = facts.Now
			if since, known := m.NotHealthy[id]; known {
				next.NotHealthy[id] = since
			}
		}
		if at, refused := m.Refused[id]; refused && decision.Verdict.State == health.Unhealthy {
			next.Refused[id] = at
		}
	}
	for _, decision := range plan.Decisions {
		if id := decision.Target.UID; len(decision.Target.Others) > 0 {
			next.Opinions[id] = m.Opinions[id].after(facts, decision)
		}
	}
	return next
}

// Began notes that a remediation was begun, by the owner or by a request.
func (m Memory) Began(id types.UID, byOwner bool) {
	delete(m.Refused, id)
	if byOwner {
		m.revise(id, func(opinion *Opinion) { opinion.AskedOwner = true })
	}
}

// Failed notes that it was tried to begin a remediation, in vain.
func (m Memory) Failed(id types.UID, at time.Time) { m.Refused[id] = at }

func (m Memory) revise(id types.UID, revise func(*Opinion)) {
	if opinion, shared := m.Opinions[id]; shared {
		revise(&opinion)
		m.Opinions[id] = opinion
	}
}
