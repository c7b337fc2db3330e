package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// nodeAway is for how long a node that is gone is waited for, as the docs promise.
const nodeAwayFor = 10 * time.Minute

// clinging is a check with two steps, and a node whose first remediation has begun: its remediator has a finalizer on its request.
func clinging(t *testing.T) *fixture {
	t.Helper()
	k := newFixture(t, append(workers("a", "b", "c", "d", "e"), template("Reboot", "reboot", false), template("Replace", "replace", false),
		check("nhc", ladder(refTo("Reboot", "reboot"), refTo("Replace", "replace"))))...)
	badB(k)
	k.atWork()
	k.settle("nhc")
	return k
}

// lists are the remediations of the one node that the status lists, by the kinds of their requests; those that were given up with a star.
func (k *fixture) lists() []string {
	k.t.Helper()
	var kinds []string
	for _, n := range k.check("nhc").Status.UnhealthyNodes {
		for _, is := range n.Remediations {
			kind := is.Resource.Kind
			if is.TimedOut != nil {
				kind += "*"
			}
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

func (k *fixture) wantsListed(want ...string) {
	k.t.Helper()
	if got := k.lists(); !slices.Equal(got, want) {
		k.t.Fatalf("the status lists %v, want %v", got, want)
	}
}

// The first step had 5 minutes, of which it took 2 until the node was healthy.
func TestANewFailureBeginsWithTheRequestThatClingsToItsFinalizer(t *testing.T) {
	for name, away := range map[string]func(*fixture){
		"the manager sees all of it": func(*fixture) {},
		"the manager is restarted":   (*fixture).restart,
	} {
		t.Run(name, func(t *testing.T) {
			k := clinging(t)
			k.after(2 * time.Minute)
			k.turn("b", corev1.ConditionTrue)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(24 * time.Hour)
			k.turn("b", corev1.ConditionUnknown)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(300 * time.Second)
			away(k)
			k.settle("nhc")
			k.wantsListed("Reboot")
			k.after(150 * time.Second) // the lease is renewed
			k.settle("nhc")
			k.after(29 * time.Second)
			away(k)
			k.settle("nhc")
			k.wants("it has the three minutes that it had left", "Reboot/b")
			k.after(time.Second)
			k.settle("nhc")
			k.wants("they are over", "Reboot/b", "Replace/b")
			k.wantsListed("Reboot*", "Replace")
			if _, told := k.objects()[0].GetAnnotations()[nhcv1.TimedOutAnnotation]; !told {
				t.Error("its remediator was not told to stop")
			}
		})
	}
}

func TestARequestThatClingsIsMadeAgainWhenItIsGone(t *testing.T) {
	k := clinging(t)
	k.after(2 * time.Minute)
	k.turn("b", corev1.ConditionTrue)
	k.settle("nhc")
	badB(k)
	k.after(time.Minute)
	k.over()
	k.settle("nhc")
	k.wants("the rest of its step's time is not over", "Reboot/b")
	k.after(2 * time.Minute)
	k.settle("nhc")
	k.wants("now it is", "Reboot/b", "Replace/b")
}

// Poison Pill deletes the Node while it reboots, and makes it again; it has a finalizer on its request, and answers nothing.
func TestARequestStaysWhileItsRemediatorHasTakenTheNodeAway(t *testing.T) {
	k := clinging(t)
	k.remove(node("b", nil))
	k.settle("nhc")
	k.after(nodeAwayFor - time.Second)
	k.settle("nhc")
	if k.objects()[0].GetDeletionTimestamp() != nil {
		t.Fatal("the request was deleted while its remediator was at work")
	}
	again := node("b", nil)
	again.UID = "made-again"
	k.create(again)
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	k.after(300 * time.Second)
	k.settle("nhc")
	k.wants("it did not help", "Reboot/b", "Replace/b")
}

// The remediator never releases the request. (Self Node Remediation does, when it is notified to stop; Fence Agents Remediation does not.)
func TestTheNextStepComesForANodeThatWasDeletedAndMadeAgain(t *testing.T) {
	k := clinging(t)
	k.remove(node("b", nil))
	k.settle("nhc")
	k.after(nodeAwayFor)
	k.settle("nhc")
	k.create(node("b", nil))
	k.turn("b", corev1.ConditionUnknown)
	k.settle("nhc")
	k.after(300 * time.Second)
	k.settle("nhc")
	k.wants("the first step was notified to stop", "Reboot/b", "Replace/b")
}
