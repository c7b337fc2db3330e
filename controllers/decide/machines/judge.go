package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Basis is what the verdicts on all machines of a check depend on, besides the machines.
type Basis struct {
	Check      string
	Generation int64
	Cluster    Cluster
}

func (f *Facts) basis() Basis {
	return Basis{Check: f.Check, Generation: f.Generation, Cluster: f.Cluster}
}

// seen is what a decision saw and the next one compares: in linear memory, so that a machine about which nothing has changed costs two pointers.
type seen struct {
	targets []*Target // of the decisions, in the same order
	// open are the places of those about which there is something to decide. The others are plain, and stay it.
	open []int
}

// seenBefore is what the decision before saw. A memory that does not say so makes the next decision look at all machines.
func (f *Facts) seenBefore() seen {
	m := &f.Memory
	switch {
	case m.Basis != f.basis():
		return seen{}
	case m.seen.targets != nil && !f.Template.Unread:
		return m.seen
	}
	all := seen{targets: make([]*Target, len(m.Decisions)), open: make([]int, len(m.Decisions))}
	for i, d := range m.Decisions {
		all.targets[i], all.open[i] = d.Target, i
	}
	return all
}

// judge gives each target its verdict: the one that it had, if nothing about the machine has changed since and no time has passed that matters. All lists
// are in the order of the names. A decision that is plain, and that was so before, is the very same one, and is not even looked at.
func judge(f *Facts) (decisions []*Decision, is seen) {
	before := f.seenBefore()
	was, open, place := before.targets, before.open, 0
	decisions, is = make([]*Decision, len(f.Targets)), seen{targets: f.Targets}
	for i, t := range f.Targets {
		for place < len(was) && was[place] != t && was[place].Name < t.Name {
			place++
		}
		for len(open) > 0 && open[0] < place {
			open = open[1:]
		}
		if place < len(was) && was[place] == t {
			decisions[i] = f.Memory.Decisions[place]
			plain := len(open) == 0 || open[0] != place
			place++
			if plain {
				continue
			}
		}
		decisions[i] = f.judged(t, decisions[i])
		if !f.plain(decisions[i]) {
			is.open = append(is.open, i)
		}
	}
	return decisions, is
}

// judged is the decision about t to begin with. was is the one before, about the very same facts; nil if there is none.
func (f *Facts) judged(t *Target, was *Decision) *Decision {
	d := &Decision{Target: t}
	if was != nil && was.holds(f.Now) {
		d.Verdict, d.At = was.Verdict, was.At
	} else {
		d.Verdict, d.At = health.Judge(f.health(t), f.Policy, f.Now), f.Now.Round(0)
	}
	if f.plain(d) {
		d.Blockers = notUnhealthy
	}
	return d
}

// holds reports whether the verdict of d is still the one that its target would get. It was given at a moment of the same clock as those that
// findings are due at, which may be set back; a time that was measured since the process started never is.
func (d *Decision) holds(now time.Time) bool {
	return !now.Before(d.At) && (d.Verdict.Recheck.IsZero() || now.Before(d.Verdict.Recheck))
}

// plain reports whether there is nothing to decide about the machine of d: it is healthy, which time alone does not change, and nothing was begun for it.
// Nearly all machines are.
func (f *Facts) plain(d *Decision) bool {
	t := d.Target
	return d.Verdict.State == health.Healthy && !t.Deleting && t.Request == NoRequest && t.Cycle == nil && !f.Template.Unread && t.Healthy
}

// health is what the verdict on t depends on.
func (f *Facts) health(t *Target) health.Target {
	h, c := t.Health, &f.Cluster
	h.Paused, h.Reached = h.Paused || c.Paused, c.Reached
	for _, start := range [...]time.Time{c.InitializedAt, c.ReadyAt, c.Reached} {
		if start.After(h.AwaitedSince) {
			h.AwaitedSince = start
		}
	}
	switch {
	case !c.Initialized && !t.ControlPlane:
		h.Gate = health.ControlPlaneNotInitialized
	case !c.InfrastructureReady:
		h.Gate = health.InfrastructureNotReady
	}
	return h
}
