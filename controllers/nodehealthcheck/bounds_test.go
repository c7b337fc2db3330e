package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestARequestThatClingsToAHealthyMemberBlocksTheOthersForAWhileOnly(t *testing.T) {
	k := newFixture(t, five(check("nhc"))...)
	k.bad("m0")
	k.settle("nhc")
	k.atWork()
	k.turn("m0", corev1.ConditionTrue)
	k.settle("nhc")
	k.bad("m1")
	k.after(controlplane.ReplacementPatience - 301*time.Second)
	k.reconciles("nhc")
	k.wants("its remediator may be at work", "Reboot/m0")
	k.after(time.Second + time.Minute)
	k.reconciles("nhc")
	k.wants("m0 is healthy, and no remediator was at work for long", "Reboot/m0", "Reboot/m1")
}

func TestAManagerThatIsStartedAgainAndAgainBeginsAfterAll(t *testing.T) {
	k := watching(t, classic)
	k.bad("b")
	k.restart()
	for range 4 {
		k.settle("nhc")
		k.wants("kubelets have had no time", []string{}...)
		k.after(grace - 5*time.Second)
		k.restart()
	}
	k.settle("nhc")
	k.wants("they have had", "Reboot/b")
}

func TestARemediatorThatMayNotBeNotifiedIsReportedOnce(t *testing.T) {
	k := newFixture(t, append(workers("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	badB(k)
	k.atWork()
	k.remove(node("b", nil))
	k.settle("nhc")
	k.after(nodeAway)
	k.fails = func(verb string, obj client.Object) error {
		if verb == "patch" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "reboots"}, obj.GetName(), nil)
		}
		return nil
	}
	k.reconciles("nhc")
	before := k.writes
	k.reconciles("nhc")
	if k.writes != before {
		t.Errorf("%d writes in a steady state", k.writes-before)
	}
}

func TestARequestOfAMemberThatIsGoneBlocksTheOthersForAWhileOnly(t *testing.T) {
	for machineStays, wait := range map[bool]time.Duration{false: remediationrequest.ClingingFor, true: controlplane.ReplacementPatience} {
		k := newFixture(t, five(check("nhc"))...)
		k.bad("m0")
		k.settle("nhc")
		k.atWork()
		k.answers("Reboot", nhcv1.SucceededCondition, "False")
		if machineStays {
			k.ofMachine()
			k.create(&clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", UID: "m-uid"}})
		}
		k.remove(k.node("m0"))
		k.settle("nhc")
		end := k.clock.Now().Add(wait)
		k.bad("m1")
		k.after(end.Sub(k.clock.Now()) - time.Second)
		k.settle("nhc")
		k.wants("m0 may be coming back", "Reboot/m0")
		k.after(time.Second)
		k.settle("nhc")
		k.wants("it has not", "Reboot/m0", "Reboot/m1")
	}
}
