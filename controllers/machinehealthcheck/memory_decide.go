package machinehealthcheck

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// settledAt is when the time is over in which nothing starts for a machine: it was first seen not healthy, or few enough machines were,
// just now.
func (m Memory) settledAt(machine types.UID, now time.Time) time.Time {
	since, known := m.NotHealthy[machine]
	if m.ShortCircuited || !known {
		return now.Add(Settling) // if few enough are unhealthy in this reconcile, it is the first one
	}
	if m.Calm.After(since) {
		since = m.Calm
	}
	return since.Add(Settling)
}

// hears reports whether a remediation of machine waits at now for checks that have not judged it: not for ever, since a kind of requests
// may never be read.
func (m Memory) hears(machine types.UID, now time.Time) bool {
	since, known := m.NotHealthy[machine]
	return !known || now.Before(since.Add(CyclesUnreadFor))
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

// NotBegun notes that no remediation began that was to begin.
func (m Memory) NotBegun(id types.UID) {
	m.revise(id, func(opinion *Opinion) { opinion.InFlight = false })
}

func (m Memory) revise(id types.UID, revise func(*Opinion)) {
	if opinion, shared := m.Opinions[id]; shared {
		revise(&opinion)
		m.Opinions[id] = opinion
	}
}
