package hostremediation

import (
	"testing"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// A reset takes seconds, and its node is Ready until then: nothing has succeeded before it has booted.
func TestAHostThatIsRebootedIsNotWellBeforeItsNodeHasBooted(t *testing.T) {
	rem := &mendv1.HostRemediation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "victim", UID: "r", OwnerReferences: ofMachine("victim", "machine-uid")}}
	rem.Spec.Strategy = ownStrategy
	h := &bmov1alpha1.BareMetalHost{Status: bmov1alpha1.BareMetalHostStatus{PoweredOn: true}}
	h.Spec.DisablePowerOff = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}}
	node.Spec.ProviderID = "metal3://victim"
	s := sceneOf(t, Own, h, node, rem)
	s.ready("before")
	is := func() powercycle.State {
		got := &mendv1.HostRemediation{}
		if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil {
			t.Fatal(err)
		}
		return remembered(got).State
	}
	s.reconcile("victim", 6, nil)
	s.receipt() // the ask is taken
	s.reconcile("victim", 6, nil)
	if state := is(); state != powercycle.Booting {
		t.Errorf("before the node has booted it is %s", state)
	}
	s.ready("after")
	s.reconcile("victim", 6, nil)
	if state := is(); state != powercycle.Succeeded {
		t.Errorf("after the node has booted it is %s", state)
	}
}
