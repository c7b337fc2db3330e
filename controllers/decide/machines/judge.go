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

// judge gives each target its verdict: the one that it had, if nothing about the machine has changed since and no time has passed that matters.
// Both lists are in the order of the names, so this compares pointers and little else for a machine that has not changed.
func judge(f *Facts) []*Decision {
	decisions, before := make([]*Decision, len(f.Targets)), f.Memory.Decisions
	if f.Memory.Basis != f.basis() {
		before = nil
	}
	for i, t := range f.Targets {
		for len(before) > 0 && before[0].Target != t && before[0].Target.Name < t.Name {
			before = before[1:]
		}
		var d *Decision
		switch {
		case len(before) == 0 || !before[0].holds(t, f.Now):
			d = &Decision{Target: t, Verdict: health.Judge(f.health(t), f.Policy, f.Now), At: f.Now.Round(0)}
		case f.plain(before[0]):
			d = before[0]
		default:
			d = &Decision{Target: t, Verdict: before[0].Verdict, At: before[0].At}
		}
		if decisions[i] = d; len(before) > 0 && before[0].Target == t {
			before = before[1:]
		}
	}
	return decisions
}

// holds reports whether the verdict of d is still the one that t would get. It was given at a moment of the same clock as those that findings are due at, which
// may be set back; a time that was measured since the process started never is.
func (d *Decision) holds(t *Target, now time.Time) bool {
	return d.Target == t && !now.Before(d.At) && (d.Verdict.Recheck.IsZero() || now.Before(d.Verdict.Recheck))
}

// plain reports whether there is nothing to decide about the machine of d: it is healthy, and nothing was begun for it. Nearly all machines are.
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
