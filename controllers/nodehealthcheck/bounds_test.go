package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
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
