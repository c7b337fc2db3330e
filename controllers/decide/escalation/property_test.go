package escalation

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The environments below are small on purpose, and their times are few, so that requests meet on a step and moments often coincide.
var (
	moments  = rapid.Map(rapid.IntRange(-24, 2), func(n int) time.Time { return in(time.Duration(n) * 30 * time.Second) })
	timeouts = rapid.Map(rapid.IntRange(0, 10), func(n int) time.Duration { return time.Duration(n) * time.Minute })
	answers  = rapid.SampledFrom([]Status{Unsaid, Unsaid, Yes, No, Unsure})
	seldom   = rapid.Map(rapid.IntRange(0, 4), func(n int) bool { return n == 0 })
)

var anyLadder = rapid.Custom(func(t *rapid.T) []Step {
	steps := make([]Step, rapid.IntRange(1, 4).Draw(t, "steps"))
	for i := range steps {
		steps[i] = Step{Timeout: timeouts.Draw(t, "timeout")}
	}
	return steps
})

// anyRequest is any that can be found, and some that cannot: on steps that are not there.
var anyRequest = rapid.Custom(func(t *rapid.T) Request {
	r := Request{
		Step: rapid.IntRange(-1, 4).Draw(t, "step"), Started: moments.Draw(t, "started"), Notified: seldom.Draw(t, "told"),
		Succeeded: answers.Draw(t, "succeeded"), Processing: answers.Draw(t, "processing"),
		ProcessingSince: rapid.OneOf(moments, rapid.Just(never)).Draw(t, "since"),
		Deleting:        seldom.Draw(t, "leaving"), Gone: seldom.Draw(t, "gone"),
	}
	if seldom.Draw(t, "given up") {
		r.GivenUp = moments.Draw(t, "when")
	}
	return r
})

// No two of the requests were made at the same moment on the same step: which of them is the younger one is not ours to say.
var anyRequests = rapid.SliceOfNDistinct(anyRequest, 0, 6, func(r Request) string { return fmt.Sprint(r.Step, r.Started) })

// holds checks a rule for many requests on many ladders.
func holds(t *testing.T, rule func(*rapid.T, []Step, []Request)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) { rule(t, anyLadder.Draw(t, "ladder"), anyRequests.Draw(t, "requests")) })
}

// on returns the requests on a step.
func on(requests []Request, step int) []Request {
	return slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return r.Step != step })
}

// top is the highest step with a request, in other words than Decide's; -1 if there is none.
func top(steps []Step, requests []Request) int {
	for step := len(steps) - 1; step >= 0; step-- {
		if len(on(requests, step)) > 0 {
			return step
		}
	}
	return -1
}

func isLadder(steps []Step) bool { return len(steps) > 1 || steps[0].Timeout > 0 }

func TestNoStepIsSkippedOrRepeated(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s, here := Decide(steps, requests, noon), top(steps, requests)
		if s.Do != Start {
			if s.Step != here {
				t.Fatalf("on step %d: %+v", here, s)
			}
			return
		}
		switch s.Step {
		case here:
			if slices.ContainsFunc(on(requests, here), func(r Request) bool { return !r.Gone }) {
				t.Fatalf("step %d is started again beside a request that is there", here)
			}
		case here + 1:
			if here >= 0 && !slices.ContainsFunc(on(requests, here), func(r Request) bool { return r.Notified || !r.GivenUp.IsZero() }) {
				t.Fatalf("step %d is started, and step %d was not given up", s.Step, here)
			}
		default:
			t.Fatalf("on step %d: %+v", here, s)
		}
	})
}

func TestNothingIsGivenUpWithoutAReasonThatHolds(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Do != GiveUp {
			return
		}
		here, timeout := on(requests, s.Step), steps[s.Step].Timeout
		reasons := map[string]func(Request) bool{
			Failed:   func(r Request) bool { return r.Succeeded == No },
			TimedOut: func(r Request) bool { return timeout > 0 && noon.Sub(r.Started) >= timeout },
			Stopped: func(r Request) bool {
				return r.Succeeded == Unsaid && r.Processing == No && noon.Sub(r.Started) >= StoppedFor && noon.Sub(r.ProcessingSince) >= StoppedFor
			},
			NotNotified: func(r Request) bool { return (r.Notified || !r.GivenUp.IsZero()) && s.Notify },
		}
		if !isLadder(steps) || reasons[s.Reason] == nil || !slices.ContainsFunc(here, reasons[s.Reason]) {
			t.Fatalf("%+v does not hold for %+v", s, here)
		}
		open := func(r Request) bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }
		if s.Notify != slices.ContainsFunc(here, open) {
			t.Fatalf("tells %t, of %+v", s.Notify, here)
		}
	})
}

func TestEveryWaitEndsByItselfOrSaysWhatItIsFor(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Reason == "" {
			t.Fatalf("no reason: %+v", s)
		}
		if s.Do != Wait {
			return
		}
		if timed := steps[s.Step].Timeout > 0; timed && s.Recheck.IsZero() {
			t.Fatalf("waits without end: %+v", s)
		}
		there := func(r Request) bool { return !r.Gone }
		if s.Recheck.IsZero() && !slices.ContainsFunc(on(requests, s.Step), there) {
			t.Fatalf("waits for no remediator: %+v", s)
		}
	})
}

// Where time is to change nothing, what is done is compared, and not the words: they name a more telling reason when its time has come.
func TestNothingChangesBeforeRecheckAndSomethingDoesThen(t *testing.T) {
	same := func(a, b Decision) bool { return a.Do == b.Do && a.Step == b.Step && a.Notify == b.Notify }
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		s := Decide(steps, requests, noon)
		if s.Recheck.IsZero() {
			later := in(time.Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "later")))
			if then := Decide(steps, requests, later); !same(s, then) {
				t.Fatalf("%+v became %+v, which it never was to", s, then)
			}
			return
		}
		if !s.Recheck.After(noon) {
			t.Fatalf("asks at %v to be woken at %v", noon, s.Recheck)
		}
		before := s.Recheck.Add(-time.Duration(rapid.Int64Range(1, int64(s.Recheck.Sub(noon))).Draw(t, "before")))
		if diff := cmp.Diff(s, Decide(steps, requests, before)); diff != "" {
			t.Fatalf("changed before its time: -at noon +before the recheck\n%s", diff)
		}
		then, want := Decide(steps, requests, s.Recheck), map[Action]Action{Wait: GiveUp, Start: GiveUp, GiveUp: Exhausted}[s.Do]
		if s.Do == Wait && steps[s.Step].Timeout <= 0 && s.Reason == AwaitingNode { // for as long as a boot may take
			want = Start
		}
		if then.Do != want {
			t.Fatalf("%+v became %+v", s, then)
		}
	})
}

// The order in which an API or a status lists requests must not show.
func TestTheOrderOfRequestsDoesNotShow(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		given := slices.Clone(requests)
		want := Decide(steps, requests, noon)
		if diff := cmp.Diff(given, requests); diff != "" {
			t.Fatalf("Decide() changed what it was given:\n%s", diff)
		}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })
		if diff := cmp.Diff(want, Decide(steps, requests, noon)); diff != "" {
			t.Fatalf("the order of requests shows: -want +got\n%s", diff)
		}
	})
}

func TestTakingStepsEndsInAWaitOrAtTheEnd(t *testing.T) {
	holds(t, func(t *rapid.T, steps []Step, requests []Request) {
		for taken := 0; ; taken++ {
			s := Decide(steps, requests, noon)
			switch s.Do {
			case Wait, Exhausted:
				return
			case Start:
				requests = append(requests, Request{Step: s.Step, Started: noon})
			case GiveUp:
				giveUp(requests, s)
			}
			// On each step: a missing one made again, given up, told.
			if taken > 3*len(steps) {
				t.Fatalf("no end after %d steps, the last one %+v", taken, s)
			}
		}
	})
}

// giveUp does what the caller has to do.
func giveUp(requests []Request, s Decision) {
	for i := range requests {
		r := &requests[i]
		if r.Step != s.Step {
			continue
		}
		r.Notified = r.Notified || s.Notify && !r.Gone && r.Succeeded != Yes
		if r.GivenUp.IsZero() {
			r.GivenUp = noon
		}
	}
}
