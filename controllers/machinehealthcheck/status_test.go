package machinehealthcheck

import (
	"errors"
	"fmt"
	"slices"
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
	"github.com/kubemend/kubemend/test/must"
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
			must.Equal(t, tc.want, got, "what is still said")
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
	must.Is(t, w.Check.Generation, statusAfter(w, decide(w), nil).Status.ObservedGeneration, "observedGeneration is")
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
		w.add(Target{Machine: target.Machine})
	}
	c := ConditionOf(statusAfter(w, decide(w), nil), mendv1.TargetsExclusive)
	want := "* 1 of 2 targets are selected by MachineHealthCheck newer too: each acts by its own rules and limits, and one remediation " +
		"of a machine is in progress at a time\n" +
		"* 1 of 2 targets are selected by MachineHealthCheck older too: kubemend does not act on that check; as that check is older, kubemend leaves these machines alone"
	if c.Status != metav1.ConditionFalse || c.Message != want {
		t.Errorf("got %s %q\nwant False %q", c.Status, c.Message, want)
	}
}

func TestEnded(t *testing.T) {
	w := aCheck(a("atWork", health.Unhealthy, askedOwner), a("dropped", health.Pending), a("recovered", health.Healthy),
		a("markedByOthers", health.Healthy, markedBefore))
	w.Skipped = aCheck(a("skipped", health.Healthy)).Targets
	flights := map[types.UID]string{}
	for _, name := range []string{"recovered", "markedByOthers", "atWork", "dropped", "skipped", "gone"} {
		flights[types.UID("uid-of-"+name)] = "Owner"
	}
	w.before.inFlight = flights
	want := map[ending]int{{"Owner", recoveredResult}: 2, {"Owner", cancelledResult}: 2, {"Owner", replacedResult}: 1}
	if diff := cmp.Diff(want, ended(w, decide(w)), cmp.AllowUnexported(ending{})); diff != "" {
		t.Errorf("ended() (-want +got):\n%s", diff)
	}
	w.before.inFlight = nil
	if got := ended(w, decide(w)); len(got) > 0 {
		t.Errorf("without a reconcile before, %v ended", got)
	}
}

// The names in the status are one list; nothing else may be allocated for each machine.
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
		{two, "False NoHost: The capacity of 2 remediations is not back. The longest wait is for Machine w7: No host fits Machine w17"},
		{brief, "False NoHost: The capacity of Machine w7 is not back"},
		{Capacity{Known: true}, "True CapacityBack: "},
		{Capacity{}, "True CapacityBack: "},
	} {
		must.Is(t, step.want, says(step.capacity), "step %d: it says", i)
		if c := ConditionOf(w.Check, mendv1.CapacityBack); c != nil && c.Status == metav1.ConditionFalse && c.LastTransitionTime.IsZero() {
			t.Errorf("step %d: it does not say since when", i)
		}
	}
}

func TestALimitThatCannotBeReadBeginsNothingAndIsSaid(t *testing.T) {
	w := aCheck(a("a", health.Unhealthy))
	w.Check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[5-3]"
	s := decide(w)
	if c := s.Allowed; c.Reason != mendv1.InvalidLimitReason || !strings.Contains(c.Message, ".triggerIf.unhealthyInRange: ") || starts(s) > 0 {
		t.Errorf("RemediationAllowed is %s/%s: %s, and %d begin", c.Status, c.Reason, c.Message, starts(s))
	}
	if is := seen(w, s, w.Targets[0]); !is.Next.Manual {
		t.Errorf("no person is asked to do something: %+v", is.Next)
	}
}

func finding(r health.Reason, detail string) health.Finding {
	return health.Finding{Reason: r, Signal: health.Signal{Reason: detail}}
}

// The v1beta1 condition has reasons of its own.
func TestAFailedHealthCheckHasTheReasonsOfBothFlavours(t *testing.T) {
	for reason, want := range map[health.Reason]string{
		health.MarkedByHand: "HasRemediateMachineAnnotation", health.MachineFailed: "MachineHasFailure", health.MachineCondition: "UnhealthyMachine",
		health.NodeDeleted: "NodeNotFound", health.NodeStartup: "NodeStartupTimeout", health.NodeCondition: "UnhealthyNode",
	} {
		m := written(a("m", health.Unhealthy).Machine, []health.Finding{finding(reason, "bad")}, noon, setUnhealthy)
		if c := v1beta1conditions.Get(m, clusterv1.MachineHealthCheckSucceededV1Beta1Condition); c == nil || c.Status != "False" || c.Reason != want {
			t.Errorf("%s: the older flavour is %v, want False %s", reason, c, want)
		}
	}
}

func TestWhatIsForgottenIsForgottenInBothFlavours(t *testing.T) {
	m := a("m", health.Unhealthy).Machine
	m = written(m, nil, noon, setUnhealthy, ownerAsked)
	m = written(m, nil, noon, setHealthy)
	next := written(m, nil, noon, setUnhealthy, ownerForgot)
	if ConditionOf(next, clusterv1.MachineOwnerRemediatedCondition) != nil || v1beta1conditions.Get(next, clusterv1.MachineOwnerRemediatedV1Beta1Condition) != nil {
		t.Errorf("%+v, want no OwnerRemediated", next.Status)
	}
}

func TestWhatIsSaidTwiceIsWrittenOnce(t *testing.T) {
	due := []health.Finding{finding(health.NodeCondition, "bad")}
	for name, all := range map[string][]metav1.Condition{
		"healthy": {setHealthy, requestGone}, "unhealthy": {setUnhealthy, ownerAsked}, "requested": {setUnhealthy, requested},
		"refused": append(slices.Clip(notCreated), setUnhealthy),
	} {
		t.Run(name, func(t *testing.T) {
			m := a("m", health.Unhealthy).Machine
			first := written(m, due, noon, all...)
			if first == nil {
				t.Fatal("nothing was said")
			}
			if again := written(first, due, noon.Add(time.Hour), all...); again != nil {
				t.Errorf("it is said again: %s", cmp.Diff(first.Status, again.Status))
			}
			if len(m.Status.Conditions) != 0 || m.Status.Deprecated != nil {
				t.Error("the machine of the cache was changed")
			}
		})
	}
}

func TestSaidHealthyAgreesWithWhatWouldBeWritten(t *testing.T) {
	for name, m := range map[string]*clusterv1.Machine{
		"nothing was said":             a("m", health.Healthy).Machine,
		"it was said":                  a("m", health.Healthy, markedBefore).Machine,
		"only one flavour was said":    a("m", health.Healthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason)).Machine,
		"the opposite was said":        a("m", health.Healthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode")).Machine,
		"a request is left":            a("m", health.Healthy, markedBefore, withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "X")).Machine,
		"another generation was meant": a("m", health.Healthy, markedBefore, func(t *Target) { t.Machine.Generation++ }).Machine,
	} {
		t.Run(name, func(t *testing.T) {
			if writes := written(m, nil, noon, setHealthy, requestGone) != nil; writes == MarkedHealthy(m) {
				t.Errorf("MarkedHealthy() = %t, and writing it changes something: %t", MarkedHealthy(m), writes)
			}
		})
	}
	if n := testing.AllocsPerRun(100, func() { MarkedHealthy(a1) }); n != 0 {
		t.Errorf("MarkedHealthy() allocates %v times; it is called for each machine in each reconcile", n)
	}
}

var a1 = a("m", health.Healthy, markedBefore).Machine

func TestReleasingRemovesOnlyTheConditionsOfChecks(t *testing.T) {
	m := a("m", health.Unhealthy, withCondition(clusterv1.ReadyCondition, metav1.ConditionFalse, "X"),
		withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, "UnhealthyNode"), askedOwner,
		withCondition(clusterv1.MachineExternallyRemediatedCondition, metav1.ConditionFalse, "X")).Machine
	next := releasedCopy(m)
	if len(next.Status.Conditions) != 1 || next.Status.Conditions[0].Type != clusterv1.ReadyCondition {
		t.Errorf("left are %v, want Ready alone", next.Status.Conditions)
	}
	answered := a("m", health.Unhealthy, withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "RemediationDeferred")).Machine
	if !sameConditions(releasedCopy(answered), answered) {
		t.Error("the owner's own answer was removed")
	}
	cycled := a("m", health.Unhealthy, withCondition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, mendv1.PowerCycleFailedReason), askedOwner).Machine
	if Marked(cycled) || !sameConditions(releasedCopy(cycled), cycled) {
		t.Error("the condition of a power cycle, which no check set, was removed")
	}
}

// Owners answer in the condition, separately in each API version. kubemend must not reset it while they work.
func TestTheAnswerOfAnOwnerIsNotOverwritten(t *testing.T) {
	kind, waits := clusterv1.MachineOwnerRemediatedCondition, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason
	deferred := func(t *Target) {
		v1beta1conditions.MarkFalse(t.Machine, clusterv1.ConditionType(kind), "RemediationDeferred", clusterv1.ConditionSeverityInfo, "")
	}
	for name, tc := range map[string]struct {
		before        []func(*Target)
		want, v1beta1 string
	}{
		"it was never asked":                       {nil, waits, waits},
		"it has done it before":                    {[]func(*Target){withCondition(kind, metav1.ConditionTrue, "Done")}, waits, waits},
		"it has said why it waits":                 {[]func(*Target){withCondition(kind, metav1.ConditionFalse, "RemediationDeferred")}, "RemediationDeferred", waits},
		"it has said so in the older flavour":      {[]func(*Target){deferred}, waits, "RemediationDeferred"},
		"it has done it before in the older alone": {[]func(*Target){func(t *Target) { v1beta1conditions.MarkTrue(t.Machine, clusterv1.ConditionType(kind)) }}, waits, waits},
	} {
		next := written(a("m", health.Unhealthy, tc.before...).Machine, nil, noon, setUnhealthy, ownerAsked)
		if c := ConditionOf(next, kind); c == nil || c.Status != metav1.ConditionFalse || c.Reason != tc.want {
			t.Errorf("%s: got %v, want False %s", name, c, tc.want)
		}
		if c := v1beta1conditions.Get(next, clusterv1.ConditionType(kind)); c == nil || c.Status != corev1.ConditionFalse || c.Reason != tc.v1beta1 {
			t.Errorf("%s: the older flavour is %v, want False %s", name, c, tc.v1beta1)
		}
	}
}

// Users and other tools read these texts in conditions, so they are exactly those of Cluster API.
func TestTheMessageOfAFailedHealthCheck(t *testing.T) {
	type findings []health.Finding
	condition := func(r health.Reason, source health.Source, is string) health.Finding {
		return health.Finding{Reason: r, Limit: time.Minute, Signal: health.Signal{Source: source, Type: is, Status: "False", Reason: "Bad"}}
	}
	m, mText := condition(health.MachineCondition, health.OnMachine, "M"), "Condition M on Machine is reporting status False with reason Bad for more than 1m0s"
	n, nText := condition(health.NodeCondition, health.OnNode, "N"), "Condition N on Node is reporting status False with reason Bad for more than 1m0s"
	gone := health.Finding{Reason: health.NodeDeleted, Node: "a"}
	for name, tc := range map[string]struct {
		due              findings
		message, v1beta1 string
	}{
		"a mark by hand is named alone": {
			findings{{Reason: health.MarkedByHand}, n},
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation", "Marked for remediation via remediate-machine annotation",
		},
		"machine conditions come before those of the node": {
			findings{m, n}, "Health check failed:\n  * " + mText + "\n  * " + nText, mText + "; " + nText,
		},
		"a deleted node has no message in v1beta1": {
			findings{gone}, "Health check failed:\n  * Node a has been deleted", "",
		},
		"unless there is a machine condition too": {
			findings{m, gone},
			"Health check failed:\n  * " + mText + "\n  * Node a has been deleted", mText + "; Node a has been deleted",
		},
		"a late node": {
			findings{{Reason: health.NodeStartup, Limit: 10 * time.Minute}},
			"Health check failed:\n  * Node failed to report startup in 10m0s", "Node failed to report startup in 10m0s",
		},
		"an unhealthy node": {findings{n, n}, "Health check failed:\n  * " + nText + "\n  * " + nText, nText + "; " + nText},
		"a final failure": {
			findings{{Reason: health.MachineFailed, Failure: "FailureReason: CreateError"}},
			"Health check failed:\n  * FailureReason: CreateError", "FailureReason: CreateError",
		},
		"nothing was found": {},
	} {
		if message, v1beta1 := healthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}
