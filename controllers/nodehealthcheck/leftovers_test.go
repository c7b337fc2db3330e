package nodehealthcheck

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// five is a control plane that can spare two of its nodes, with checks that allow it.
func five(checks ...*nhcv1.NodeHealthCheck) []client.Object {
	objects := []client.Object{template("Reboot", "reboot", false), template("Replace", "replace", false)}
	for _, c := range checks {
		c.Spec.MaxUnhealthy = ptr.To(intstr.FromInt32(5))
		objects = append(objects, c)
	}
	for _, name := range []string{"m0", "m1", "m2", "m3", "m4"} {
		objects = append(objects, member(name))
	}
	return objects
}

func TestWhatADeletedCheckLeavesBehindIsEnded(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.bad("b")
	k.settle("nhc")
	obj := k.objects()[0]
	obj.SetFinalizers([]string{"example.org/at-work"})
	k.update(obj)
	if err := k.client.Delete(t.Context(), k.check("nhc")); err != nil {
		t.Fatal(err)
	}
	look := func() time.Duration {
		result, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
		if err != nil {
			t.Fatal(err)
		}
		return result.RequeueAfter
	}
	if again := look(); again == 0 || k.objects()[0].GetDeletionTimestamp() == nil || len(k.leases()) != 1 {
		t.Errorf("looked at again after %v; requests %v, leases %v: want the request to end, and the lease to stay until it has", again, k.requests(), k.leases())
	}
	obj = k.objects()[0]
	obj.SetFinalizers(nil)
	k.update(obj)
	if again := look(); again != 0 || len(k.requests())+len(k.leases()) != 0 {
		t.Errorf("looked at again after %v; orphaned: %v %v", again, k.requests(), k.leases())
	}
}

func TestOrphanedRequestsOfACheckOfTheSameNameAreEnded(t *testing.T) {
	old := template("Reboot", "b", false)
	old.SetKind("Reboot")
	old.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nhc", UID: "another"}})
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"), old)...)
	k.settle("nhc")
	k.wants("W32: it is not adopted, and not left alone")
}

func TestWhatIsGoingAlreadyIsNotDeletedInEveryPass(t *testing.T) {
	old := template("Reboot", "b", false)
	old.SetKind("Reboot")
	old.SetFinalizers([]string{"example.org/at-work"})
	old.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: nhcv1.GroupVersion.String(), Kind: "NodeHealthCheck", Name: "nhc", UID: "another"}})
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"), old)...)
	deleted := 0
	k.fails = func(verb string, _ client.Object) error {
		if verb == "delete" {
			deleted++
		}
		return nil
	}
	k.reconciles("nhc")
	if deleted != 1 || k.objects()[0].GetDeletionTimestamp() == nil {
		t.Errorf("it was deleted %d times", deleted)
	}
}

func TestACheckSaysForWhichKindItWaits(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	slow := controllertest.NewFakeInformer()
	kind := schema.GroupVersionKind{Group: remediatorGroup, Version: "v1", Kind: "RebootTemplate"}
	k.informers.InformersByGVK = map[schema.GroupVersionKind]toolscache.SharedIndexInformer{kind: slow}
	k.bad("b")
	look := func() error {
		_, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: "nhc"}})
		return err
	}
	if err := look(); err != nil {
		t.Fatal("that a kind is being read is no error:", err)
	}
	k.after(slowRead + time.Second)
	if err := look(); err == nil {
		t.Error("nothing is logged")
	}
	c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != nhcv1.KindUnreadReason || !strings.Contains(c.Message, "RebootTemplate.remediator.example.org") {
		t.Errorf("the check says %+v", c)
	}
	k.wants("nothing is decided")
	slow.Synced()
	k.settle("nhc")
	k.wants("then it goes on", "Reboot/b")
	if c := conditionOf(k.check("nhc"), nhcv1.RemediationAllowedCondition); c.Status != metav1.ConditionTrue {
		t.Errorf("the check says %+v", c)
	}
}

func TestAfterARestartTheRequestsOfAllChecksAreLookedAt(t *testing.T) {
	other := check("other", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = ptr.To(refTo("Replace", "replace")) })
	other.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	mine := check("nhc")
	mine.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(other, mine)...)
	k.bad("m0")
	k.settle("other")
	k.wants("the other check has one of the control plane remediated", "Replace/m0")
	k.restart()
	k.bad("m1")
	k.settle("nhc")
	k.wants("this one waits", "Replace/m0")
}

func TestAMemberThatIsRefusedHoldsUpNoOther(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.fails = func(verb string, obj client.Object) error {
		if u, is := obj.(*unstructured.Unstructured); is && verb == "create" && u.GetName() == "m0" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "m0", nil)
		}
		return nil
	}
	k.bad("m0")
	k.turn("m1", corev1.ConditionUnknown)
	k.after(300 * time.Second)
	for range 3 {
		k.reconciles("nhc")
	}
	k.wants("the next one goes first", "Reboot/m1")
	if diff := k.leases(); len(diff) != 1 || diff[0] != "node-m1" {
		t.Errorf("leases %v, want that of m1 alone", diff)
	}
}

func TestTheControlPlaneSlotIsKeptAsLongAsItsRequestIsNotShown(t *testing.T) {
	var s slot
	at := epoch.Add
	if again := s.take("m0", at(0), at(90*time.Second)); !again.IsZero() {
		t.Fatal("it is free")
	}
	if again := s.take("m1", at(80*time.Second), at(91*time.Second)); again.IsZero() {
		t.Error("it is taken while a request is being made")
	}
	s.leave(at(100*time.Second), true, true)
	if again := s.take("m1", at(99*time.Second), at(129*time.Second)); again.IsZero() {
		t.Error("a reconcile that has read before the request was made has it")
	}
	if again := s.take("m0", at(99*time.Second), at(129*time.Second)); !again.IsZero() {
		t.Error("the node that has it may take it once more")
	}
	s.leave(at(100*time.Second), true, true)
	if again := s.take("m1", at(100*time.Second), at(200*time.Second)); !again.IsZero() {
		t.Error("a reconcile that has read after it may have it")
	}
	s.leave(at(131*time.Second), false, true)
	if again := s.take("m2", at(0), at(200*time.Second)); !again.IsZero() {
		t.Error("a node of whose request nothing came gives it back")
	}
}

func TestReconcilesOfTheSameFactsRemediateOneMember(t *testing.T) {
	refuse := func(verb string, obj client.Object) error {
		if u, is := obj.(*unstructured.Unstructured); is && verb == "create" && u.GetName() == "m0" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, "m0", nil)
		}
		return nil
	}
	for name, tc := range map[string]struct {
		fails func(string, client.Object) error
		want  string
	}{
		"W3: the second of two checks waits until it can see what the first one did": {nil, "Reboot/m0"},
		"but not for a request that was refused":                                     {refuse, "Reboot/m1"},
	} {
		t.Run(name, func(t *testing.T) {
			one, two := check("one"), check("two")
			one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
			two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
			k := newFixture(t, five(one, two)...)
			k.turn("m0", corev1.ConditionUnknown)
			k.turn("m1", corev1.ConditionUnknown)
			k.settle("one")
			k.settle("two")
			k.after(300 * time.Second)
			k.fails = tc.fails
			var seen []*observed
			for _, name := range []string{"one", "two"} {
				w, err := k.r.observe(t.Context(), k.check(name), k.r.past(name, k.clock.Now()))
				if err != nil {
					t.Fatal(err)
				}
				seen = append(seen, w)
			}
			for _, w := range seen {
				plan := nodes.Decide(w.facts)
				k.r.carryOut(t.Context(), w, &plan)
			}
			k.wants(name, tc.want)
		})
	}
}

func TestARemediatorThatTakesAwayItsNode(t *testing.T) {
	for name, tc := range map[string]struct {
		succeeded string
		after     time.Duration
		kept      bool
	}{
		"C63: is waited for":                          {"Unknown", time.Minute, true},
		"C63: until it has succeeded":                 {"True", time.Minute, false},
		"or has failed":                               {"False", time.Minute, false},
		"or its time is over":                         {"Unknown", 5 * time.Minute, false},
		"one that never said so is not waited for":    {"", time.Minute, false},
		"one that is not expected to is not, either ": {"no", time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", ladder(refTo("Reboot", "reboot"))))...)
			k.bad("b")
			k.settle("nhc")
			obj := k.objects()[0]
			said := []any{
				map[string]any{"type": nhcv1.NodeDeletionExpectedCondition, "status": map[bool]string{true: "False", false: "True"}[tc.succeeded == "no"]},
				map[string]any{"type": nhcv1.SucceededCondition, "status": tc.succeeded},
			}
			if tc.succeeded == "" {
				said = nil
			}
			if err := unstructured.SetNestedSlice(obj.Object, said, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
			k.update(obj)
			if err := k.client.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}); err != nil {
				t.Fatal(err)
			}
			k.after(tc.after)
			k.settle("nhc")
			if kept := len(k.requests()) > 0; kept != tc.kept {
				t.Errorf("its request is kept: %v, want %v", kept, tc.kept)
			}
		})
	}
}

func TestARemediatorThatTakesOffTheDelayGainsNothing(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", func(s *nhcv1.NodeHealthCheckSpec) {
		s.HealthyDelay = &metav1.Duration{Duration: time.Minute}
	}))...)
	k.bad("b")
	k.settle("nhc")
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	obj := k.objects()[0]
	obj.SetAnnotations(nil)
	k.update(obj)
	k.settle("nhc")
	k.wants("it is delayed all the same", "Reboot/b")
	k.after(time.Minute)
	k.settle("nhc")
	k.wants("and no longer than before")
}

func TestAnotherChecksConfirmationIsLeftToIt(t *testing.T) {
	one := check("one", func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: -time.Second} })
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), one, check("two"))...)
	k.bad("b")
	k.settle("one")
	k.turn("b", corev1.ConditionTrue)
	n := &corev1.Node{}
	if err := k.client.Get(t.Context(), client.ObjectKey{Name: "b"}, n); err != nil {
		t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, nhcv1.ConfirmedHealthyAnnotation, "")
	k.update(n)
	k.settle("two")
	k.settle("one")
	k.wants("it was confirmed to the one that waits for it")
}
