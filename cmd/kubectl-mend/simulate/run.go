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
	// watch is called each time that the controllers have nothing more to do; nil for nothing.
	watch func(context.Context)
}

const (
	// mostRounds is how many rounds one moment may have: a power cycle has a dozen steps, and others may answer each of them at once.
	mostRounds = 200
	// mostMoments is how many moments a simulation may have. A reconcile that fails is repeated once a minute, and nothing waits for less for long.
	mostMoments = 50_000
)

// run goes from one moment to the next at which anything is due, until the end, and never waits.
func (p *simulation) run(ctx context.Context) error {
	if err := p.moment(ctx, true); err != nil {
		return err
	}
	for range mostMoments {
		next := health.Earliest(p.next(), p.environment.next())
		if next.IsZero() || next.After(p.end) {
			p.clock.set(p.end)
			return nil
		}
		if next.After(p.clock.Now()) {
			p.clock.set(next)
		}
		if err := p.moment(ctx, false); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return fmt.Errorf("after %d moments, at %s after the beginning, the end is not reached: choose a shorter --horizon",
		mostMoments, p.clock.Now().Sub(p.eventLog.begin))
}

// moment is what happens at one moment: the environment changes, the controllers reconcile until they have nothing more to do, the others answer
// at once, and so on until nothing changes. all says that all objects are reconciled, whether anything has changed or not.
func (p *simulation) moment(ctx context.Context, all bool) error {
	before := p.state.Changes()
	if err := p.environment.happen(ctx); err != nil {
		return err
	}
	all = all || p.state.Changes() != before
	if !all && len(p.dueNow()) == 0 {
		return nil // such as when BMO has looked at a host that is being switched
	}
	for range mostRounds {
		if err := p.settle(ctx, all); err != nil {
			return err
		}
		if err := p.counters.count(ctx); err != nil {
			return err
		}
		if p.watch != nil {
			p.watch(ctx)
		}
		before := p.state.Changes()
		if err := p.environment.react(ctx); err != nil {
			return err
		}
		if p.state.Changes() == before {
			return nil
		}
		all = true
	}
	return fmt.Errorf("at %s after the beginning the controllers and what is assumed of others answer each other without end",
		p.clock.Now().Sub(p.eventLog.begin))
}

// settle reconciles until nothing changes: what is due, and, as soon as anything has changed, everything.
func (p *simulation) settle(ctx context.Context, all bool) error {
	for range mostRounds {
		objects := p.dueNow()
		if all {
			var err error
			if objects, err = p.objects(ctx); err != nil {
				return err
			}
		}
		before := p.state.Changes()
		p.reconcileAll(ctx, objects)
		if p.state.Changes() == before {
			return nil
		}
		all = true
	}
	return fmt.Errorf("at %s after the beginning the controllers reconcile without end", p.clock.Now().Sub(p.eventLog.begin))
}
