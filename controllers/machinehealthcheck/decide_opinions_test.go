package machinehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestWhatACheckTellsTheOthersOfARemediation(t *testing.T) {
	shared := besideCheck(Opinion{Heard: true, Healthy: true})
	itAsked, begun := Opinion{Heard: true, AskedOwner: true}, Opinion{Heard: true, InFlight: true}
	blocked := func(f *Facts) { f.Limits.InFlight = 0 }
	syncing := func(f *Facts) { unknown(f); f.Template.Syncing = true }
	gone := func(f *Facts) { missing(f); f.Template.Known = false }
	for name, tc := range map[string]struct {
		given    Facts
		before   Opinion
		inFlight bool
		unheard  bool
	}{
		"its owner was asked by this check":              {facts(bad(shared, asked)), itAsked, true, false},
		"by another one":                                 {facts(bad(shared, asked)), Opinion{Heard: true}, false, false},
		"it goes on while that is pending":               {facts(is(health.Pending, shared, asked)), itAsked, true, false},
		"it is over when its rules are met no more":      {facts(is(health.Healthy, shared, asked)), itAsked, false, false},
		"nor is it if the owner cannot remediate it":     {facts(bad(shared, refuses)), itAsked, false, false},
		"or does not answer for an hour":                 {facts(bad(shared, askedAgo(time.Hour))), itAsked, false, false},
		"a request that exists":                          {facts(bad(shared, hasRequest(OwnRequest))).with(external), Opinion{}, true, false},
		"one that cannot be seen now":                    {facts(bad(shared)).with(unknown), begun, true, false},
		"one that is gone":                               {facts(bad(shared)).with(external, blocked), begun, false, false},
		"one that went with its kind":                    {facts(bad(shared)).with(gone), begun, false, false},
		"after a start, before its requests were listed": {facts(bad(shared)).with(syncing), Opinion{}, false, true},
		"while requests are listed again":                {facts(bad(shared)).with(syncing), begun, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			tc.given.Memory.Opinions = map[types.UID]Opinion{"uid-of-a": tc.before}
			if got := Decide(tc.given).Memory.Opinions["uid-of-a"]; got.InFlight != tc.inFlight || got.Heard == tc.unheard {
				t.Errorf("in flight %t, heard %t", got.InFlight, got.Heard)
			}
		})
	}
}

// Two checks that both believe to have asked the owner would each wait for the other one to say that the machine is healthy, until its
// owner has replaced it.
func TestAHealthyMachineIsMarkedHealthyWhoeverAskedItsOwner(t *testing.T) {
	believes := map[types.UID]Opinion{"uid-of-a": {Heard: true, AskedOwner: true}}
	other := Opinion{Heard: true, InFlight: true, Due: []health.Finding{{Reason: health.NodeCondition}}}
	for range 2 { // the two checks in turn
		f := facts(is(health.Healthy, asked, besideCheck(other)))
		f.Memory.Opinions = believes
		plan := Decide(f)
		if other = plan.Memory.Opinions["uid-of-a"]; !plan.Decisions[0].Sets(HealthCheckSucceeded, metav1.ConditionTrue) {
			continue
		}
		return
	}
	t.Error("neither check marks it healthy")
}

// The owner says that it cannot remediate the machine, or never answers: another check may have a template.
func TestOfAStuckOwnerTheOldestCheckSpeaks(t *testing.T) {
	for _, older := range []bool{false, true} {
		d := Decide(facts(bad(refuses, besideCheck(Opinion{Heard: true, State: health.Unhealthy, Older: older})))).Decisions[0]
		if speaks := d.Sets(mendv1.Remediation, metav1.ConditionFalse); speaks == older {
			t.Errorf("beside a check that is older (%t): it speaks %t", older, speaks)
		}
	}
}

func TestATemplateIsTheWayOutOfAnOwnerThatNeverAnswers(t *testing.T) {
	for d, want := range map[time.Duration]string{59 * time.Minute: "", time.Hour: "a"} {
		if got := facts(bad(askedAgo(d))).with(external).starting(); got != want {
			t.Errorf("asked %s ago: %q starts", d, got)
		}
	}
}

func TestACheckThatTriedInVainLetsAnotherOneGoFirst(t *testing.T) {
	tried := func(d time.Duration) func(*givenMachine) { return func(t *givenMachine) { t.refused = ago(d) } }
	waits := besideCheck(Opinion{Heard: true, State: health.Unhealthy})
	for name, tc := range map[string]struct {
		given givenMachine
		until time.Time // zero: it tries again now
	}{
		"that finds the machine unhealthy": {bad(waits, tried(yieldsFor/2)), noon.Add(yieldsFor / 2)},
		"for so long":                      {bad(waits, tried(yieldsFor)), time.Time{}},
		"not one that finds it healthy":    {bad(besideCheck(Opinion{Heard: true, Healthy: true}), tried(0)), time.Time{}},
		"not before it has tried":          {bad(waits), time.Time{}},
	} {
		plan := Decide(facts(tc.given))
		told := plan.Memory.Opinions["uid-of-a"].InFlight
		if starts := plan.Decisions[0].Starts(); starts != tc.until.IsZero() || told != starts || !plan.Recheck.Equal(tc.until) {
			t.Errorf("%s: it starts %t, says so %t, and is decided again at %s", name, starts, told, plan.Recheck)
		}
	}
}
