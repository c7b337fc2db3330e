package record

import (
	"slices"
	"testing"
	"time"
)

// restored are the moments at which s says that the record was written again.
func restored(s *State) []time.Time {
	var all []time.Time
	for _, step := range s.Steps {
		if step.Reason == RecordRestored {
			all = append(all, step.Time)
		}
	}
	return all
}

// A user who deletes a record again and again does not fill it with that.
func TestARecordSaysWhenItWasWrittenAgain(t *testing.T) {
	lost := func(f Facts, at time.Duration) Facts {
		f.Now, f.Lost = after(at), true
		f.State = Decide(f).State
		f.Lost = false
		return f
	}
	f := lost(at(time.Minute, asked), time.Minute)
	if got, want := restored(&f.State), []time.Time{after(time.Minute)}; !slices.Equal(got, want) {
		t.Errorf("once: it says %v, want %v", got, want)
	}
	f = lost(f, 2*time.Minute)
	if got, want := restored(&f.State), []time.Time{after(2 * time.Minute)}; !slices.Equal(got, want) {
		t.Errorf("twice, and nothing between: it says %v, want %v", got, want)
	}
	f.Target.Deleting = after(3 * time.Minute)
	f.Now = after(3 * time.Minute)
	f.State = Decide(f).State
	f = lost(f, 4*time.Minute)
	if got, want := restored(&f.State), []time.Time{after(2 * time.Minute), after(4 * time.Minute)}; !slices.Equal(got, want) {
		t.Errorf("once more, after another step: it says %v, want %v", got, want)
	}
}

// The deadline of what a replacement would wait for is not that of the next step of a ladder.
func TestADeadlineCountsForWhatIsWaitedFor(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*Facts)
		want bool
	}{
		"that of the capacity that is waited for": {edit: asked, want: true},
		"not beside a request that is acted on":   {edit: withRequest(func(r *Request) { r.Acts, r.State = true, "PoweringOff" })},
	} {
		t.Run(name, func(t *testing.T) {
			f := at(time.Minute, tc.edit)
			f.Capacity = Capacity{Known: true, Reason: "NoNode", Overdue: true, Over: true}
			if p := Decide(f); p.Overdue != tc.want || p.Over != tc.want {
				t.Errorf("while it waits for %q, overdue is %t and over is %t, want %t", p.Waiting, p.Overdue, p.Over, tc.want)
			}
		})
	}
}

// Steps that were displaced may have been the effect: nothing is said of the target that healed by itself then.
func TestARecordThatIsFullDoesNotSayThatItsTargetRecovered(t *testing.T) {
	for steps, want := range map[int]string{MaxSteps - 1: "Recovered", MaxSteps: ""} {
		f := at(10*time.Minute, both(asked, healthy))
		for len(f.State.Steps) < steps {
			f.State.Steps = append(f.State.Steps, Step{Time: after(time.Minute), Reason: "NoNode"})
		}
		if got := Decide(f).State; got.Outcome != Healed || got.EndedBy != want {
			t.Errorf("after %d steps it ends as %q by %q, want it healed by %q", steps, got.Outcome, got.EndedBy, want)
		}
	}
}
