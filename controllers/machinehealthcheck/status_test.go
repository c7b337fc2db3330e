package machinehealthcheck

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/workload"
)

func TestTheMessageOfAShortCircuitDoesTheSum(t *testing.T) {
	ranged := aCheck(a("a", health.Healthy), a("b", health.Unhealthy))
	ranged.Check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[2-3]"
	for want, w := range map[string]*observed{
		"exceeds unhealthyLessThanOrEqualTo (total: 6, unhealthy: 1, unhealthyLessThanOrEqualTo: 40%). " +
			"5 of 6 targets are not healthy: 1 unhealthy, 1 pending, 1 starting, 1 being deleted, 1 unknown; 40% of 6 allows 2": aCheck(
			a("a", health.Healthy), a("b", health.Unhealthy), a("c", health.Pending), a("d", health.Starting), a("e", health.Unknown),
			a("f", health.Healthy, beingDeleted)).limited("40%"),
		"does not fall within the range (total: 2, unhealthy: 1, unhealthyInRange: [2-3]). " +
			"1 of 2 targets are not healthy: 1 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; the range allows 2 to 3": ranged,
	} {
		c := ConditionOf(statusAfter(w, decide(w), nil), clusterv1.MachineHealthCheckRemediationAllowedCondition)
		want = "Remediation is not allowed, the number of not started or unhealthy machines " + want
		if c.Status != metav1.ConditionFalse || c.Reason != clusterv1.MachineHealthCheckTooManyUnhealthyReason || c.Message != want {
			t.Errorf("got %s/%s %q\nwant False/TooManyUnhealthy %q", c.Status, c.Reason, c.Message, want)
		}
	}
}

func TestRemediationAllowedIsTheSameInBothFlavours(t *testing.T) {
	for limit, want := range map[string]corev1.ConditionStatus{"0": corev1.ConditionFalse, "1": corev1.ConditionTrue} {
		w := aCheck(a("a", health.Unhealthy)).limited(limit)
		got := v1beta1conditions.Get(statusAfter(w, decide(w), nil), clusterv1.RemediationAllowedV1Beta1Condition)
		if got == nil || got.Status != want {
			t.Errorf("unhealthyLessThanOrEqualTo %s: got %v, want %s", limit, got, want)
		}
	}
}

func TestW5TroubleWithTemplatesStandsWhileNothingIsKnown(t *testing.T) {
	template, request := clusterv1.ExternalRemediationTemplateAvailableV1Beta1Condition, clusterv1.ExternalRemediationRequestAvailableV1Beta1Condition
	cases := map[string]struct {
		later func(*observed)
		made  bool // a request
		want  map[clusterv1.ConditionType]bool
	}{
		"requests cannot be read":              {func(w *observed) { w.Template.Known = false }, false, map[clusterv1.ConditionType]bool{template: true, request: true}},
		"the template is there, nothing begun": {func(*observed) {}, false, map[clusterv1.ConditionType]bool{request: true}},
		"it is there, and a request is made":   {func(*observed) {}, true, map[clusterv1.ConditionType]bool{}},
		"no machine waits any more":            {func(w *observed) { w.having(a("a", health.Healthy)) }, false, map[clusterv1.ConditionType]bool{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := aCheck(a("a", health.Unhealthy)).external()
			w.Template.Missing = "it is gone"
			s := decide(w)
			w.Check, w.Template.Missing = statusAfter(w, s, []outcome{{refused: errors.New("no rights")}}), ""
			tc.later(w)
			got := map[clusterv1.ConditionType]bool{}
			for _, c := range statusAfter(w, decide(w), []outcome{{requested: tc.made}}).GetV1Beta1Conditions() {
				if c.Type == template || c.Type == request {
					got[c.Type] = c.Status == corev1.ConditionFalse && c.Severity == clusterv1.ConditionSeverityError
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("what is still said (-want +got):\n%s", diff)
			}
		})
	}
}

func TestW14NumbersFitTheirFields(t *testing.T) {
	w := aCheck(a("a", health.Healthy))
	w.Check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[0-99999999999]"
	if got := statusAfter(w, decide(w), nil).Status.RemediationsAllowed; ptr.Deref(got, -1) < 0 {
		t.Errorf("remediationsAllowed is %d", ptr.Deref(got, -1))
	}
	many := make([]Target, maxTargets+1)
	for i := range many {
		many[i] = a(fmt.Sprintf("m%05d", i), health.Healthy)
	}
	large := aCheck(many...)
	status := statusAfter(large, decide(large), nil).Status
	if len(status.Targets) != maxTargets || *status.ExpectedMachines != maxTargets+1 {
		t.Errorf("%d targets are listed and %d counted, want %d and %d", len(status.Targets), *status.ExpectedMachines, maxTargets, maxTargets+1)
	}
}

func TestAGenerationIsObservedOnlyByAReconcileThatSucceeded(t *testing.T) {
	w := aCheck()
	if got := statusAfter(w, decide(w), []outcome{{err: errors.New("refused")}}).Status.ObservedGeneration; got != 0 {
		t.Errorf("a failed reconcile observed generation %d", got)
	}
	if got := statusAfter(w, decide(w), nil).Status.ObservedGeneration; got != w.Check.Generation {
		t.Errorf("observedGeneration is %d, want %d", got, w.Check.Generation)
	}
}

func TestBothOfTwoChecksSayThatTheySelectTheSame(t *testing.T) {
	w := aCheck(a("a", health.Healthy), a("b", health.Healthy))
	w.Targets[0].Machine.Labels = map[string]string{"pool": "x"}
	selector := labels.SelectorFromSet(labels.Set{"pool": "x"})
	w.Overlaps = []Overlap{
		{Name: "newer", Acting: true, selector: selector}, {Name: "older", Older: true, selector: selector},
		{Name: "elsewhere", selector: labels.Nothing()},
	}
	targets := w.Targets
	w.Targets, w.view = nil, workload.Seen(health.Up, nil)
	for _, target := range targets {
		w.add(target.Machine, nil, false)
	}
	c := ConditionOf(statusAfter(w, decide(w), nil), mendv1.TargetsExclusive)
	want := "* 1 of 2 targets are selected by MachineHealthCheck newer too: each acts by its own rules and limits, and one remediation " +
		"of a machine is in progress at a time\n" +
		"* 1 of 2 targets are selected by MachineHealthCheck older too: kubemend does not act on that check, which is older, and leaves them alone"
	if c.Status != metav1.ConditionFalse || c.Message != want {
		t.Errorf("got %s %q\nwant False %q", c.Status, c.Message, want)
	}
}

func TestEnded(t *testing.T) {
	w := aCheck(a("atWork", health.Unhealthy, askedOwner), a("dropped", health.Pending), a("recovered", health.Healthy))
	w.Skipped = aCheck(a("skipped", health.Healthy)).Targets
	flights := map[types.UID]string{}
	for _, name := range []string{"recovered", "atWork", "dropped", "skipped", "gone"} {
		flights[types.UID("uid-of-"+name)] = "Owner"
	}
	w.before.inFlight = flights
	want := map[ending]int{{"Owner", recoveredResult}: 1, {"Owner", cancelledResult}: 2, {"Owner", replacedResult}: 1}
	if diff := cmp.Diff(want, ended(w, decide(w)), cmp.AllowUnexported(ending{})); diff != "" {
		t.Errorf("ended() (-want +got):\n%s", diff)
	}
	w.before.inFlight = nil
	if got := ended(w, decide(w)); len(got) > 0 {
		t.Errorf("without a reconcile before, %v ended", got)
	}
}

// The names in the status are a list that grows as a whole; nothing else may be allocated for each machine.
func TestW12ASteadyReconcileAllocatesNothingForEachMachine(t *testing.T) {
	allocations := func(count int) float64 {
		targets := make([]Target, count)
		for i := range targets {
			targets[i] = a(fmt.Sprintf("m%04d", i), health.Healthy, markedBefore)
		}
		w := aCheck(targets...)
		for _, target := range w.Targets {
			target.Health.Node = health.NodePresent
		}
		first := w.decide()
		w.Check, w.before.decided = statusAfter(w, first, nil), first.Memory
		return testing.AllocsPerRun(20, func() {
			s := w.decide()
			if steps := stepsOf(s); len(steps) > 0 {
				t.Fatalf("a steady state needs %d steps", len(steps))
			}
			if next := statusAfter(w, s, nil); !sameStatus(w.Check.Status, next.Status) {
				t.Fatal("a steady state has another status")
			}
		})
	}
	if few, many := allocations(10), allocations(1000); many > few {
		t.Errorf("%.0f allocations for 1000 machines, %.0f for 10", many, few)
	}
}

func TestACheckSaysWhichCapacityIsNotBack(t *testing.T) {
	w := aCheck()
	says := func(is Capacity) string {
		w.Capacity = is
		w.Capacity.Reported = ConditionOf(w.Check, mendv1.CapacityBack) != nil
		w.Check = statusAfter(w, decide(w), nil)
		c := ConditionOf(w.Check, mendv1.CapacityBack)
		if c == nil {
			return ""
		}
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	one := Capacity{Known: true, Missing: 1, Target: "Machine w7", Reason: "NoHost", Message: "No host fits Machine w17"}
	two, brief := one, one
	two.Missing, brief.Message = 2, ""
	for i, step := range []struct {
		capacity Capacity
		want     string
	}{
		{Capacity{}, ""},
		{Capacity{Known: true}, ""},
		{one, "False NoHost: The capacity of Machine w7 is not back: No host fits Machine w17"},
		{Capacity{}, "False NoHost: The capacity of Machine w7 is not back: No host fits Machine w17"}, // after a restart
		{two, "False NoHost: The capacity of 2 remediations is not back, for the longest time that of Machine w7: No host fits Machine w17"},
		{brief, "False NoHost: The capacity of Machine w7 is not back"},
		{Capacity{Known: true}, "True CapacityBack: "},
		{Capacity{}, "True CapacityBack: "},
	} {
		if got := says(step.capacity); got != step.want {
			t.Errorf("step %d: it says %q, want %q", i, got, step.want)
		}
		if c := ConditionOf(w.Check, mendv1.CapacityBack); c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.IsZero() {
			t.Errorf("step %d: it does not say since when", i)
		}
	}
}

func TestTheEndOfTheCooldownIsSaid(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy), a("b", health.Healthy)).limited("1")
	w.Check.Annotations = map[string]string{mendv1.StormCooldownAnnotation: "10m"}
	w.Check.Status.Conditions = []metav1.Condition{{Type: mendv1.StormCooldown, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Minute))}}
	s := decide(w)
	const until = "2026-01-01T12:09:00Z"
	for _, kind := range []string{mendv1.StormCooldown, clusterv1.MachineHealthCheckRemediationAllowedCondition} {
		if c := ConditionOf(statusAfter(w, s, nil), kind); c == nil || !strings.Contains(c.Message, until) {
			t.Errorf("%s is %+v, want it to say %s", kind, c, until)
		}
	}
	is := seen(w, s, w.Targets[0])
	if is.StartsNow || len(is.Blockers) == 0 || !is.Blockers[0].Until.Equal(noon.Add(9*time.Minute)) || !is.Next.At.Equal(noon.Add(9*time.Minute)) {
		t.Errorf("explain says %+v, next %+v; want %s", is.Blockers, is.Next, until)
	}
}

func TestWhatCannotBeReadInAnAnnotationBeginsNothingAndIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation, value, reason, want string
	}{
		"a cooldown that is no duration":   {mendv1.StormCooldownAnnotation, "ten", mendv1.InvalidLimitReason, `metadata.annotations[kubemend.io/storm-cooldown]: "ten" is no duration of zero or more, such as 10m`},
		"a cooldown of 0":                  {mendv1.StormCooldownAnnotation, "0s", clusterv1.MachineHealthCheckRemediationAllowedReason, ""},
		"a cooldown below zero":            {mendv1.StormCooldownAnnotation, "-1m", mendv1.InvalidLimitReason, `metadata.annotations[kubemend.io/storm-cooldown]: "-1m" is no duration`},
		"none in flight is not one":        {mendv1.MaxInFlightAnnotation, "0", mendv1.NoneAtOnceReason, `metadata.annotations[kubemend.io/max-in-flight] is "0": none may be in flight`},
		"nor is no percent":                {mendv1.MaxInFlightAnnotation, "0%", mendv1.NoneAtOnceReason, `metadata.annotations[kubemend.io/max-in-flight] is "0%"`},
		"a limit that is no number":        {mendv1.MaxInFlightAnnotation, "many", mendv1.InvalidLimitReason, "metadata.annotations[kubemend.io/max-in-flight]: "},
		"a small percentage of a few is 1": {mendv1.MaxInFlightAnnotation, "1%", clusterv1.MachineHealthCheckRemediationAllowedReason, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := aCheck(a("a", health.Unhealthy))
			w.Check.Annotations = map[string]string{tc.annotation: tc.value}
			s := decide(w)
			c := s.Allowed
			if c.Reason != tc.reason || !strings.Contains(c.Message, tc.want) {
				t.Errorf("RemediationAllowed is %s/%s: %s; want %s, %s", c.Status, c.Reason, c.Message, tc.reason, tc.want)
			}
			begins := starts(s) > 0
			if begins != (tc.want == "") {
				t.Errorf("a remediation begins: %t", begins)
			}
			if is := seen(w, s, w.Targets[0]); !begins && !is.Next.Manual {
				t.Errorf("no person is asked to do something: %+v", is.Next)
			}
		})
	}
}
