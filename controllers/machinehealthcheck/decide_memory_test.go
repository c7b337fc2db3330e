package machinehealthcheck

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Also while places are taken: one may be free when the changes that come together have been seen.
func TestAMachineThatWasJustSeenIsReconciledAgain(t *testing.T) {
	asked := asked
	for name, tc := range map[string]struct {
		given Facts
		again bool
	}{
		"while no limit is reached":           {facts(bad()), true},
		"while all places are taken":          {facts(bad(), bad(), bad(asked)).with(atOnce(1)), true},
		"not while too many are unhealthy":    {facts(bad()).with(tooMany), false},
		"not if all is known for long":        {facts(bad(), is(health.Healthy)).with(knownSince("a", time.Minute)), false},
		"but if only one of two is":           {facts(bad(), bad()).with(knownSince("a", time.Minute)), true},
		"also where that one takes the place": {facts(bad(), bad(), bad(asked)).with(atOnce(1)).with(knownSince("a", time.Minute)), true},
	} {
		f := tc.given
		f.Limited = true
		if got := Decide(f).Recheck.Equal(noon.Add(Settling)); got != tc.again {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAnAttemptInVainIsRememberedWhileTheMachineIsUnhealthy(t *testing.T) {
	refused := func(t *givenMachine) { t.refused = ago(time.Minute) }
	for state, want := range map[health.State]bool{health.Unhealthy: true, health.Pending: false, health.Healthy: false} {
		all := Decide(facts(is(state, refused), bad())).Memory.Refused
		if at, got := all["uid-of-a"]; got != want || want != at.Equal(ago(time.Minute)) || len(all) > 1 {
			t.Errorf("%s: remembered %t", state, got)
		}
	}
}

// A check that was deleted and made again between two decisions has the name of the one that is remembered, and no storm.
func TestAStormIsRememberedOfTheVeryCheck(t *testing.T) {
	cooldown := 10 * time.Minute
	f := facts(bad(func(t *givenMachine) { t.Health.Marked = true })).with(func(f *Facts) { f.Cooldown, f.Memory.Check, f.Memory.Storm.Active = &cooldown, f.Check.UID, true })
	if p := Decide(f); !p.Decisions[0].Blocked(CoolingDown) {
		t.Error("the storm of the decision before is forgotten")
	}
	f.Check.UID = "made again"
	if p := Decide(f); p.Storm.Active || !p.Decisions[0].Starts() {
		t.Errorf("the storm of another check of that name goes on, blocked by %v", p.Decisions[0].Blockers)
	}
}

// Few enough unhealthy machines may be the first of many that recover, and as few may be the first of many that fail.
func TestFromWhenAMachineThatWasSeenMayBeRemediated(t *testing.T) {
	const moment = Settling / 2
	shortCircuited := func(f *Facts) { f.Memory.ShortCircuited = true }
	calm := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.Memory.Calm = ago(d) } }
	for name, tc := range map[string]struct {
		given Facts
		until time.Time // zero: from now on
	}{
		"one that was not seen before":                                {facts(bad()).with(limitsMatter), noon.Add(Settling)},
		"one that was seen a moment ago":                              {facts(bad()).with(limitsMatter, knownSince("a", moment)), noon.Add(Settling - moment)},
		"one that is known for long enough":                           {facts(bad()).with(limitsMatter, knownSince("a", Settling)), time.Time{}},
		"one that is known for long, while too many were unhealthy":   {facts(bad()).with(limitsMatter, knownSince("a", time.Hour), shortCircuited), noon.Add(Settling)},
		"which ended a moment ago":                                    {facts(bad()).with(limitsMatter, knownSince("a", time.Hour), calm(moment)), noon.Add(Settling - moment)},
		"and long ago":                                                {facts(bad()).with(limitsMatter, knownSince("a", time.Hour), calm(time.Minute)), time.Time{}},
		"one that was seen after it ended":                            {facts(bad()).with(limitsMatter, knownSince("a", moment), calm(time.Minute)), noon.Add(Settling - moment)},
		"where no number of unhealthy machines would forbid anything": {facts(bad()), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			if d := p.Decisions[0]; d.Starts() != tc.until.IsZero() || (d.PutOff.Reason == JustSeen) == d.Starts() || !p.Recheck.Equal(tc.until) {
				t.Errorf("starts %t, blocked by %v, decided again at %v; want %v", d.Starts(), d.Blockers, p.Recheck, tc.until)
			}
		})
	}
}

// A decision that forbids all is remembered until one allows some, and from then on they settle.
func TestTheEndOfAShortCircuitIsRemembered(t *testing.T) {
	f := facts(bad(), is(health.Healthy)).with(limitsMatter, knownSince("a", time.Hour), tooMany)
	for _, pass := range []struct {
		at     time.Duration
		limit  int
		starts bool
	}{{0, 0, false}, {time.Minute, 0, false}, {2 * time.Minute, 1, false}, {2*time.Minute + Settling/2, 1, false}, {2*time.Minute + Settling, 1, true}} {
		f.Now, f.Limits.AtMost = noon.Add(pass.at), pass.limit
		p := Decide(f)
		if p.Decisions[0].Starts() != pass.starts || p.Memory.ShortCircuited != (pass.limit == 0) {
			t.Errorf("after %s: starts %t, short-circuited %t", pass.at, p.Decisions[0].Starts(), p.Memory.ShortCircuited)
		}
		f.Memory = p.Memory
	}
}

func TestSinceWhenAMachineIsNotHealthyIsRememberedUntilItIs(t *testing.T) {
	f := facts(bad(), is(health.Pending), is(health.Healthy), is(health.Healthy, markedHealthy)).with(knownSince("a", time.Hour))
	got := Decide(f).Memory.NotHealthy
	if len(got) != 2 || !got["uid-of-a"].Equal(ago(time.Hour)) || !got["uid-of-b"].Equal(noon) {
		t.Errorf("remembered are %v, want a since an hour and b from now on", got)
	}
}

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
		"a request that exists":                          {byRequests(bad(shared, ownRequest)), Opinion{}, true, false},
		"one that cannot be seen now":                    {facts(bad(shared)).with(unknown), begun, true, false},
		"one that is gone":                               {byRequests(bad(shared)).with(blocked), begun, false, false},
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
func TestTheCheckThatHasMostToSayOfAMachineSpeaks(t *testing.T) {
	younger := besideCheck(Opinion{Heard: true, State: health.Unhealthy})
	older := func(state health.State) func(*givenMachine) {
		return besideCheck(Opinion{Heard: true, State: state, Older: true})
	}
	for name, tc := range map[string]struct {
		given  givenMachine
		speaks bool
	}{
		"one that finds it unhealthy, before one that is pending": {bad(older(health.Pending)), true},
		"but not before an older one that finds it so, too":       {bad(older(health.Unhealthy)), false},
		"one that is pending, before one that finds it healthy":   {is(health.Pending, older(health.Healthy)), true},
		"but not before one that finds it unhealthy":              {is(health.Pending, older(health.Unhealthy)), false},
		"one whose owner is stuck, before a younger one":          {bad(refuses, younger), true},
		"but not before an older one":                             {bad(refuses, older(health.Unhealthy)), false},
	} {
		d := Decide(facts(tc.given).with(atOnce(0))).Decisions[0]
		if d.Sets(mendv1.Remediation, metav1.ConditionFalse) != tc.speaks {
			t.Errorf("%s: it sets %v", name, d.Conditions)
		}
	}
}

// Ten times a second it was looked whether the other check has.
func TestACheckThatHasNotJudgedAMachineIsAwaited(t *testing.T) {
	for known, want := range map[time.Duration]struct {
		recheck time.Duration
		says    string
	}{0: {hearsSoon, ""}, 4 * time.Minute: {6 * time.Minute, string(OtherCheckUnheard)}} {
		plan := Decide(facts(bad(besideCheck(Opinion{Check: "other"}))).with(knownSince("a", known)))
		says := blockedCondition(plan.Decisions[0]).Reason
		if !plan.Recheck.Equal(noon.Add(want.recheck)) || says != want.says {
			t.Errorf("after %s it is decided again at %s, and the machine says %q", known, plan.Recheck, says)
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
