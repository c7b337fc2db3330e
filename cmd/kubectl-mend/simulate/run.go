package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// play is an engine with its environment.
type play struct {
	*engine

	environment *environment
	counters    *counters
	end         time.Time
	// watch is shown the world each time that the controllers have come to rest; nil if nobody looks.
	watch func(context.Context)
}

const (
	// mostRounds is after how many rounds at one moment the controllers are said not to come to rest: a power cycle has a dozen steps, and each
	// may be followed by something that others do at once.
	mostRounds = 200
	// mostMoments is how many moments a play may have. A pass that fails is repeated once a minute, and nothing waits for less for long.
	mostMoments = 50_000
)

// run plays one moment after the other until the end. It jumps from each to the next at which anything is due, and never waits.
func (p *play) run(ctx context.Context) error {
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
	return fmt.Errorf("%d moments have come, and the last one is %s after the beginning: a shorter --horizon may do",
		mostMoments, p.clock.Now().Sub(p.eventLog.begin))
}

// moment plays what happens at one moment: the world changes, the controllers see it until they have nothing more to do, the others answer at
// once, and so on until nobody does anything. all says that all objects are looked at, whether anything has changed or not.
func (p *play) moment(ctx context.Context, all bool) error {
	before := p.state.Changes()
	if err := p.environment.happen(ctx); err != nil {
		return err
	}
	all = all || p.state.Changes() != before
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
	return fmt.Errorf("at %s after the beginning there is no end of it: what the controllers do and what is assumed of others go round in circles",
		p.clock.Now().Sub(p.eventLog.begin))
}

// settle makes passes until none changes anything: over what is due, and, as soon as anything has changed, over everything.
func (p *play) settle(ctx context.Context, all bool) error {
	for range mostRounds {
		actors := p.dueNow()
		if all {
			var err error
			if actors, err = p.actors(ctx); err != nil {
				return err
			}
		}
		before := p.state.Changes()
		p.passes(ctx, actors)
		if p.state.Changes() == before {
			return nil
		}
		all = true
	}
	return fmt.Errorf("at %s after the beginning the controllers do not come to rest", p.clock.Now().Sub(p.eventLog.begin))
}
