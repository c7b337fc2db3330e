package nodehealthcheck

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestTheSlotIsHeldAgainstItsOwnNodeToo(t *testing.T) {
	var s slot
	if again := s.take("a", epoch, epoch); !again.IsZero() {
		t.Fatalf("refused until %s", again)
	}
	if again := s.take("a", epoch, epoch); !again.After(epoch) {
		t.Error("two checks make a request for one node at the same time, and the first one to fail gives up the slot of the other")
	}
}

func TestARequestThatMayHaveBeenMadeKeepsTheOtherMembersWaiting(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
	reconcile := func(check string) {
		t.Helper()
		if _, err := k.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Name: check}}); err != nil {
			t.Fatal(err)
		}
	}
	k.turn("m0", corev1.ConditionUnknown)
	k.turn("m1", corev1.ConditionUnknown)
	k.settle("one")
	k.settle("two")
	k.after(300 * time.Second)
	asked := 0
	k.fails = func(verb string, obj client.Object) error {
		if _, is := obj.(*unstructured.Unstructured); is && verb == "create" {
			asked++
			return errors.New("context deadline exceeded") // and it is made all the same, a moment later
		}
		return nil
	}
	reconcile("one")
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	for range 20 {
		k.after(time.Second)
		reconcile("two")
	}
	if asked != 1 {
		t.Errorf("%d requests may be on their way", asked)
	}
	k.after(time.Minute)
	reconcile("two")
	if asked != 2 {
		t.Errorf("asked %d times: what has not appeared by now is waited for no longer", asked)
	}
}

func TestARefusalSaysNothingOfARequestThatMayAppear(t *testing.T) {
	var s slot
	s.take("a", epoch, epoch)
	s.leave(epoch, true, false)
	s.take("a", epoch, epoch.Add(time.Second))
	s.leave(epoch.Add(time.Second), false, true)
	if again := s.take("b", epoch.Add(2*time.Second), epoch.Add(2*time.Second)); !again.Equal(epoch.Add(unsure)) {
		t.Errorf("another node waits until %s", again)
	}
}
