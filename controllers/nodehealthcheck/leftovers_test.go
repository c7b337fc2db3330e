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

func TestAnotherChecksConfirmationIsLeftToIt(t *testing.T) {
	one := check("one", func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: -time.Second} })
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), one, check("two"))...)
	k.bad("b")
	k.settle("one")
	k.turn("b", corev1.ConditionTrue)
	n := k.node("b")
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, nhcv1.ConfirmedHealthyAnnotation, "")
	k.update(n)
	k.settle("two")
	k.settle("one")
	k.wants("it was confirmed to the one that waits for it")
}
