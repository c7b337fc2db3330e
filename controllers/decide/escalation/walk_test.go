package escalation_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

const horizon = 6 * time.Hour

var (
	minutes = rapid.Map(rapid.IntRange(0, 12), func(n int) time.Duration { return time.Duration(n) * time.Minute })
	// rarely leaves most remediators without a trait, or else hardly any would have time for another.
	rarely = rapid.Map(rapid.IntRange(-20, 12), func(n int) time.Duration { return time.Duration(max(n, 0)) * time.Minute })
)

var anyRemediator = rapid.Custom(func(t *rapid.T) remediator {
	return remediator{
		old: rapid.Bool().Draw(t, "old"), strips: rapid.Bool().Draw(t, "strips"),
		fails: minutes.Draw(t, "fails"), succeeds: minutes.Draw(t, "succeeds"), finishes: minutes.Draw(t, "finishes"),
		heals: rarely.Draw(t, "heals"), deletes: rarely.Draw(t, "deletes"),
	}
})

var accidents = map[string]func(*environment){
	"the status is lost": losesStatus,
	"somebody deletes the request": func(w *environment) {
		if w.reached >= 0 {
			deletes(w.reached)(w)
		}
	},
	"somebody takes all annotations off": func(w *environment) {
		w.stripped = true
		for _, r := range w.requests {
			r.Notified, r.annotated = false, time.Time{}
		}
	},
	"nothing happens, and the controller looks": func(*environment) {},
}

var anyEnvironment = rapid.Custom(func(t *rapid.T) *environment {
	w := &environment{statusFirst: rapid.Bool().Draw(t, "status first"), crashes: map[int]bool{}}
	for i := range rapid.IntRange(1, 4).Draw(t, "steps") {
		timeout := time.Duration(rapid.IntRange(1, 10).Draw(t, "timeout")) * time.Minute
		w.steps = append(w.steps, step{fmt.Sprintf("step %d", i), timeout})
		w.remediators = append(w.remediators, anyRemediator.Draw(t, "remediator"))
	}
	if rapid.IntRange(0, 5).Draw(t, "classic") == 0 {
		w.steps = []step{{"the only one", 0}}
	}
	for range rapid.IntRange(0, 3).Draw(t, "crashes") {
		w.crashes[rapid.IntRange(1, 20).Draw(t, "crash")] = true
	}
	for range rapid.IntRange(0, 4).Draw(t, "accidents") {
		what := rapid.SampledFrom([]string{
			"the status is lost", "somebody deletes the request", "somebody takes all annotations off", "nothing happens, and the controller looks",
		}).Draw(t, "accident")
		w.schedule(at(rapid.Float64Range(0, 40).Draw(t, "at"), what, accidents[what]))
	}
	return w
})

// walks plays many environments, in each of which no step is skipped, none is requested twice at once, no earlier one is taken again, the controller
// is not enqueued for nothing and no clock stands still: those are faults that the player sees itself.
func walks(t *testing.T, rule func(*rapid.T, *environment)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		w := anyEnvironment.Draw(t, "environment")
		w.play(noon.Add(horizon))
		for _, fault := range w.faults {
			t.Errorf("%s\n%s", fault, w.story.String())
		}
		rule(t, w)
	})
}

// A ladder is at most 40 minutes long, and a remediator that deletes its requests for ever keeps it on one step.
func TestEveryLadderComesToItsEnd(t *testing.T) {
	walks(t, func(t *rapid.T, w *environment) {
		if w.healthy || len(w.steps) == 1 && w.steps[0].Timeout == 0 || w.remediators[w.reached].deletes > 0 {
			return
		}
		if s := escalation.Decide(w.ladder(), w.facts(), w.now); s.Do != escalation.Exhausted {
			t.Fatalf("after %s: %+v\n%s", horizon, s, w.story.String())
		}
	})
}

// Both writes were made whenever a step was left, whichever came first and whatever crashed between them.
func TestEveryRemediatorThatIsGivenUpIsNotified(t *testing.T) {
	walks(t, func(t *rapid.T, w *environment) {
		for _, r := range w.requests {
			if w.healthy || r.Step >= w.reached || r.Gone || r.Succeeded == escalation.Yes || w.remediators[r.Step].strips {
				continue
			}
			if !r.Notified && !w.stripped {
				t.Fatalf("step %d was left, and its remediator not notified: %+v\n%s", r.Step, r, w.story.String())
			}
		}
	})
}

func TestATemplateWithoutALadderIsNeverGivenUp(t *testing.T) {
	walks(t, func(t *rapid.T, w *environment) {
		if len(w.steps) > 1 || w.steps[0].Timeout > 0 {
			return
		}
		for _, r := range w.requests {
			if r.Notified || !r.recorded.IsZero() {
				t.Fatalf("%+v\n%s", r, w.story.String())
			}
		}
	})
}

func TestWhoSucceededIsNotTold(t *testing.T) {
	walks(t, func(t *rapid.T, w *environment) {
		for _, r := range w.requests {
			if r.Notified && r.Succeeded == escalation.Yes {
				t.Fatalf("%+v\n%s", r, w.story.String())
			}
		}
	})
}
