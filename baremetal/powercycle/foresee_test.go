package powercycle

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// longAgo is five minutes before resumed was paused.
func longAgo(f *Facts) { f.Since = ago(65 * time.Minute) }

// anyFacts draws a situation, possible or not; but no machine is healthy and unhealthy, and no clock begins during a pause, which stops them.
func anyFacts(t *rapid.T) Facts {
	var f Facts
	f.State = rapid.SampledFrom(append([]State{""}, order...)).Draw(t, "state")
	f.Attempt = rapid.IntRange(0, 3).Draw(t, "attempt")
	for _, m := range []*time.Time{&f.Since, &f.Began, &f.Asked, &f.Unseen, &f.Memory.Paused} {
		if back := rapid.IntRange(-1, 3*60*4).Draw(t, "how far back"); back >= 0 {
			*m = noon.Add(-time.Duration(back) * 15 * time.Second)
		}
	}
	if f.State == "" {
		f.Since = time.Time{} // it was not reconciled yet
	}
	var keptOff, managed bool
	rare := []*bool{
		&f.WasOff, &f.Touched, &f.StartedUnhealthy, &f.Fencing, &f.Marked, &f.Deleting, &f.Finalizer, &f.Stop, &f.Paused, &f.Teardown, &f.Healthy, &f.Unhealthy, &f.OwnerAsked,
		&f.ControlPlane, &f.NoPowerOff, &keptOff, &f.Fails, &f.KeptOff, &f.HasPowerAnnotations, &f.RebootAsked, &f.RebootPending, &f.HostMarked, &f.Disproved, &f.Looked,
		&f.Fenced, &f.FencedByUs, &f.Drained,
	}
	for _, is := range rare {
		*is = rapid.IntRange(0, 4).Draw(t, "rare") == 1
	}
	for _, is := range []*bool{&f.First, &f.Wanted, &f.PoweredOn, &managed} {
		*is = rapid.IntRange(0, 4).Draw(t, "usual") != 1
	}
	if keptOff {
		f.KeptOffBy = "somebody"
	}
	if !managed {
		f.Unmanaged = "paused"
	}
	f.Healthy = f.Healthy && !f.Unhealthy
	for _, m := range []*time.Time{&f.Since, &f.Began, &f.Asked, &f.Unseen} {
		if paused := f.Memory.Paused; !paused.IsZero() && m.After(paused) {
			*m = paused
		}
	}
	f.Machine = rapid.SampledFrom([]Machine{MachinePresent, MachinePresent, MachinePresent, MachineDeleting, MachineGone}).Draw(t, "machine")
	f.Host = rapid.SampledFrom([]Host{HostOurs, HostOurs, HostOurs, HostForeign, HostGone}).Draw(t, "host")
	f.Node = rapid.SampledFrom([]Node{NodePresent, NodeUnseen, NodeAbsent}).Draw(t, "node")
	return f
}

func TestWhatIsForeseenHappensThenAndNotBefore(t *testing.T) {
	// One of four facts waits, and one of six waits ends by time alone: so many are drawn that both kinds occur in every run.
	const factsEach = 30
	foreseen, waits := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		for range factsEach {
			timed, waited := foresees(t, anyFacts(t))
			foreseen, waits = foreseen+timed, waits+waited
		}
	})
	t.Logf("%d of %d waits end by time alone", foreseen, waits)
	if waits == 0 || foreseen == 0 || foreseen == waits {
		t.Errorf("%d of %d waits end by time alone: the facts are too much alike", foreseen, waits)
	}
}

// foresees checks the foresight of facts. It returns how many waits it saw, one or none, and how many of them end by time alone.
func foresees(t *rapid.T, f Facts) (timed, waits int) {
	step := Next(f, policy, noon)
	at, next := foresee(f, policy, noon)
	if step.Do != Wait {
		if !at.IsZero() {
			t.Fatalf("it foresees something after a step that acts: %s", step.Do)
		}
		return 0, 0
	}
	f.Memory = After(f, step, noon)
	horizon := 10 * time.Hour
	if !at.IsZero() {
		timed = 1
		horizon = at.Sub(noon)
		if then := Next(f, policy, at); then.same(step) || !then.same(next) {
			t.Fatalf("at %s it is %+v, was foreseen as %+v, and was %+v before", at, then, next, step)
		}
	}
	for range 20 {
		before := noon.Add(time.Duration(rapid.Int64Range(0, int64(horizon)-1).Draw(t, "before")))
		if then := Next(f, policy, before); !then.same(step) {
			t.Fatalf("at %s it is %+v already, instead of %+v until %s", before, then, step, at)
		}
	}
	return timed, 1
}

// foresee returns the first moment after now at which time alone changes the step for f, and that step: nothing happens to the facts until
// then, and of what is remembered only what a reconcile at now stores. The moment is zero if only an event changes anything, and also if
// the step does not wait: what comes of it is not foreseen.
func foresee(f Facts, p Policy, now time.Time) (at time.Time, next Step) {
	step := Next(f, p, now)
	if step.Do != Wait {
		return time.Time{}, Step{}
	}
	f.Memory = After(f, step, now)
	for at = step.Again; !at.IsZero(); at = next.Again {
		if next = Next(f, p, at); !next.same(step) {
			return at, next
		}
	}
	return time.Time{}, Step{}
}

// same reports whether two steps are one, whenever they look again.
func (s Step) same(as Step) bool {
	return s.Do == as.Do && s.Next == as.Next && s.Reason == as.Reason && s.Detail == as.Detail
}
