package machinehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// did puts a step into words.
func did(s step) string {
	var words []string
	for word, holds := range map[string]bool{
		"1 creates a request": s.Step == machines.CreateRequest, "1 adopts the request": s.Step == machines.AdoptRequest,
		"1 deletes the request": s.Step == machines.DeleteRequest, "1 releases the machine": s.Step == machines.Release,
		"2 says healthy": s.Sets(machines.HealthCheckSucceeded, "True"), "2 says unhealthy": s.Sets(machines.HealthCheckSucceeded, "False"),
		"3 asks the owner": s.Sets(machines.OwnerRemediated, "False"), "3 says waiting": s.external().Reason == requested.Reason,
		"3 says no template":                 s.external().Reason == clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason,
		"3 says request failed":              s.external().Reason == machines.NotCreated.Reason,
		"3 forgets that the owner was asked": slices.Contains(s.Conditions, ownerForgot),
	} {
		if holds {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	for i := range words {
		words[i] = words[i][2:]
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, ", ")
}

func TestStepFor(t *testing.T) {
	const me, myUID = "check", "check-uid"
	grants := func(*observed) {}
	tooMany := func(w *observed) { w.limited("0") }
	noneAtOnce := func(w *observed) { w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "0"} }
	healthySince := func(t *target) { // its owner has not taken note yet
		markedBefore(t)
		withCondition(clusterv1.MachineOwnerRemediatedCondition, "False", clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)(t)
	}
	cases := map[string]struct {
		given *observed
		limit func(*observed)
		want  string
	}{
		"a healthy machine that is said to be healthy needs nothing":  {aCheck(a("m", health.Healthy, markedBefore)), grants, "nothing"},
		"a healthy machine of which nothing was said is said healthy": {aCheck(a("m", health.Healthy)), grants, "says healthy"},
		"a healthy machine that is being deleted is left alone":       {aCheck(a("m", health.Healthy, beingDeleted)), grants, "nothing"},
		"a pending machine keeps what was said":                       {aCheck(a("m", health.Pending, askedOwner)), grants, "nothing"},
		"a starting machine is not spoken of":                         {aCheck(a("m", health.Starting)), grants, "nothing"},
		"an unknown machine keeps its request":                        {aCheck(a("m", health.Unknown, requestedBy(me, myUID))).external(), grants, "nothing"},

		"the owner of an unhealthy machine is asked":                          {aCheck(a("m", health.Unhealthy)), grants, "says unhealthy, asks the owner"},
		"without a grant it is only marked":                                   {aCheck(a("m", health.Unhealthy)), tooMany, "says unhealthy"},
		"one whose owner was asked stays so":                                  {aCheck(a("m", health.Unhealthy, askedOwner)), noneAtOnce, "says unhealthy, asks the owner"},
		"its owner is not asked again while short-circuited":                  {aCheck(a("m", health.Unhealthy, askedOwner)), tooMany, "says unhealthy"},
		"one that is being deleted is not spoken of":                          {aCheck(a("m", health.Unhealthy, beingDeleted)), grants, "nothing"},
		"one that is deleted by its owner keeps the reason for that":          {aCheck(a("m", health.Unhealthy, askedOwner, beingDeleted)), grants, "nothing"},
		"one that is being updated in place is only marked":                   {aCheck(a("m", health.Unhealthy, beingUpdated)), grants, "says unhealthy"},
		"unless a person marks it":                                            {aCheck(a("m", health.Unhealthy, beingUpdated, byUser)), grants, "says unhealthy, asks the owner"},
		"one whose remediation began before its update stays with its owner":  {aCheck(a("m", health.Unhealthy, askedOwner, beingUpdated)), noneAtOnce, "says unhealthy, asks the owner"},
		"one of which an older check speaks is left to it":                    {aCheck(a("m", health.Unhealthy, olderCheck("old"))), grants, "nothing"},
		"a healthy one of which an older check speaks is not spoken of":       {aCheck(a("m", health.Healthy, olderCheck("old"))), grants, "nothing"},
		"a request of ours ends with recovery although an older check speaks": {aCheck(a("m", health.Healthy, olderCheck("old"), requestedBy(me, myUID))).external(), grants, "deletes the request"},

		"one that was healthy since its owner was asked is not remediated by being marked":          {aCheck(a("m", health.Unhealthy, healthySince)), tooMany, "says unhealthy, forgets that the owner was asked"},
		"nor while it waits for its turn":                                                           {aCheck(a("m", health.Unhealthy, healthySince)), noneAtOnce, "says unhealthy, forgets that the owner was asked"},
		"its owner is asked as soon as that is granted":                                             {aCheck(a("m", health.Unhealthy, healthySince)), grants, "says unhealthy, asks the owner"},
		"one that was healthy since its owner was asked gets a request, and its owner is not asked": {aCheck(a("m", health.Unhealthy, healthySince)).external(), grants, "creates a request, says unhealthy, forgets that the owner was asked, says waiting"},
		"the owner that was asked because a request came to nothing stays asked":                    {aCheck(a("m", health.Unhealthy, askedOwner, requestedBy(me, myUID))).external(), grants, "says unhealthy"},
		"an owner that is asked while its machine was called well goes on if there is a request":    {aCheck(a("m", health.Unhealthy, healthySince, requestedBy(me, myUID))).external(), grants, "says unhealthy, says waiting"},

		"an unhealthy machine gets a request":                           {aCheck(a("m", health.Unhealthy)).external(), grants, "creates a request, says unhealthy, says waiting"},
		"W2: one that is being deleted gets none":                       {aCheck(a("m", health.Unhealthy, beingDeleted)).external(), grants, "nothing"},
		"one that is being updated in place gets none":                  {aCheck(a("m", health.Unhealthy, beingUpdated)).external(), grants, "says unhealthy"},
		"W1: one that has its request needs no other":                   {aCheck(a("m", health.Unhealthy, requestedBy(me, myUID))).external(), grants, "says unhealthy, says waiting"},
		"W8: while its request is being deleted there is no other":      {aCheck(a("m", health.Unhealthy, requestedBy(me, myUID, onItsWayOut))).external(), grants, "says unhealthy, says waiting"},
		"W9: a request of another check is not touched":                 {aCheck(a("m", health.Unhealthy, requestedBy("other", "x"))).external(), grants, "says unhealthy, says request failed"},
		"W9: nor deleted on recovery":                                   {aCheck(a("m", health.Healthy, markedBefore, requestedBy("other", "x"))).external(), grants, "nothing"},
		"one that was made and is not in the caches yet is spoken of":   {aCheck(a("m", health.Unhealthy, begunLately)).external(), grants, "says unhealthy, says waiting"},
		"while requests are listed for the first time, it waits":        {aCheck(a("m", health.Unhealthy)).listing(), grants, "nothing"},
		"unless it was marked unhealthy before":                         {aCheck(a("m", health.Unhealthy, askedOwner)).listing(), grants, "says unhealthy"},
		"a request that core made from our template is adopted":         {aCheck(a("m", health.Unhealthy, requestedBy("", ""))).external(), grants, "adopts the request, says unhealthy, says waiting"},
		"also if the check named another template then":                 {aCheck(a("m", health.Unhealthy, requestedBy("", "", otherTemplate))).external(), grants, "adopts the request, says unhealthy, says waiting"},
		"unless another check of the machine names that one":            {aCheck(a("m", health.Unhealthy, requestedBy("", "", otherTemplate))).external().with(otherCheckWith("another")), grants, "says unhealthy, says request failed"},
		"one that somebody made from a template of another kind is not": {aCheck(a("m", health.Unhealthy, requestedBy("", "", otherTemplateKind))).external(), grants, "says unhealthy, says request failed"},
		"one that a Machine of that name has left is not ours":          {aCheck(a("m", health.Unhealthy, requestedBy(me, myUID, ofAnotherMachine))).external(), grants, "says unhealthy, says request failed"},
		"nor deleted on recovery of this one":                           {aCheck(a("m", health.Healthy, markedBefore, requestedBy(me, myUID, ofAnotherMachine))).external(), grants, "nothing"},
		"a power cycle that a person asked for is left alone":           {aCheck(a("m", health.Unhealthy, powerCycled)), grants, "says unhealthy"},
		"also by a check with a template":                               {aCheck(a("m", health.Unhealthy, powerCycled)).external(), grants, "says unhealthy"},
		"also on recovery, so that the next reconcile may end it":       {aCheck(a("m", health.Healthy, markedBefore, requestedBy("", ""))).external(), grants, "adopts the request"},
		"but not by a check that leaves the machine to an older one":    {aCheck(a("m", health.Healthy, markedBefore, olderCheck("old"), requestedBy("", ""))).external(), grants, "nothing"},
		"a request of our predecessor is inherited":                     {aCheck(a("m", health.Unhealthy, requestedBy(me, "old-uid"))).external(), grants, "adopts the request, says unhealthy, says waiting"},
		"on recovery our request is deleted":                            {aCheck(a("m", health.Healthy, requestedBy(me, myUID))).external(), grants, "deletes the request, says healthy"},
		"W5: the condition about a request is removed with recovery":    {aCheck(a("m", health.Healthy, markedBefore, withCondition(clusterv1.MachineExternallyRemediatedCondition, "False", "WaitingForRemediation"))).external(), grants, "says healthy"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := "nothing"
			tc.limit(tc.given)
			if steps := stepsOf(tc.given, decide(tc.given)); len(steps) > 0 {
				got = did(steps[0])
			}
			if got != tc.want {
				t.Errorf("stepsOf() %s, want %s", got, tc.want)
			}
		})
	}
}

func TestWithoutATemplateNothingIsMadeAndItIsSaid(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy)).external()
	w.remediation.Missing = "gone"
	steps := stepsOf(w, decide(w))
	if got := did(steps[0]); got != "says unhealthy, says no template" {
		t.Errorf("stepsOf() %s", got)
	}
	if want := "Error retrieving remediation template Metal3RemediationTemplate ns/reboot"; explain.MachineMessage(steps[0].facts, steps[0].Decision, steps[0].external(), steps[0].refused) != want {
		t.Errorf("it says %q, want %q", explain.MachineMessage(steps[0].facts, steps[0].Decision, steps[0].external(), steps[0].refused), want)
	}
}

func TestWhileRequestsAreUnknownNoneIsMade(t *testing.T) {
	w := aCheck(a("m", health.Unhealthy)).external()
	w.remediation.Known = false
	if got := did(stepsOf(w, decide(w))[0]); got != "says unhealthy" {
		t.Errorf("stepsOf() %s, want it only said", got)
	}
}

func TestThoseMarkedByHandGoFirstThenTheLongestOverdueThenByName(t *testing.T) {
	w := aCheck(
		a("d", health.Unhealthy, dueFor(time.Minute)), a("b", health.Unhealthy, dueFor(time.Minute)),
		a("c", health.Unhealthy, dueFor(time.Hour)), a("e", health.Unhealthy, byUser, dueFor(time.Second)))
	w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "3"}
	var handed []string
	for _, s := range stepsOf(w, decide(w)) {
		if s.Sets(machines.OwnerRemediated, "False") {
			handed = append(handed, s.target.machine.Name)
		}
	}
	if want := []string{"b", "c", "e"}; !slices.Equal(handed, want) {
		t.Errorf("the owners asked are those of %v, want %v", handed, want)
	}
}

func TestWhatIsInFlightUsesUpTheLimit(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy, askedOwner), a("b", health.Pending, askedOwner), a("c", health.Unhealthy, beingDeleted, askedOwner), a("d", health.Unhealthy))
	w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "2"}
	s := decide(w)
	if s.Population.InFlight != 3 || s.Grant.Start != 0 || s.Grant.Reason != budget.AtWork {
		t.Errorf("in flight %d, grant %+v; want 3 (the pending one is still the owner's) and nothing granted", s.Population.InFlight, s.Grant)
	}
}

func TestCountPutsEveryTargetInOneClass(t *testing.T) {
	w := aCheck(a("a", health.Healthy), a("b", health.Healthy, beingDeleted), a("c", health.Unhealthy), a("d", health.Unhealthy, beingDeleted),
		a("e", health.Pending), a("f", health.Starting), a("g", health.Unknown))
	want := budget.Population{Healthy: 1, Unhealthy: 1, Pending: 1, Starting: 1, Deleting: 2, Unknown: 1, Waiting: 1}
	if got := decide(w).Population; got != want {
		t.Errorf("the population is %+v, want %+v", got, want)
	}
}

func TestASkippedMachineIsReleasedOnlyIfACheckMarkedIt(t *testing.T) {
	w := aCheck()
	w.skipped = aCheck(
		a("elsewhere", health.Healthy, olderCheck("old"), withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")),
		a("failed", health.Healthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")),
		a("quiet", health.Healthy),
	).targets
	steps := stepsOf(w, decide(w))
	if len(steps) != 1 || steps[0].Step != machines.Release || steps[0].target.machine.Name != "failed" {
		t.Errorf("stepsOf() = %d steps, want failed alone released", len(steps))
	}
}

func TestLimits(t *testing.T) {
	cases := map[string]struct {
		change func(*clusterv1.MachineHealthCheck)
		want   budget.Limits
		field  string
	}{
		"without a limit everything is allowed": {nil, budget.Limits{AtMost: 10, InFlight: budget.Unlimited}, ""},
		"the range goes before the number": {func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyInRange = "[3-5]"
		}, budget.Limits{AtLeast: 3, AtMost: 5, InFlight: budget.Unlimited}, ""},
		"at least one may be in flight": {func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1%"}
		}, budget.Limits{AtMost: 10, InFlight: 1}, ""},
		"an empty range is named": {func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyInRange = "[5-3]"
		}, budget.Limits{}, "spec.remediation.triggerIf.unhealthyInRange"},
		"a bad annotation is named": {func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "many"}
		}, budget.Limits{}, "metadata.annotations[kubemend.io/max-in-flight]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check := &clusterv1.MachineHealthCheck{}
			if tc.change != nil {
				tc.change(check)
			}
			got, err := limitsOf(check, 10)
			if tc.field != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.field+": ") {
					t.Errorf("got error %v, want one about %s", err, tc.field)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("limitsOf() = %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}

func TestMode(t *testing.T) {
	cases := map[string]struct {
		annotation *string
		paused     bool
		unclaimed  Unclaimed
		want       machines.Mode
	}{
		"a claimed check is acted on, whatever the flag":        {ptr.To("kubemend"), false, Ignore, machines.Active},
		"a claimed check of a paused cluster is paused":         {ptr.To("kubemend"), true, Act, machines.Paused},
		"any other value is a pause":                            {ptr.To("true"), false, Act, machines.Paused},
		"even the empty one":                                    {ptr.To(""), false, Observe, machines.Paused},
		"an unclaimed check is observed":                        {nil, false, Observe, machines.Observed},
		"an unclaimed check of a paused cluster is not":         {nil, true, Observe, machines.Paused},
		"an unclaimed check is acted on where the flag says so": {nil, false, Act, machines.Active},
		"an unclaimed check is ignored where the flag says so":  {nil, false, Ignore, machines.Ignored},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check, cluster := &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{}
			if tc.annotation != nil {
				check.Annotations = map[string]string{clusterv1.PausedAnnotation: *tc.annotation}
			}
			if tc.paused {
				cluster.Spec.Paused = ptr.To(true)
			}
			if got := modeFor(check, cluster, tc.unclaimed); got != tc.want {
				t.Errorf("modeFor() = %d, want %d", got, tc.want)
			}
		})
	}
}

func TestAProviderMayDeleteItsCondition(t *testing.T) {
	failedBefore := withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")
	w := aCheck(a("m", health.Unhealthy, failedBefore, requestedBy("check", "check-uid"))).external()
	s := stepsOf(w, decide(w))[0]
	next := s.with(w, s.target.machine, s.Conditions)
	if c := conditionOf(next, clusterv1.MachineExternallyRemediatedCondition); c != nil {
		t.Errorf("ExternallyRemediated is back: %s/%s", c.Status, c.Reason)
	}
}

// Caches lag behind what was just written. A reconcile in between must not begin one more than is allowed.
func TestWhatWasBegunCountsBeforeTheCachesShowIt(t *testing.T) {
	var m memory
	pass := func(changes ...func(*target)) *observed {
		w := aCheck(a("first", health.Unhealthy, changes...), a("second", health.Unhealthy, byUser)).external()
		w.check.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1"}
		m.recall(w)
		return w
	}
	w := pass()
	m.leave(w, decide(w), outcome{step: step{Decision: &machines.Decision{Step: machines.CreateRequest}, target: w.targets[0]}, requested: true})

	decided := func(changes ...func(*target)) plan {
		w := pass(changes...)
		s := decide(w)
		m.leave(w, s)
		return s
	}
	if s := decided(); s.Grant.Start != 0 || s.Population.InFlight != 1 {
		t.Errorf("before the caches show it: %d in flight, %d more may start; want 1 and 0", s.Population.InFlight, s.Grant.Start)
	}
	if s := decided(requestedBy("check", "check-uid")); s.Population.InFlight != 1 {
		t.Errorf("when they show it: %d in flight, want 1", s.Population.InFlight)
	}
	if s := decided(); s.Population.InFlight != 0 || s.Grant.Start != 1 {
		t.Errorf("after they showed it and it went away: %d in flight, %d may start; want 0 and 1", s.Population.InFlight, s.Grant.Start)
	}
}

func TestWhatAProviderSaysStandsWhileRequestsAreUnknown(t *testing.T) {
	w := aCheck(a("m", health.Healthy, withCondition(clusterv1.MachineExternallyRemediatedCondition, "False", "TheProviderIsAtWork"))).external()
	w.remediation.Known = false
	if s := stepsOf(w, decide(w))[0]; !s.Sets(machines.HealthCheckSucceeded, "True") || s.external().Type != "" {
		t.Errorf("it says %+v, want that the machine is healthy and nothing of a request that may be somebody else's", s.Conditions)
	}
	w.remediation.Known = true
	if s := stepsOf(w, decide(w))[0]; s.external() != requestGone {
		t.Errorf("it says %+v, want the condition about no request removed", s.Conditions)
	}
}

func TestAnOwnerThatNeverAnsweredIsNotAtWork(t *testing.T) {
	stale := func(t *target) { // the machine was healthy since; the owner has not removed the condition
		markedBefore(t)
		withCondition(clusterv1.MachineOwnerRemediatedCondition, "False", clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)(t)
	}
	for _, state := range []health.State{health.Unknown, health.Pending, health.Healthy} {
		if p := decide(aCheck(a("m", state, stale))).Population; p.InFlight != 0 {
			t.Errorf("%v: %d in flight, want none", state, p.InFlight)
		}
	}
}

func TestAMachineThatRecoveredIsRememberedUntilItsOwnerHasSeenIt(t *testing.T) {
	asked := withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
	for name, tc := range map[string]struct {
		given []func(*target)
		want  bool
	}{
		"its owner was not asked":                     {nil, false},
		"its owner was asked, and no health is known": {[]func(*target){asked}, true},
		"its owner was asked, and it is healthy":      {[]func(*target){asked, markedBefore}, true},
		"its owner was asked, and it is unhealthy":    {[]func(*target){askedOwner}, false},
		"its owner has remediated it, and it is healthy": {[]func(*target){markedBefore,
			withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionTrue, "Remediated")}, false},
	} {
		m := a("m", health.Unhealthy, tc.given...).machine
		if got := askedWhileHealthy(m); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}

// The condition of a request that another check made is that check's. The condition of a request of ours goes with it.
func TestTheConditionOfAnotherChecksRequestStaysWhenTheMachineRecovers(t *testing.T) {
	external := withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "WaitingForRemediation")
	for name, tc := range map[string]struct {
		request func(*target)
		want    machines.Condition
	}{
		"a request of ours": {requestedBy("check", "check-uid"), requestGone},
		"another check's":   {requestedBy("other", "x"), machines.Condition{}},
	} {
		w := aCheck(a("m", health.Healthy, external, tc.request)).external()
		if got := stepsOf(w, decide(w))[0].external(); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
