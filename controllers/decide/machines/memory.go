package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// settledAt is when the time is over in which nothing starts for a machine: it was first seen not healthy, or few enough machines were, just now.
func (m Memory) settledAt(machine string, now time.Time) time.Time {
	since, known := m.NotHealthy[machine]
	if m.ShortCircuited || !known {
		return now.Add(Settling) // if few enough are unhealthy in this reconcile, it is the first one
	}
	if m.Calm.After(since) {
		since = m.Calm
	}
	return since.Add(Settling)
}

// after is the memory that goes with the plan for f.
func (m Memory) after(f *Facts, p *Plan) Memory {
	next := Memory{
		Check: f.Check, NotHealthy: map[string]time.Time{}, Calm: m.Calm, ShortCircuited: p.Grant.ShortCircuited(), Storm: p.Storm.Storm,
		Refused: map[string]time.Time{},
	}
	if m.ShortCircuited && !next.ShortCircuited {
		next.Calm = f.Now
	}
	for _, i := range p.Open {
		d, id := p.Decisions[i], p.Decisions[i].Target.ID
		if d.Verdict.State != health.Healthy {
			next.NotHealthy[id] = f.Now
			if since, known := m.NotHealthy[id]; known {
				next.NotHealthy[id] = since
			}
		}
		if at, refused := m.Refused[id]; refused && d.Verdict.State == health.Unhealthy {
			next.Refused[id] = at
		}
	}
	return next
}

// Began notes that a remediation was begun.
func (m Memory) Began(id string) { delete(m.Refused, id) }

// Failed notes that it was tried to begin a remediation, in vain.
func (m Memory) Failed(id string, at time.Time) { m.Refused[id] = at }
