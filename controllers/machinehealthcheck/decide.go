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

// Settling is how long no remediation starts after a machine failed or a short-circuit ended: more machines may follow in a moment.
const Settling = 100 * time.Millisecond

// Decide returns the plan for facts: for each machine what blocks its remediation, and whether the remediation starts.
func Decide(facts Facts) Plan {
	plan := Plan{Reach: reach(&facts)}
	plan.Decisions, plan.Open = facts.decisions()
	plan.Population.Healthy = len(plan.Decisions) - len(plan.Open)
	var waiting []*Decision // machines whose own state does not block them
	for _, decision := range plan.Open {
		if decision.InFlight = isInFlight(&facts, decision); !decision.InFlight && !blockedAlone(&facts, &plan, decision) {
			waiting = append(waiting, decision)
		}
		if occupies(&facts, decision) {
			plan.Population.InFlight++
		}
		plan.Population.Count(decision.Class())
	}
	waiting = holdBack(&facts, &plan, waiting)
	plan.Population.Waiting = len(waiting)
	if facts.Invalid == nil {
		plan.Grant = budget.Decide(plan.Population, facts.Limits)
	}
	for _, decision := range waiting {
		placeless := len(facts.Placeless[decision.Target.UID]) > 0
		decision.Tried = facts.Mode == Active && facts.Invalid == nil && !plan.Grant.ShortCircuited() && !placeless
	}
	for _, decision := range plan.Open {
		ask(&facts, &plan, decision)
		stepFor(&facts, &plan, decision)
	}
	plan.Allowed = allowed(&facts, &plan)
	plan.Conditions = checkConditions(&facts, &plan)
	plan.Recheck, plan.VerdictsUntil = plan.next(&facts)
	plan.Memory = facts.Memory.after(&facts, &plan)
	plan.Needs = needs(&facts, &plan)
	return plan
}

// needs returns the facts that the decision depends on and that were not read. The template comes after the power cycles, which decide for
// which machines a request may be created.
func needs(facts *Facts, plan *Plan) Needs {
	some := func(needs func(decision *Decision) bool) bool {
		return slices.ContainsFunc(plan.Open, needs)
	}
	if !facts.Read.Cycles && some(func(decision *Decision) bool {
		due := decision.Verdict.State == health.Unhealthy || decision.Verdict.State == health.Pending
		return due && OnHost(decision.Target.Machine) && !Deleting(decision.Target.Machine)
	}) {
		return Needs{Cycles: true}
	}
	var needed Needs
	if template := facts.Template; !facts.Read.Template && template.External && template.Known && template.Missing == "" {
		needed.Template = some(func(decision *Decision) bool {
			return decision.Tried || facts.Explains && !decision.InFlight && !decision.Blocked(NotUnhealthy)
		})
	}
	needed.Hosts = some(func(decision *Decision) bool { return decision.NeedsHost(facts) })
	if !facts.Read.Spares {
		needed.Spares = some(func(decision *Decision) bool { return decision.Spare != nil })
	}
	return needed
}

// NeedsHost reports whether the decision depends on the machine's host, which was not read yet.
func (decision *Decision) NeedsHost(facts *Facts) bool {
	machine := decision.Target.Machine
	if decision.Target.Host != nil || !OnHost(machine) || Deleting(machine) || decision.InFlight {
		return false
	}
	until := health.UpdatingUntil(machine, facts.Now)
	longUpdate := !until.IsZero() && !facts.Now.Before(until)
	return decision.Verdict.State == health.Unhealthy && longUpdate || decision.Tried && !facts.Template.External
}

var notUnhealthy = []Blocker{{Rule: NotUnhealthy}}

// isInFlight reports whether a remediation of the machine has begun and is not over: a request of this check exists, or the owner was
// asked, has not finished, and the machine has not been healthy since. All of this is stored in the API server.
func isInFlight(facts *Facts, decision *Decision) bool {
	target := decision.Target
	switch {
	case target.Ownership != NoRequest:
		return target.Ownership != ForeignRequest
	case decision.Verdict.State == health.Healthy && !Deleting(target.Machine) || OwnerOf(target.Machine) == NotAsked:
		return false
	case target.remediatedBy() != nil: // in flight for the check that asked
		return false
	}
	canRequest := facts.Template.External && facts.Template.Known
	return !canRequest || !target.stuck(facts.Now) // a stuck owner: the check can create a request instead
}

// occupies reports whether the machine takes one of the places that maxInFlight of RemediationPolicies allows: its remediation is in
// progress, and somebody carries it out. If the owner cannot replace the machine or does not answer, or if another user keeps its host
// powered off, a person has to act. That may take long, so the machine takes no place.
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

// Class returns how the limits count the machine of decision.
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

// refusedAt returns when a remediation of the machine was last tried and could not begin; zero if none was tried, or one has begun since.
// Such a machine goes after all others: otherwise a machine that cannot be remediated would keep the others waiting for ever.
func refusedAt(facts *Facts, decision *Decision) time.Time {
	target := decision.Target
	if at := facts.Memory.Refused[target.UID]; !at.IsZero() || !facts.Template.External || !RequestFailed(target.Machine) {
		return at
	}
	return Since(ConditionOf(target, ExternallyRemediated))
}

func byHand(decision *Decision) int {
	if slices.ContainsFunc(decision.Verdict.Findings, func(finding health.Finding) bool { return finding.Reason == health.MarkedByHand }) {
		return 1
	}
	return 0
}

// holdBack marks the waiting machines that do not start now whatever the limits are, and returns the others. The marked machines take no
// place from others, and no host is counted twice. A machine is marked even if limits block it too, so that it reports the missing host.
// Places and hosts go first to machines whose remediation was not refused, then to those marked by hand, then to those due for longest.
func holdBack(facts *Facts, plan *Plan, waiting []*Decision) []*Decision {
	slices.SortStableFunc(waiting, func(a, b *Decision) int {
		return cmp.Or(
			refusedAt(facts, a).Compare(refusedAt(facts, b)),
			-cmp.Compare(byHand(a), byHand(b)),
			a.Verdict.OverdueSince(facts.Now).Compare(b.Verdict.OverdueSince(facts.Now)),
			cmp.Compare(a.Target.Name, b.Target.Name),
		)
	})
	turn, expected := facts.oneMayStart(plan), facts.Spares.Expected
	return slices.DeleteFunc(waiting, func(decision *Decision) bool {
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
		return decision.AwaitsTurn || decision.Spare.blocks() || decision.PutOff.Reason != ""
	})
}

// oneMayStart reports whether one machine may be remediated although its failure is contradicted: no remediation is in flight, no capacity
// of earlier ones is missing, and no machine is being deleted or waits for its node. If that never happens, a user has to find out why.
func (facts *Facts) oneMayStart(plan *Plan) bool {
	return facts.Capacity.Missing == 0 && !slices.ContainsFunc(plan.Open, func(decision *Decision) bool {
		return decision.InFlight || Deleting(decision.Target.Machine) || decision.Target.Health.Node == health.NodeAwaited
	})
}

const (
	// hearsSoon is how long after a Machine was first seen not healthy its other checks have usually judged it, also after a start.
	hearsSoon = 10 * time.Second
	// yieldsFor is how long after a failed attempt a check lets other checks go first. It is longer than a lost answer may be awaited.
	// Without it a check whose webhook does not answer would keep the others waiting for ever.
	yieldsFor = time.Minute
)

// putOff returns why a remediation that is due waits: another check has not judged the machine yet; it is the turn of another check that
// finds the machine unhealthy; or the failure was just seen and may be the first of many. The wait for a check has a deadline, since its
// kind of requests may never become readable.
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
		since = facts.Now // if the short-circuit is over, it ended in this reconcile
	case facts.Memory.Calm.After(since):
		since = facts.Memory.Calm
	}
	settled := since.Add(Settling)
	return PutOff{Reason: JustSeen, Until: settled, Recheck: settled}
}

// next returns when time alone first starts a remediation or changes the grant, and when it first changes what is known of a machine.
func (plan *Plan) next(facts *Facts) (starts, verdicts time.Time) {
	for _, decision := range plan.Open {
		verdicts = health.Earliest(verdicts, decision.Verdict.Recheck)
		if silent := decision.Target.silentFrom(); decision.InFlight && facts.Now.Before(silent) {
			verdicts = health.Earliest(verdicts, silent)
		}
		if !plan.Grant.ShortCircuited() {
			starts = health.Earliest(starts, decision.PutOff.Recheck)
		}
		for j := range decision.Blockers {
			switch blocker := &decision.Blockers[j]; blocker.Rule {
			case MachineUpdating, RemediationLoop, PowerCycleInProgress:
				verdicts = health.Earliest(verdicts, blocker.Until)
			case NoSpareHost, SpareHostsUnread, Reason(place.ClosedWindow), Reason(place.PoliciesUnread), Reason(place.HeldByOverride),
				Reason(place.NodeShuttingDown), Reason(place.ScaleDownPlanned), Reason(place.GroupRate), Reason(place.SlowStart):
				starts = health.Earliest(starts, blocker.Until)
			}
		}
	}
	return starts, verdicts
}

// after returns what to remember from plan.
func (m Memory) after(facts *Facts, plan *Plan) Memory {
	next := Memory{
		Check: facts.Check.UID, NotHealthy: map[types.UID]time.Time{}, Calm: m.Calm, ShortCircuited: plan.Grant.ShortCircuited(),
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
		if target := decision.Target; len(target.Others) > 0 {
			next.Opinions[target.UID] = m.Opinions[target.UID].after(facts, decision)
		}
	}
	return next
}
