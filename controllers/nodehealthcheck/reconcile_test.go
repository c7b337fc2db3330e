package nodehealthcheck

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestANodeIsRemediatedAndReleased(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.settle("nhc")
	k.turn("b", corev1.ConditionUnknown)
	k.after(299 * time.Second)
	k.settle("nhc")
	if got := k.requests(); len(got) != 0 {
		t.Fatalf("requested before the time is over: %v", got)
	}
	k.after(time.Second)
	k.settle("nhc")
	if diff := cmp.Diff([]string{"Reboot/b"}, k.requests()); diff != "" {
		t.Fatal(diff)
	}
	is := k.check("nhc")
	if is.Status.Phase != nhcv1.PhaseRemediating || *is.Status.HealthyNodes != 2 || *is.Status.ObservedNodes != 3 {
		t.Errorf("status %+v", is.Status)
	}
	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.settle("nhc")
	if got := append(k.requests(), k.leases()...); len(got) != 0 {
		t.Errorf("orphaned: %v", got)
	}
	want := []string{
		"Normal Enabled No issues found, NodeHealthCheck is enabled.",
		`Normal DetectedUnhealthy Node matches unhealthy condition. Node "b", condition type "Ready", condition status "Unknown"`,
		"Normal RemediationCreated Created remediation object for node b",
		"Normal RemediationRemoved Deleted remediation CR of kind Reboot with name b",
	}
	if diff := cmp.Diff(want, k.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// bad makes a node unhealthy, long enough for the default conditions.
func (k *fixture) bad(node string) {
	k.turn(node, corev1.ConditionUnknown)
	k.after(300 * time.Second)
}

func (k *fixture) wants(what string, want ...string) {
	k.t.Helper()
	if diff := cmp.Diff(want, k.requests(), cmpopts.EquateEmpty()); diff != "" {
		k.t.Fatalf("%s: requests (-want +got):\n%s", what, diff)
	}
}

func (k *fixture) told(reason string) bool {
	return slices.ContainsFunc(k.events(), func(e string) bool { return strings.Contains(e, " "+reason+" ") })
}

func TestWhatHasSucceededBeginsAnewWhenTheNodeIsBadOnceMore(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.HealthyDelay = &metav1.Duration{Duration: time.Hour}
	}))...)
	k.bad("b")
	k.settle("nhc")
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.after(time.Second)
	k.settle("nhc")
	first := k.objects()[0].GetUID()
	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.settle("nhc")
	k.wants("it is delayed", "Reboot/b")
	k.bad("b")
	k.settle("nhc")
	k.wants("it has begun anew", "Reboot/b")
	if k.objects()[0].GetUID() == first {
		t.Error("the request that had succeeded is still there, and nothing is done about the node")
	}
}

func TestARequestThatSomebodyDeletesIsMadeAgainButNotAtOnce(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.bad("b")
	k.settle("nhc")
	for range 3 {
		k.wants("it is asked for", "Reboot/b")
		if err := k.client.Delete(t.Context(), k.objects()[0]); err != nil {
			t.Fatal(err)
		}
		k.after(time.Second)
		k.settle("nhc")
		k.wants("a second later it is not")
		k.after(remake)
		k.settle("nhc")
	}
}

func TestRequestsThatMayNotBeReadAreNotTakenForNone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.bad("b")
	k.settle("nhc")
	k.turn("b", corev1.ConditionTrue)
	k.deny("Reboot")
	k.restart()
	k.settle("nhc")
	k.wants("it is left alone", "Reboot/b")
	is := k.check("nhc")
	if c := meta.FindStatusCondition(is.Status.Conditions, nhcv1.DisabledCondition); c.Reason != nhcv1.TemplateForbiddenReason {
		t.Errorf("Disabled says %+v", c)
	}
	if *is.Status.HealthyNodes != 2 || len(is.Status.UnhealthyNodes) != 1 || len(is.Status.UnhealthyNodes[0].Remediations) != 1 {
		t.Errorf("the request that cannot be read is forgotten: %+v", is.Status)
	}
	if len(k.leases()) != 1 {
		t.Error("its lease is given back")
	}
	k.denied = ""
	k.after(readRetry)
	k.settle("nhc")
	k.wants("it can be read again")
}

func TestNodesThatAreNotRemediated(t *testing.T) {
	overlapping := template("Reboot", "b", false)
	overlapping.SetKind("Reboot")
	for name, tc := range map[string]struct {
		objects []client.Object
		label   map[string]string
		says    string
	}{
		"C60: one that is excluded": {
			label: map[string]string{nhcv1.ExcludeLabel: "true"}, says: "Remediation skipped on node b: node has Exclude from Remediation label",
		},
		"W24: one for which somebody else made a request": {
			objects: []client.Object{overlapping},
			says:    "Skipped remediation of node: b, because Reboot remediators/b exists and was not made by this NodeHealthCheck",
		},
		"C42: one whose lease somebody else holds": {
			objects: []client.Object{named(leaseOf("NMO", 20*time.Minute, 0, 0), "node-b")},
			says:    "Skipped remediation of node: b, because node lease is already taken by NMO",
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))
			k := newFixture(t, append(objects, tc.objects...)...)
			k.label("b", tc.label)
			k.bad("b")
			made := len(k.made)
			k.settle("nhc")
			k.settle("nhc")
			if len(k.made) > made {
				t.Error("it is remediated")
			}
			told := slices.DeleteFunc(k.events(), func(e string) bool { return !strings.Contains(e, nhcv1.EventRemediationSkipped) })
			if diff := cmp.Diff([]string{"Warning RemediationSkipped " + tc.says}, told); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			is := k.check("nhc")
			if is.Status.Phase != nhcv1.PhaseEnabled || len(is.Status.UnhealthyNodes) != 1 || len(is.Status.UnhealthyNodes[0].Remediations) > 0 {
				t.Errorf("status %+v", is.Status)
			}
		})
	}
}

func TestTwoTemplatesOfOneKindWhoseRemediatorCopesWithOneOnly(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Reboot", "other", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Reboot", "other"))))...)
	k.bad("b")
	k.settle("nhc")
	k.after(5 * time.Minute)
	k.settle("nhc")
	k.wants("the second one would have the name of the first", "Reboot/b")
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Error("no event says why")
	}
}

func TestAPauseHoldsWhatIsNewAndNothingElse(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.bad("b")
	k.settle("nhc")
	is := k.check("nhc")
	is.Spec.PauseRequests = []string{"upgrade", "me"}
	k.update(is)
	k.bad("c")
	k.settle("nhc")
	k.wants("no new node, and no next template", "Reboot/b")
	is = k.check("nhc")
	if is.Status.Phase != nhcv1.PhasePaused || is.Status.Reason != "NHC is paused: upgrade,me" || *is.Status.HealthyNodes != 3 {
		t.Errorf("status %+v", is.Status)
	}
	if is.Status.UnhealthyNodes[0].Remediations[0].TimedOut == nil {
		t.Error("its time is over all the same")
	}
	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.settle("nhc")
	k.wants("W12: what is over ends")
	is = k.check("nhc")
	is.Spec.PauseRequests = nil
	k.update(is)
	k.settle("nhc")
	k.wants("then the other one begins", "Reboot/c")
}

func TestADelayBeginsAnewWhenTheNodeFlaps(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.HealthyDelay = &metav1.Duration{Duration: time.Minute}
	}))...)
	delayed := func() bool {
		n := k.check("nhc").Status.UnhealthyNodes
		return len(n) == 1 && ptr.Deref(n[0].HealthyDelayed, false)
	}
	k.bad("b")
	k.settle("nhc")
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	if !delayed() {
		t.Error("W6: it is not said that it is delayed")
	}
	k.after(50 * time.Second)
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	if delayed() {
		t.Error("W6: it is said to be delayed though it is not well")
	}
	k.after(5 * time.Second)
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	k.after(59 * time.Second)
	k.settle("nhc")
	k.wants("W5: 59 s after the second recovery", "Reboot/b")
	k.after(time.Second)
	k.settle("nhc")
	k.wants("a minute after it")
}

func TestAStormIsOverWithoutAnyNodeThatIsUnhealthy(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.StormCooldownDuration = &metav1.Duration{Duration: time.Minute}
	}))...)
	storm := func(kind string) bool { return meta.IsStatusConditionTrue(k.check("nhc").Status.Conditions, kind) }
	k.turn("a", corev1.ConditionUnknown)
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	if storm(nhcv1.StormActiveCondition) {
		t.Error("nodes that are not due yet make no storm")
	}
	k.after(300 * time.Second)
	k.settle("nhc")
	k.wants("too many are bad")
	if !storm(nhcv1.StormActiveCondition) {
		t.Error("no storm")
	}
	k.turn("a", corev1.ConditionTrue)
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	if !storm(nhcv1.StormCooldownActiveCondition) {
		t.Error("no cooldown")
	}
	k.after(time.Minute)
	k.settle("nhc")
	if storm(nhcv1.StormActiveCondition) || storm(nhcv1.StormCooldownActiveCondition) {
		t.Error("W11: the storm is not over")
	}
}

func TestWhatGoesOnIsReportedAgainWhenItsEventIsGone(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.label("b", map[string]string{nhcv1.ExcludeLabel: "true"})
	k.bad("b")
	k.settle("nhc")
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Fatal("no event says that it is skipped")
	}
	k.after(59 * time.Minute)
	k.settle("nhc")
	if k.told(nhcv1.EventRemediationSkipped) {
		t.Error("it is reported while the event is there")
	}
	k.after(time.Minute)
	k.settle("nhc")
	if !k.told(nhcv1.EventRemediationSkipped) {
		t.Error("after an hour nothing says why it is left alone")
	}
}

func named(lease *coordinationv1.Lease, name string) *coordinationv1.Lease {
	lease.Namespace, lease.Name = nhcv1.DefaultLeaseNamespace, name
	return lease
}

func TestARemediatorThatDeletesItsRequestsDoesNotHoldTheLadderUp(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	k.bad("b")
	k.settle("nhc")
	for range 5 {
		for _, obj := range k.objects() {
			if obj.GetKind() == "Reboot" {
				if err := k.client.Delete(t.Context(), obj); err != nil {
					t.Fatal(err)
				}
			}
		}
		k.settle("nhc")
		k.after(remake)
		k.settle("nhc")
	}
	k.wants("the first step's five minutes are over", "Replace/b")
	if n := len(k.check("nhc").Status.UnhealthyNodes[0].Remediations); n > 4 {
		t.Errorf("the status remembers %d remediations", n)
	}
}

func TestARequestWithoutItsLabelsIsOneOfTheControlPlaneAllTheSame(t *testing.T) {
	objects := []client.Object{template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) { s.MaxUnhealthy = ptr.To(intstr.FromInt32(5)) })}
	for _, name := range []string{"m0", "m1", "m2", "m3", "m4"} {
		objects = append(objects, member(name))
	}
	k := newFixture(t, objects...)
	k.bad("m0")
	k.settle("nhc")
	obj := k.objects()[0]
	obj.SetLabels(nil)
	k.update(obj)
	k.bad("m1")
	k.settle("nhc")
	k.wants("another one waits", "Reboot/m0")
}

func TestWhatSucceededAtNoTimeIsNoRelapse(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.bad("b")
	k.settle("nhc")
	obj := k.objects()[0]
	if err := unstructured.SetNestedSlice(obj.Object, []any{map[string]any{"type": "Succeeded", "status": "True"}}, "status", "conditions"); err != nil {
		t.Fatal(err)
	}
	k.update(obj)
	k.settle("nhc")
	if len(k.made) != 1 {
		t.Errorf("it was made %d times", len(k.made))
	}
}
