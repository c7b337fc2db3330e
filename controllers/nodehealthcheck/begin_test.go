package nodehealthcheck

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestARequestThatMayHaveBeenMadeKeepsTheOtherMembersWaiting(t *testing.T) {
	one, two := check("one"), check("two")
	one.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m0"}
	two.Spec.Selector.MatchLabels = map[string]string{"kubernetes.io/hostname": "m1"}
	k := newFixture(t, five(one, two)...)
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
	k.reconcile("one")
	if asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	for range 20 {
		k.after(time.Second)
		k.reconcile("two")
	}
	if asked != 1 {
		t.Errorf("%d requests may be on their way", asked)
	}
	k.after(time.Minute)
	k.reconcile("two")
	if asked != 2 {
		t.Errorf("asked %d times: what has not appeared by now is waited for no longer", asked)
	}
}
