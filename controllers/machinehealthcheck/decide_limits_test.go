package machinehealthcheck

import (
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestWhatTheLimitsCount(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  budget.Population
	}{
		"healthy machines that need nothing":             {facts(is(health.Healthy, markedHealthy), is(health.Healthy, markedHealthy), bad()), budget.Population{Healthy: 2, Unhealthy: 1, Waiting: 1}},
		"an unhealthy machine of an older check":         {facts(bad(olderActs)), budget.Population{Unhealthy: 1}},
		"an unhealthy machine of an observed check":      {facts(bad()).with(observe), budget.Population{Unhealthy: 1, Waiting: 1}},
		"what blocks it besides that it is observed":     {facts(bad(olderActs)).with(observe), budget.Population{Unhealthy: 1}},
		"a machine whose owner remediation is in flight": {facts(bad(asked)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"also if there is a template now":                {byRequests(bad(asked)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"one whose owner refuses has no place":           {facts(bad(refuses)), budget.Population{Unhealthy: 1}},
		"until it is being deleted":                      {facts(bad(refuses, deleting)), budget.Population{Deleting: 1, InFlight: 1}},
		"one whose owner never answers has one":          {facts(bad(askedAgo(59 * time.Minute))), budget.Population{Unhealthy: 1, InFlight: 1}},
		"for an hour":                                    {facts(bad(askedAgo(time.Hour))), budget.Population{Unhealthy: 1}},
		"from when it has answered in v1beta1 alone":     {facts(bad(askedAgo(26*time.Hour), saysInV1Beta1(59*time.Minute))), budget.Population{Unhealthy: 1, InFlight: 1}},
		"not longer then":                                {facts(bad(askedAgo(26*time.Hour), saysInV1Beta1(time.Hour))), budget.Population{Unhealthy: 1}},
		"longer if owners of its kind answer": {facts(bad(askedAgo(26*time.Hour), func(t *givenMachine) { t.OwnerKindSilent = false })),
			budget.Population{Unhealthy: 1, InFlight: 1}},
		"nor has one that has none":             {facts(bad(asked, unowned)), budget.Population{Unhealthy: 1}},
		"one whose owner tries again later has": {facts(bad(asked, deferred)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"a machine for each state": {facts(is(health.Healthy), is(health.Starting), is(health.Pending), is(health.Unknown), bad(), bad(deleting)),
			budget.Population{Healthy: 1, Starting: 1, Pending: 1, Unknown: 1, Unhealthy: 1, Deleting: 1, Waiting: 1}},
		"one that is being deleted, however healthy it is":        {facts(is(health.Healthy, markedHealthy, deleting)), budget.Population{Deleting: 1}},
		"its owner is at it until it is gone":                     {facts(is(health.Healthy, asked, deleting)), budget.Population{Deleting: 1, InFlight: 1}},
		"an owner has finished when the machine is healthy":       {facts(is(health.Healthy, asked)), budget.Population{Healthy: 1}},
		"a request of this check":                                 {byRequests(bad(ownRequest)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"not one that waits for who keeps its host off":           {byRequests(bad(ownRequest, waitsForOthersNow)), budget.Population{Unhealthy: 1}},
		"one that it adopts":                                      {byRequests(bad(adoptable)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"of a machine that is healthy again until it is gone":     {byRequests(is(health.Healthy, ownRequest, requestDeleting)), budget.Population{Healthy: 1, InFlight: 1}},
		"of one that is healthy again until it is deleted":        {byRequests(is(health.Healthy, markedHealthy, ownRequest)), budget.Population{Healthy: 1, InFlight: 1}},
		"of one that is not judged, too":                          {byRequests(is(health.Unknown, ownRequest)), budget.Population{Unknown: 1, InFlight: 1}},
		"a request of somebody else is in the way":                {byRequests(bad(foreign)), budget.Population{Unhealthy: 1}},
		"a power cycle that somebody else requested":              {facts(bad(cycled)), budget.Population{Unhealthy: 1, InFlight: 1}},
		"also while the machine is healthy":                       {facts(is(health.Healthy, markedHealthy, cycled)), budget.Population{Healthy: 1, InFlight: 1}},
		"but not to one who may, and who sees none":               {byRequests(is(health.Pending, announcedBefore)), budget.Population{Pending: 1}},
		"none waits while the template is missing":                {facts(bad()).with(missing), budget.Population{Unhealthy: 1}},
		"nor while requests are not known":                        {facts(bad()).with(unknown), budget.Population{Unhealthy: 1}},
		"nor where the kind can be no template":                   {facts(bad()).with(refused), budget.Population{Unhealthy: 1}},
		"one for which no request can be made waits all the same": {byRequests(bad(unusable)), budget.Population{Unhealthy: 1, Waiting: 1}},
		"one for which there is no place does too":                {facts(bad()).with(noPlace), budget.Population{Unhealthy: 1, Waiting: 1}},
		"one that was just seen waits a moment later":             {facts(bad()).with(limitsMatter), budget.Population{Unhealthy: 1}},
	} {
		must.Equal(t, tc.want, Decide(tc.given).Population, "%s", name)
	}
}

func TestHowManyMoreMayTurnBadBeforeNothingBegins(t *testing.T) {
	atMost := func(n int) func(*Facts) { return func(f *Facts) { f.Limits.AtMost = n } }
	for name, tc := range map[string]struct {
		given Facts
		want  int
	}{
		"as many as the limit leaves":         {facts(bad(), is(health.Pending), is(health.Healthy)).with(atMost(3)), 1},
		"none at the limit":                   {facts(bad(), is(health.Pending)).with(atMost(2)), 0},
		"none beyond it":                      {facts(bad(), bad()).with(atMost(1)), 0},
		"none while there are too few":        {facts(bad()).with(tooFew), 0},
		"none of a limit that cannot be read": {facts(bad()).with(atMost(3), invalid), 0},
	} {
		must.Is(t, tc.want, Decide(tc.given).Grant.Remaining, "%s:", name)
	}
}

// A rollout exceeds the limits too, but is no reason for a warning.
func TestOfWhichLimitsTheCheckWarns(t *testing.T) {
	for name, tc := range map[string]struct {
		given Facts
		want  Reason
	}{
		"none while remediation is allowed":                {facts(bad()), ""},
		"too many, of which one is unhealthy":              {facts(bad(), is(health.Starting)).with(tooMany), TooManyUnhealthy},
		"not if none is":                                   {facts(is(health.Starting), is(health.Pending)).with(tooMany), ""},
		"nor if it is being deleted":                       {facts(bad(deleting)).with(tooMany), ""},
		"also if it is being remediated":                   {facts(bad(asked)).with(tooMany), TooManyUnhealthy},
		"too few for a range, by the same reason":          {facts(bad()).with(tooFew), TooManyUnhealthy},
		"not if none is unhealthy":                         {facts(is(health.Healthy)).with(tooFew), ""},
		"limits that cannot be read, whatever they forbid": {facts(is(health.Healthy)).with(invalid), InvalidLimit},
	} {
		if got := restriction(new(Decide(tc.given))); got != string(tc.want) {
			t.Errorf("%s: warns of %q, want %q", name, got, tc.want)
		}
	}
}

func TestTheRangeGoesBeforeTheNumber(t *testing.T) {
	check := &clusterv1.MachineHealthCheck{}
	for within, want := range map[string]budget.Limits{
		"":      {AtMost: 10},
		"[3-5]": {AtLeast: 3, AtMost: 5},
	} {
		check.Spec.Remediation.TriggerIf.UnhealthyInRange = within
		if settings := SettingsOf(check, 10); settings.Invalid != nil || settings.Limits != want {
			t.Errorf("the limits of %q are %+v, %v; want %+v", within, settings.Limits, settings.Invalid, want)
		}
	}
	check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[5-3]"
	if invalid := SettingsOf(check, 10).Invalid; invalid == nil || !strings.HasPrefix(invalid.Error(), "spec.remediation.triggerIf.unhealthyInRange: ") {
		t.Errorf("of an empty range it says %v", invalid)
	}
}

func TestWhichMachinesStart(t *testing.T) {
	const hour = time.Hour
	tried := func(before time.Duration) func(*givenMachine) {
		return func(t *givenMachine) { t.refused = ago(before) }
	}
	for name, tc := range map[string]struct {
		given Facts
		want  string
	}{
		"W1: all beside one that has its request":                              {byRequests(bad(ownRequest), bad(), bad()), "bc"},
		"all that are unhealthy":                                               {facts(bad(), is(health.Pending), bad()), "ac"},
		"an owner that was asked before there was a template":                  {byRequests(bad(refuses)), "a"},
		"one that never answers, for less than an hour":                        {byRequests(bad(askedAgo(59 * time.Minute))), ""},
		"and for an hour":                                                      {byRequests(bad(askedAgo(time.Hour))), "a"},
		"with a range they start from its lower end on":                        {facts(bad(), bad()).with(func(f *Facts) { f.Limits.AtLeast, f.Limits.AtMost = 2, 2 }), "ab"},
		"whatever is not healthy counts, also what starts or is being deleted": {facts(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 3 }), ""},
		"W18: of machines that wait for their turn the longest overdue":        {facts(bad(saidToFail, due(hour)), bad(saidToFail, due(2*hour))), "b"},
		"by name where that is the same":                                       {facts(bad(saidToFail), bad(saidToFail)), "a"},
		"last is one that could not be begun":                                  {facts(bad(saidToFail, due(hour), tried(1)), bad(saidToFail, due(0))), "b"},
		"of those that could not be begun the longest ago is first":            {facts(bad(saidToFail, tried(1)), bad(saidToFail, tried(2))), "b"},
		"one of which only the condition says so was tried before that":        {byRequests(bad(saidToFail, tried(1)), bad(saidToFail, failedBefore)), "b"},
		"one of which the condition says so is last too":                       {byRequests(bad(saidToFail, due(hour), failedBefore), bad(saidToFail, due(0))), "b"},
		"not if its owner is asked instead now":                                {facts(bad(saidToFail, due(hour), failedBefore), bad(saidToFail, due(0))), "a"},
		"all where no request can be made for one":                             {byRequests(bad(unusable), bad()), "b"},
		"with a template it is no matter who owns it":                          {byRequests(bad(unowned)), "a"},
		"but not without":             {facts(bad(unowned), bad()), "b"},
		"as many as the limit may be": {facts(bad(), is(health.Starting), is(health.Unknown), bad(deleting)).with(func(f *Facts) { f.Limits.AtMost = 4 }), "a"},
		"of machines that a provider calls failed and that are Ready one": {facts(bad(saidToFail), bad(), bad(saidToFail)), "ab"},
		"none while the one before is remediated":                         {facts(bad(saidToFail, asked), bad(saidToFail)), ""},
		"also if its node cannot be seen, and was Ready": {
			facts(bad(saidToFail, asked), bad(saidToFail, nodeIs(health.NodeUnseen))), "",
		},
		"but not if it is gone, and was": {
			facts(bad(saidToFail, asked), bad(saidToFail, nodeIs(health.NodeGone))), "b",
		},
		"nor before the one in its place has a node":       {facts(bad(saidToFail), is(health.Starting, awaited)), ""},
		"nor while a record says that capacity is missing": {facts(bad(saidToFail)).with(capacityMissing), ""},
		"nor as long as the one before cannot be replaced": {facts(bad(saidToFail, refuses), bad(saidToFail)), ""},
		"but one that a person marked":                     {facts(bad(saidToFail, asked), bad(saidToFail, byPerson)), "b"},
		"and one that something else is held against":      {facts(bad(saidToFail, asked), bad(saidToFail, quiet)), "b"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.given.starting(); got != tc.want {
				t.Errorf("%q start, want %q", got, tc.want)
			}
		})
	}
}
