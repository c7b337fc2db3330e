package machinehealthcheck

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/test/must"
)

// A rollout that exceeds the limits without an unhealthy machine causes no warning, and no event at its end. A status that could not be
// saved causes no event either.
func TestARestrictionIsReportedOnce(t *testing.T) {
	const restricted, allowed = mendv1.EventRemediationRestricted, mendv1.EventRemediationAllowed
	well := []Target{a("m1", health.Healthy), a("m2", health.Healthy)}
	starting := []Target{a("m1", health.Starting), a("m2", health.Healthy)}
	bad := []Target{a("m1", health.Unhealthy), a("m2", health.Healthy)}
	leaving := []Target{a("m1", health.Pending), a("m2", health.Unhealthy, beingDeleted, withCondition(clusterv1.MachineHealthCheckSucceededCondition, "False", "X"))}
	joined := []Target{a("m1", health.Unhealthy), leaving[1]}
	cases := map[string]struct {
		reconciles [][]Target
		unsaved    int // number of the reconcile, from 1
		limits     []string
		restarts   bool // before each reconcile
		want       []string
	}{
		"a rollout is not worth a word":                            {reconciles: [][]Target{well, starting, starting, well}},
		"a bad machine is, and its recovery":                       {reconciles: [][]Target{well, bad, bad, well}, want: []string{restricted, allowed}},
		"also if the limit was exceeded before":                    {reconciles: [][]Target{well, starting, bad, well}, want: []string{restricted, allowed}},
		"also if a machine that is being deleted was bad before":   {reconciles: [][]Target{leaving, joined, well}, want: []string{restricted, allowed}},
		"also if it could not be saved at first":                   {reconciles: [][]Target{starting, bad, bad}, unsaved: 2, want: []string{restricted}},
		"after a restart it is not reported again, and its end is": {reconciles: [][]Target{bad, bad, well}, restarts: true, want: []string{restricted, allowed}},
		"an impossible limit is reported though nothing was allowed before": {
			reconciles: [][]Target{bad, bad, bad}, limits: []string{"0%", "-1", "-1"}, want: []string{restricted, restricted},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var told []string
			check, warned := aCheck().Check, (*string)(nil)
			for i, seen := range tc.reconciles {
				w := aCheck(seen...).limited("0%")
				if tc.limits != nil {
					w.limited(tc.limits[i])
				}
				if w.Check.Status = check.Status; !tc.restarts {
					w.before.warned = warned
				}
				p := decide(w)
				next := statusAfter(w, p, nil)
				if i+1 == tc.unsaved {
					continue
				}
				notes, restriction := limitNotes(w, p, next)
				for _, n := range notes {
					told = append(told, n.Reason)
				}
				check, warned = next, &restriction
			}
			must.List(t, tc.want, told, "told")
		})
	}
}

func TestWhatIsInFlightStandsWhileItIsNotSeen(t *testing.T) {
	asked := func(t *Target) {
		withCondition(clusterv1.MachineHealthCheckSucceededCondition, "False", "X")(t)
		requestedBy("check", "check-uid")(t)
	}
	seen := aCheck(a("m1", health.Unhealthy, asked)).external()
	unseen := aCheck(a("m1", health.Unhealthy)).external()
	unseen.Template.Known = false

	var m memory
	for _, step := range []struct {
		name string
		w    *observed
	}{
		{"before the first list of requests", unseen}, {"when they are seen", seen}, {"when they cannot be read", unseen}, {"when they are seen again", seen},
	} {
		m.recall(step.w)
		p := decide(step.w)
		if n := begunUncounted(step.w, p); n != 0 {
			t.Errorf("%s: %d remediations count as started", step.name, n)
		}
		if over := ended(step.w, p); len(over) != 0 {
			t.Errorf("%s: %v count as over", step.name, over)
		}
		m.leave(step.w, p)
	}
}

func TestARemediationThatNoReconcileCountedIsCountedOnce(t *testing.T) {
	w := aCheck(a("m1", health.Unhealthy, askedOwner))
	uid := w.Targets[0].Machine.UID
	for name, tc := range map[string]struct {
		mode   Mode
		before map[types.UID]string
		want   int
	}{
		"one that was not in flight before":     {Active, map[types.UID]string{}, 1},
		"one that was in flight before":         {Active, map[types.UID]string{uid: "Owner"}, 0},
		"nothing is known of before":            {Active, nil, 0},
		"one that another controller has begun": {Observed, map[types.UID]string{}, 0},
	} {
		w.Mode, w.before.inFlight = tc.mode, tc.before
		must.Is(t, tc.want, begunUncounted(w, decide(w)), "%s: counted", name)
	}
}

func version(name, version string) *clusterv1.Machine {
	m := a(name, health.Healthy).Machine
	m.ResourceVersion = version
	return m
}

func TestOnlyTheEventOfAnOwnWriteIsIgnored(t *testing.T) {
	for name, tc := range map[string]struct {
		from, to    string // resource versions
		late, fails bool   // late: after the answer to the write; fails: the answer is an error
		others      string // what the event changes besides
		want        bool   // the event enqueues the check
	}{
		"the write":                               {from: "8", to: "9", want: false},
		"the write, whose answer comes first":     {from: "8", to: "9", late: true, want: false},
		"the write, whose answer is lost":         {from: "8", to: "9", late: true, fails: true, want: true},
		"what others wrote in its place":          {from: "8", to: "9", others: "conditions", want: true},
		"what came before, and is only told late": {from: "7", to: "8", want: true},
		"what others wrote on top of it":          {from: "9", to: "10", late: true, others: "conditions", want: true},
		"the write with what others wrote on top": {from: "8", to: "10", late: true, others: "conditions", want: true},
		"the write with a label on top":           {from: "8", to: "10", others: "labels", want: true},
	} {
		r := reconciling(t, func(*clusterv1.MachineHealthCheck) {})
		sets := []metav1.Condition{condition(mendv1.Remediation, "False", "R", "m")}
		next := withConditions(r.get("m"), sets, nil, noon.Add(time.Millisecond))
		next.ResourceVersion = "8"
		stored := statusCopy(next).Status.Conditions
		stored[len(stored)-1].LastTransitionTime = metav1.NewTime(noon)
		heard := func() bool {
			before, after := r.get("m"), r.get("m")
			before.ResourceVersion, after.ResourceVersion = tc.from, tc.to
			if tc.others != "conditions" {
				after.Status.Conditions = stored
			}
			if tc.others == "labels" {
				after.Labels = map[string]string{"a": "b"}
			}
			return r.othersWrites().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
		}
		var looks bool
		r.Client = interceptor.NewClient(r.api, interceptor.Funcs{SubResourcePatch: func(
			_ context.Context, _ client.Client, _ string, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
		) error {
			if obj.SetResourceVersion("9"); tc.fails {
				return errors.New("no answer")
			}
			looks = !tc.late && heard()
			return nil
		}})
		r.save(t.Context(), &outcome{Decision: &Decision{Target: &Target{Machine: r.get("m")}}}, next)
		if tc.late {
			looks = heard()
		}
		must.Is(t, tc.want, looks, name+": it is looked at:")
		must.Is(t, true, heard(), name+", heard of once more: it is looked at:")
	}
	var r Reconciler
	r.writing.Store(ownWrite{machine: client.ObjectKeyFromObject(version("m1", "8")), on: "8"}, version("m1", "8"))
	must.Is(t, true, r.othersWrites().Delete(event.DeleteEvent{Object: version("m1", "11")}), "a machine that is gone is looked at:")
	must.Is(t, 0, len(maps.Collect(r.writing.Range)), "of a machine that is gone is kept:")
}

// This holds while all places are taken too: one may be free once the settling is over.
func TestAMachineThatWasJustSeenIsReconciledAgain(t *testing.T) {
	asked := asked
	for name, tc := range map[string]struct {
		given Facts
		again bool
	}{
		"while no limit is reached":        {facts(bad()), true},
		"while all places are taken":       {facts(bad(), bad(), bad(asked)).with(noPlace), true},
		"not while too many are unhealthy": {facts(bad()).with(tooMany), false},
		"not if all is known for long":     {facts(bad(), is(health.Healthy)).with(knownSince("a", time.Minute)), false},
		"but if only one of two is":        {facts(bad(), bad()).with(knownSince("a", time.Minute)), true},
	} {
		f := tc.given
		f.Limited = true
		must.Is(t, tc.again, Decide(f).Recheck.Equal(noon.Add(Settling)), "%s:", name)
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

// A few unhealthy machines may be the first of many that fail, or, after a short-circuit, of many that recover.
func TestFromWhenAMachineThatWasSeenMayBeRemediated(t *testing.T) {
	const moment = Settling / 2
	shortCircuited := func(f *Facts) { f.Memory.ShortCircuited = true }
	calm := func(d time.Duration) func(*Facts) { return func(f *Facts) { f.Memory.Calm = ago(d) } }
	for name, tc := range map[string]struct {
		given Facts
		until time.Time // zero: it may start now
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

// A short-circuit is remembered until it ends; then the settling begins.
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
		"one that is gone":                               {byRequests(bad(shared)).with(noPlace), begun, false, false},
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

// If two checks both believed that they had asked the owner, each would wait for the other to find the machine healthy, until the owner has
// replaced the machine.
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

// If the owner is stuck, another check decides the conditions: it may have a template.
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
		d := Decide(facts(tc.given).with(noPlace)).Decisions[0]
		if d.Sets(mendv1.Remediation, metav1.ConditionFalse) != tc.speaks {
			t.Errorf("%s: it sets %v", name, d.Conditions)
		}
	}
}

// The check must not be reconciled ten times a second until the other check has judged.
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
