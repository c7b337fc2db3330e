package machinehealthcheck

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

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
	for _, i := range plan.Open {
		decision, id := plan.Decisions[i], plan.Decisions[i].Target.UID
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

// Opinion is what a check says of a Machine that several checks select on which kubemend acts. Each acts by its own rules and limits; the
// conditions of the Machine are of all of them.
type Opinion struct {
	Check string
	// Older says that the check is older than the one whose decision this is.
	Older bool
	// Heard says that the check has judged the Machine since this process was started, and that the first list of requests was over.
	Heard bool
	State health.State
	// Healthy says that the check last found the Machine healthy; else Due are the findings for which it last found it unhealthy. Both
	// stand while the Machine is pending or unknown.
	Healthy bool
	Due     []health.Finding
	// InFlight says that a remediation is in flight, or begins, that the check asked for. AskedOwner says that it asked the owner: that
	// is in flight until the check finds the Machine healthy, or the owner is stuck.
	InFlight, AskedOwner bool
}

// Equal reports whether two opinions of one check are the same.
func (opinion Opinion) Equal(other Opinion) bool {
	return opinion.Heard == other.Heard && opinion.State == other.State && opinion.Healthy == other.Healthy &&
		opinion.InFlight == other.InFlight && opinion.AskedOwner == other.AskedOwner && slices.Equal(opinion.Due, other.Due)
}

// after is what the check says by decision, of which this is what it said before.
func (opinion Opinion) after(facts *Facts, decision *Decision) Opinion {
	target := decision.Target
	next := Opinion{
		Heard: opinion.Heard || !facts.Template.Syncing, State: decision.Verdict.State, Healthy: opinion.Healthy, Due: opinion.Due,
		AskedOwner: opinion.AskedOwner && OwnerOf(target.Machine) != NotAsked,
	}
	switch decision.Verdict.State {
	case health.Healthy:
		next.Healthy, next.Due = true, nil
	case health.Unhealthy:
		next.Healthy, next.Due = false, decision.Verdict.Due(facts.Now)
	case health.Starting, health.Pending, health.Unknown:
	}
	requested := target.Ownership == OwnRequest || target.Ownership == AdoptableRequest
	asked := next.AskedOwner && next.State != health.Healthy && !target.stuck(facts.Now)
	next.InFlight = requested || asked || decision.Starts()
	if template := &facts.Template; template.External && !template.Known && template.Missing == "" { // a request may exist still
		next.InFlight = next.InFlight || opinion.InFlight
	}
	return next
}

// remediatedBy is the other check that asked for the remediation of target which is in flight; nil if none did.
func (target *Target) remediatedBy() *Opinion {
	i := slices.IndexFunc(target.Others, func(other Opinion) bool { return other.InFlight })
	if i < 0 {
		return nil
	}
	return &target.Others[i]
}

// unheard is another check that has not judged target yet: it may say that it is unhealthy, or have a remediation in flight; nil if all
// have.
func (target *Target) unheard() *Opinion {
	i := slices.IndexFunc(target.Others, func(other Opinion) bool { return !other.Heard })
	if i < 0 {
		return nil
	}
	return &target.Others[i]
}

// outranked reports whether another check has more to say of the machine of decision than this one: one that remediates it goes before one
// that finds it unhealthy, and that before one whose timeout runs; of equals the oldest speaks. Two that speak would write in turn.
func (decision *Decision) outranked(now time.Time) bool {
	own := rank(decision.Verdict.State, decision.InFlight && !decision.Target.stuck(now) || decision.Starts())
	return slices.ContainsFunc(decision.Target.Others, func(other Opinion) bool {
		theirs := rank(other.State, other.InFlight)
		return theirs > own || theirs == own && other.Older
	})
}

func rank(state health.State, inFlight bool) int {
	switch {
	case inFlight:
		return 3
	case state == health.Unhealthy:
		return 2
	case state == health.Pending:
		return 1
	}
	return 0
}

// Held are the findings for which the check of decision, or another one, says at now that the machine is unhealthy, in order of precedence.
func (decision *Decision) Held(now time.Time) []health.Finding {
	var held []health.Finding
	if decision.Verdict.State == health.Unhealthy {
		held = decision.Verdict.Due(now)
	}
	if len(decision.Target.Others) == 0 {
		return held
	}
	for i := range decision.Target.Others {
		held = append(held, decision.Target.Others[i].Due...)
	}
	slices.SortFunc(held, func(a, b health.Finding) int {
		return cmp.Or(reasons[a.Reason].order-reasons[b.Reason].order, cmp.Compare(a.Text(), b.Text()))
	})
	return slices.CompactFunc(held, func(a, b health.Finding) bool { return a.Text() == b.Text() })
}
