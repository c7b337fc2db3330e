package machines

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func markedHealthy(t *given) { t.Healthy = true }
func observe(f *Facts)       { f.Mode = Observed }
func unsettled(f *Facts)     { f.Cluster.Link, f.Memory.Basis.Cluster.Link = LinkUnsure, LinkUnsure }

func TestWhatTheLimitsCount(t *testing.T) {
	older := func(t *given) { t.Older = true }
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Population
	}{
		"healthy machines that need nothing":             {of(is(health.Healthy, markedHealthy), is(health.Healthy, markedHealthy), bad()), budget.Population{Healthy: 2, Unhealthy: 1, Waiting: 1}},
		"an unhealthy machine of an older check":         {of(bad(older)), budget.Population{Unhealthy: 1}},
		"an unhealthy machine of an observed check":      {of(bad()).with(observe), budget.Population{Unhealthy: 1, Waiting: 1}},
		"what blocks it besides that it is observed":     {of(bad(older)).with(observe), budget.Population{Unhealthy: 1}},
		"a machine whose owner remediation is in flight": {of(bad(func(t *given) { t.Owner = Asked })), budget.Population{Unhealthy: 1, InFlight: 1}},
	} {
		if diff := cmp.Diff(tc.want, Decide(tc.given).Population); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An observed check explains what would block it if it were acted on: the machine itself takes no place of another one.
func TestAnObservedMachineWaitsForNoPlaceThatIsFree(t *testing.T) {
	for places, want := range map[int]bool{1: false, 0: true} {
		f := of(bad(), bad(func(t *given) { t.Owner = Asked })).with(observe).with(atOnce(places + 1))
		if got := Decide(f).Decisions[0].Blocked(RemediationsInProgress); got != want {
			t.Errorf("%d places besides the one in flight: blocked %t", places, got)
		}
	}
}

func TestAllAreRequestedWhenNoneWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  bool
	}{
		"none is unhealthy":          {of(is(health.Healthy)), true},
		"one waits for a place":      {of(bad()).with(atOnce(0)), false},
		"it is in flight":            {of(bad(func(t *given) { t.Owner = Asked })), true},
		"an answer is awaited":       {of(is(health.Healthy)).with(unsettled), false},
		"requests are not known yet": {of(is(health.Healthy)).with(external).with(func(f *Facts) { f.Template.Known = false }), false},
	} {
		if got := Decide(tc.given).AllRequested; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWhatAStormIs(t *testing.T) {
	cooldown := 10 * time.Minute
	withCooldown := func(f *Facts) { f.Cooldown = &cooldown }
	active := func(f *Facts) { f.Storm.Active = true }
	tooMany := func(f *Facts) { f.Limits.AtMost = 0 }
	for name, tc := range map[string]struct {
		given           Facts
		active, blocked bool
	}{
		"too many unhealthy machines begin one":               {of(bad()).with(tooMany).with(withCooldown), true, false},
		"too many pending machines do not":                    {of(is(health.Pending)).with(tooMany).with(withCooldown), false, false},
		"they prolong it":                                     {of(is(health.Pending)).with(tooMany).with(withCooldown).with(active), true, false},
		"while an answer is awaited it neither begins":        {of(bad()).with(tooMany).with(withCooldown).with(unsettled), false, false},
		"nor ends, and blocks":                                {of(bad()).with(withCooldown).with(active).with(unsettled), true, true},
		"without a cooldown it blocks nothing that may start": {of(bad()).with(active).with(unsettled), true, false},
	} {
		p := Decide(tc.given)
		if got := p.Decisions[0].Blocked(CoolingDown); p.Storm.Active != tc.active || got != tc.blocked {
			t.Errorf("%s: storm %t, blocked by it %t; want %t, %t", name, p.Storm.Active, got, tc.active, tc.blocked)
		}
	}
}

// Also while places are taken: one may be free when the changes that come together have been seen.
func TestAMachineThatWasJustSeenIsReconciledAgain(t *testing.T) {
	asked := func(t *given) { t.Owner = Asked }
	for name, tc := range map[string]struct {
		given Facts
		again bool
	}{
		"while no limit is reached":           {of(bad()), true},
		"while all places are taken":          {of(bad(), bad(), bad(asked)).with(atOnce(1)), true},
		"not while too many are unhealthy":    {of(bad()).with(func(f *Facts) { f.Limits.AtMost = 0 }), false},
		"not if all is known for long":        {of(bad(), is(health.Healthy)).with(func(f *Facts) { f.Memory.NotHealthy = map[string]time.Time{"uid-of-a": ago(time.Minute)} }), false},
		"but if only one of two is":           {of(bad(), bad()).with(func(f *Facts) { f.Memory.NotHealthy = map[string]time.Time{"uid-of-a": ago(time.Minute)} }), true},
		"also where that one takes the place": {of(bad(), bad(), bad(asked)).with(atOnce(1)).with(func(f *Facts) { f.Memory.NotHealthy = map[string]time.Time{"uid-of-a": ago(time.Minute)} }), true},
	} {
		f := tc.given
		f.Limited, f.Memory.Known = true, true
		if got := Decide(f).Recheck.Equal(noon.Add(Settling)); got != tc.again {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAVerdictHoldsUntilTheHostCountsAsPowerCycled(t *testing.T) {
	until := noon.Add(time.Minute)
	cycled := func(t *given) { t.Cycle = &Cycle{Until: until} }
	for name, tc := range map[string]struct {
		given given
		want  time.Time
	}{
		"of an unhealthy machine":             {bad(cycled), until},
		"not of a healthy one":                {is(health.Healthy, cycled), time.Time{}},
		"not of one that is being deleted":    {bad(cycled, func(t *given) { t.Deleting = true }), time.Time{}},
		"not of one that is being remediated": {bad(cycled, func(t *given) { t.Owner = Asked }), time.Time{}},
	} {
		if got := Decide(of(tc.given)).VerdictsUntil; !got.Equal(tc.want) {
			t.Errorf("%s: until %v, want %v", name, got, tc.want)
		}
	}
}

func TestAnAttemptInVainIsRememberedWhileTheMachineIsUnhealthy(t *testing.T) {
	refused := func(t *given) { t.refused = ago(time.Minute) }
	for state, want := range map[health.State]bool{health.Unhealthy: true, health.Pending: false, health.Healthy: false} {
		if _, got := Decide(of(is(state, refused))).Memory.Refused["uid-of-a"]; got != want {
			t.Errorf("%s: remembered %t", state, got)
		}
	}
}

// A check that was deleted and made again between two decisions has the name of the one that is remembered, and no storm.
func TestAStormIsRememberedOfTheVeryCheck(t *testing.T) {
	cooldown := 10 * time.Minute
	f := of(bad(func(t *given) { t.Health.Marked = true })).with(func(f *Facts) { f.Cooldown, f.Memory.Known, f.Memory.Storm.Active = &cooldown, true, true })
	if p := Decide(f); !p.Decisions[0].Blocked(CoolingDown) {
		t.Error("the storm of the decision before is forgotten")
	}
	f.Check = "made again"
	if p := Decide(f); p.Storm.Active || !p.Decisions[0].Starts() {
		t.Errorf("the storm of another check of that name goes on, blocked by %v", p.Decisions[0].Blockers)
	}
}
