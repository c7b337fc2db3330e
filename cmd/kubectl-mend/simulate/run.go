package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// simulation is an engine with its environment.
type simulation struct {
	*engine

	environment *environment
	counters    *counters
	end         time.Time
}

// simulation sets the controllers and everybody else up.
func (s *engine) simulation() (*simulation, error) {
	if err := s.build(); err != nil {
		return nil, err
	}
	o, err := newEnvironment(s)
	if err != nil {
		return nil, err
	}
	return &simulation{engine: s, environment: o, counters: newCounters(s, o.kinds), end: s.question.From.Add(s.question.Horizon)}, nil
}

const (
	// mostRounds is how many rounds one moment may have: a power cycle has a dozen steps, and others may respond to each of them at once.
	mostRounds = 200
	// mostMoments is how many moments a simulation may have. A reconcile that fails is repeated once a minute, and no other wait is as short for long.
	mostMoments = 50_000
)

// run goes from one moment to the next at which anything is due, until the end, and never waits.
func (p *simulation) run(ctx context.Context) error {
	for n := range mostMoments {
		if err := p.moment(ctx, n == 0); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		next := health.Earliest(p.next(), p.environment.next())
		if next.IsZero() || next.After(p.end) {
			p.clock.SetTime(p.end)
			return nil
		}
		if next.After(p.clock.Now()) {
			p.clock.SetTime(next)
		}
	}
	return fmt.Errorf("after %d moments, at %s after the beginning, the end is not reached: choose a shorter --horizon", mostMoments, p.eventLog.after())
}

// moment is what happens at one moment: the environment changes, the controllers reconcile until they have nothing more to do, the others respond
// at once, and so on until nothing changes. all says that all objects are reconciled, whether anything has changed or not.
func (p *simulation) moment(ctx context.Context, all bool) error {
	before := p.state.Changes()
	p.environment.happen(ctx)
	all = all || p.state.Changes() != before
	if !all && len(p.dueNow()) == 0 {
		return p.environment.err // such as when BMO has reconciled a host whose power is changing
	}
	for range mostRounds {
		if err := p.settle(ctx, all); err != nil {
			return err
		}
		p.counters.count()
		before := p.state.Changes()
		p.environment.react(ctx)
		if p.environment.err != nil || p.state.Changes() == before {
			return p.environment.err
		}
		all = true
	}
	return fmt.Errorf("at %s after the beginning the controllers and what is assumed of others respond to each other without end", p.eventLog.after())
}

// settle reconciles until nothing changes: what is due, and, as soon as anything has changed, everything.
func (p *simulation) settle(ctx context.Context, all bool) error {
	for range mostRounds {
		objects := p.dueNow()
		if all {
			objects = p.objects()
		}
		before := p.state.Changes()
		p.reconcileAll(ctx, objects)
		if p.state.Changes() == before {
			return nil
		}
		all = true
	}
	return fmt.Errorf("at %s after the beginning the controllers reconcile without end", p.eventLog.after())
}
