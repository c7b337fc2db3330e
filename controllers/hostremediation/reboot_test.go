package hostremediation

import (
	"context"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
)

// rebootedScene has a host that can only be rebooted, and whose node is Ready under the boot "before".
func rebootedScene(t *testing.T, rem client.Object) *scene {
	t.Helper()
	h := &bmov1alpha1.BareMetalHost{Status: bmov1alpha1.BareMetalHostStatus{PoweredOn: true}}
	h.Spec.DisablePowerOff = true
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{UID: "n"}}
	node.Spec.ProviderID = "metal3://victim"
	s := sceneOf(t, remediation.Own, h, node, rem)
	s.ready("before")
	return s
}

// unseenYet is a workload cluster whose nodes are not seen yet.
type unseenYet struct{ plainCluster }

func (unseenYet) View(context.Context, client.ObjectKey, time.Time, ...clustercache.Watcher) (workload.View, error) {
	return workload.View{}, clustercache.ErrClusterNotConnected
}

// Who does not know the boot of a node cannot tell later that it has booted.
func TestAHostIsNotRebootedBeforeTheBootOfItsNodeIsKnown(t *testing.T) {
	rem := remembering("victim", "r", ofMachine("victim", "machine-uid"), "")
	s := rebootedScene(t, rem)
	seen := s.r.Clusters
	s.r.Clusters = unseenYet{}
	asked := func() bool { _, is := s.host().Annotations[infrav1.RebootAnnotation]; return is }
	s.reconcile("victim", 8, nil)
	if asked() {
		t.Fatal("it is asked to reboot before the boot of its node was seen")
	}
	s.r.Clusters = seen
	s.reconcile("victim", 3, nil)
	got := &mendv1.HostRemediation{}
	if err := s.here.Get(t.Context(), client.ObjectKeyFromObject(rem), got); err != nil {
		t.Fatal(err)
	}
	if boot := remediation.Remembered(got).BootID; !asked() || boot != "before" {
		t.Errorf("asked to reboot: %t, with boot %q remembered; want it asked, and the boot that the node has", asked(), boot)
	}
}

// A condition that a NodeHealthCheck has asked about enqueues the remediation when it is over; a heartbeat does not.
func TestAConditionOfANodeThatChangesIsHeard(t *testing.T) {
	was := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "KernelDeadlock", Status: "True"}}}}
	is, later := was.DeepCopy(), was.DeepCopy()
	is.Status.Conditions[1].Status = corev1.ConditionFalse
	later.Status.Conditions[1].LastHeartbeatTime = metav1.NewTime(noon)
	if !nodeChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: is}) {
		t.Error("the condition is over, and nothing is enqueued")
	}
	if nodeChanges().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: was, ObjectNew: later}) {
		t.Error("a heartbeat is heard")
	}
}
