package machines

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestWhatTheLimitsCount(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Population
	}{
		"healthy machines that need nothing":             {of(is(health.Healthy, markedHealthy), is(health.Healthy, markedHealthy), bad()), budget.Population{Healthy: 2, Unhealthy: 1, Waiting: 1}},
		"an unhealthy machine of an older check":         {of(bad(older)), budget.Population{Unhealthy: 1}},
		"an unhealthy machine of an observed check":      {of(bad()).with(observe), budget.Population{Unhealthy: 1, Waiting: 1}},
		"what blocks it besides that it is observed":     {of(bad(older)).with(observe), budget.Population{Unhealthy: 1}},
		"a machine whose owner remediation is in flight": {of(bad(asked)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"also if there is a template now":                {of(bad(asked)).with(external), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose owner refuses has no place":           {of(bad(refuses)), budget.Population{Unhealthy: 1}},
		"nor has one that has none":                      {of(bad(asked, unowned)), budget.Population{Unhealthy: 1}},
		"one whose owner tries again later has":          {of(bad(asked, putOff)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"a machine for each state": {of(is(health.Healthy), is(health.Starting), is(health.Pending), is(health.Unknown), bad(), bad(deleting)),
			budget.Population{Healthy: 1, Starting: 1, Pending: 1, Unknown: 1, Unhealthy: 1, Deleting: 1, Waiting: 1}},
		"one that is being deleted, however healthy it is":           {of(is(health.Healthy, markedHealthy, deleting)), budget.Population{Deleting: 1}},
		"its owner is at it until it is gone":                        {of(is(health.Healthy, asked, deleting)), budget.Population{Deleting: 1, InFlight: 1}},
		"an owner has finished when the machine is healthy":          {of(is(health.Healthy, asked)), budget.Population{Healthy: 1}},
		"a request of this check":                                    {of(bad(requested(OwnRequest))).with(external), budget.Population{Unhealthy: 1, InFlight: 1}},
		"not one that waits for who keeps its host off":              {of(bad(requested(OwnRequest), waitsForOthersNow)).with(external), budget.Population{Unhealthy: 1}},
		"one that it adopts":                                         {of(bad(requested(AdoptableRequest))).with(external), budget.Population{Unhealthy: 1, InFlight: 1}},
		"of a machine that is healthy again until it is deleted":     {of(is(health.Healthy, markedHealthy, requested(OwnRequest))).with(external), budget.Population{Healthy: 1, InFlight: 1}},
		"of one that is not judged, too":                             {of(is(health.Unknown, requested(OwnRequest))).with(external), budget.Population{Unknown: 1, InFlight: 1}},
		"a request of somebody else is in the way":                   {of(bad(requested(ForeignRequest))).with(external), budget.Population{Unhealthy: 1}},
		"a power cycle that somebody else requested":                 {of(bad(cycled)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"also while the machine is healthy":                          {of(is(health.Healthy, markedHealthy, cycled)), budget.Population{Healthy: 1, InFlight: 1}},
		"a request that is announced to a reader who may not see it": {of(is(health.Healthy, markedHealthy, announcedBefore)).with(unread), budget.Population{Healthy: 1, InFlight: 1}},
		"but not to one who may, and who sees none":                  {of(is(health.Pending, announcedBefore)).with(external), budget.Population{Pending: 1}},
		"one that is not announced":                                  {of(is(health.Pending)).with(unread), budget.Population{Pending: 1}},
		"none waits while the template is missing":                   {of(bad()).with(missing), budget.Population{Unhealthy: 1}},
		"nor while requests are not known":                           {of(bad()).with(unknown), budget.Population{Unhealthy: 1}},
		"nor where the kind can be no template":                      {of(bad()).with(refused), budget.Population{Unhealthy: 1}},
		"one for which no request can be made waits all the same":    {of(bad(unusable)).with(external), budget.Population{Unhealthy: 1, Waiting: 1}},
		"one that was just seen waits a moment later":                {of(bad()).with(limitsMatter), budget.Population{Unhealthy: 1}},
	} {
		if diff := cmp.Diff(tc.want, Decide(tc.given).Population); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// An observed check explains what would block it if it were acted on: the machine itself takes no place of another one.
func TestAnObservedMachineWaitsForNoPlaceThatIsFree(t *testing.T) {
	for places, want := range map[int]bool{1: false, 0: true} {
		f := of(bad(), bad(asked)).with(observe).with(atOnce(places + 1))
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
		"it is in flight":            {of(bad(asked)), true},
		"an answer is awaited":       {of(is(health.Healthy)).with(unsettled), false},
		"one was just seen":          {of(bad()).with(limitsMatter), false},
		"requests are not known yet": {of(is(health.Healthy)).with(external).with(func(f *Facts) { f.Template.Known = false }), false},
	} {
		if got := Decide(tc.given).AllRequested; got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestHowManyMoreMayTurnBadBeforeNothingBegins(t *testing.T) {
	atMost := func(n int) func(*Facts) { return func(f *Facts) { f.Limits.AtMost = n } }
	for name, tc := range map[string]struct {
		given Facts
		want  int
	}{
		"as many as the limit leaves":             {of(bad(), is(health.Pending), is(health.Healthy)).with(atMost(3)), 1},
		"none at the limit":                       {of(bad(), is(health.Pending)).with(atMost(2)), 0},
		"none beyond it":                          {of(bad(), bad()).with(atMost(1)), 0},
		"none while there are too few":            {of(bad()).with(tooFew), 0},
		"none of a limit that cannot be read":     {of(bad()).with(atMost(3), invalid), 0},
		"none during a cooldown":                  {of(bad()).with(atMost(3), storming, coolsFor(time.Minute)), 0},
		"the places that are taken are no matter": {of(bad(asked)).with(atMost(3), atOnce(1)), 2},
	} {
		if got := Decide(tc.given).Grant.Remaining; got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

func TestWhatAStormIs(t *testing.T) {
	const minute = time.Minute
	tenMinutes := coolsFor(10 * minute)
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Storm
		until time.Time // of the cooldown that blocks; zero if none does
	}{
		"too many unhealthy machines begin one":          {of(bad()).with(tooMany, tenMinutes), budget.Storm{Active: true}, time.Time{}},
		"too many pending machines do not":               {of(is(health.Pending)).with(tooMany, tenMinutes), budget.Storm{}, time.Time{}},
		"they prolong it":                                {of(is(health.Pending)).with(tooMany, tenMinutes, storming), budget.Storm{Active: true}, time.Time{}},
		"also from its cooldown on":                      {of(is(health.Pending)).with(tooMany, tenMinutes, cooling(minute)), budget.Storm{Active: true}, time.Time{}},
		"too few are none":                               {of(bad()).with(tooFew, tenMinutes), budget.Storm{}, time.Time{}},
		"few enough begin its cooldown":                  {of(bad()).with(tenMinutes, storming), budget.Storm{Active: true, CoolingSince: noon}, noon.Add(10 * minute)},
		"which goes on":                                  {of(bad()).with(tenMinutes, cooling(minute)), budget.Storm{Active: true, CoolingSince: ago(minute)}, noon.Add(9 * minute)},
		"and ends":                                       {of(bad()).with(tenMinutes, cooling(10*minute)), budget.Storm{}, time.Time{}},
		"while an answer is awaited none begins":         {of(bad()).with(tooMany, tenMinutes, unsettled), budget.Storm{}, time.Time{}},
		"nor blocks":                                     {of(bad()).with(tenMinutes, unsettled), budget.Storm{}, time.Time{}},
		"a cooldown goes on then":                        {of(bad()).with(tenMinutes, cooling(minute), unsettled), budget.Storm{Active: true, CoolingSince: ago(minute)}, noon.Add(9 * minute)},
		"and ends then":                                  {of(bad()).with(tenMinutes, cooling(10*minute), unsettled), budget.Storm{}, time.Time{}},
		"without a cooldown it is over at once":          {of(bad()).with(storming), budget.Storm{}, time.Time{}},
		"while limits cannot be read it stays as it was": {of(bad()).with(invalid, tenMinutes, storming), budget.Storm{Active: true}, time.Time{}},
		"and so does its cooldown":                       {of(bad()).with(invalid, tenMinutes, cooling(minute)), budget.Storm{Active: true, CoolingSince: ago(minute)}, time.Time{}},
	} {
		p := Decide(tc.given)
		got := p.Decisions[0].Blocked(CoolingDown)
		if p.Storm.Storm != tc.want || got == tc.until.IsZero() || got && !p.Storm.Recheck.Equal(tc.until) || p.Memory.Storm != tc.want {
			t.Errorf("%s: %+v until %v, blocked by it %t; want %+v until %v", name, p.Storm, p.Storm.Recheck, got, tc.want, tc.until)
		}
	}
}

// While an answer is awaited all machines are unknown: a storm stays one, and nothing starts then, whatever is due.
func TestAStormNeitherEndsNorLetsAnythingStartWhileAnAnswerIsAwaited(t *testing.T) {
	for cooldown, want := range map[time.Duration]bool{0: false, 10 * time.Minute: true} {
		f := of(bad()).with(storming, unsettled)
		if cooldown > 0 {
			f = f.with(coolsFor(cooldown))
		}
		if p := Decide(f); !p.Storm.Active || p.Decisions[0].Blocked(CoolingDown) != want {
			t.Errorf("with a cooldown of %s: %+v, blocked by %v", cooldown, p.Storm, p.Decisions[0].Blockers)
		}
	}
}

// A rollout exceeds the limits as well, and is no reason for a warning. What a person has asked for is none either.
func TestOfWhichLimitsTheCheckWarns(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  Reason
	}{
		"none while remediation is allowed":                {of(bad()), ""},
		"too many, of which one is unhealthy":              {of(bad(), is(health.Starting)).with(tooMany), TooManyUnhealthy},
		"not if none is":                                   {of(is(health.Starting), is(health.Pending)).with(tooMany), ""},
		"nor if it is being deleted":                       {of(bad(deleting)).with(tooMany), ""},
		"also if it is being remediated":                   {of(bad(asked)).with(tooMany), TooManyUnhealthy},
		"too few for a range, by the same reason":          {of(bad()).with(tooFew), TooManyUnhealthy},
		"not if none is unhealthy":                         {of(is(health.Healthy)).with(tooFew), ""},
		"a cooldown":                                       {of(bad()).with(storming, coolsFor(time.Minute)), CoolingDown},
		"also while all are healthy":                       {of(is(health.Healthy)).with(storming, coolsFor(time.Minute)), CoolingDown},
		"limits that cannot be read, whatever they forbid": {of(is(health.Healthy)).with(invalid), InvalidLimit},
		"not places that are taken":                        {of(bad(), bad(asked)).with(atOnce(1)), ""},
		"nor if a person leaves none":                      {of(bad()).with(atOnce(0)), ""},
	} {
		if got := Decide(tc.given).Restriction; got != string(tc.want) {
			t.Errorf("%s: warns of %q, want %q", name, got, tc.want)
		}
	}
}
