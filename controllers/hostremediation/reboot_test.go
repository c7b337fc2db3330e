package hostremediation

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kubemend/kubemend/baremetal/remediation"
)

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

// Who does not know the boot of a node cannot tell later that it has booted.
func TestAHostIsNotRebootedBeforeTheBootOfItsNodeIsKnown(t *testing.T) {
	k := fixtureOf(t)
	k.host.Spec.DisablePowerOff = true
	k.r.Clusters = answering{err: clustercache.ErrClusterNotConnected}
	k.pass()
	if len(k.did) > 0 {
		t.Fatal("it is asked to reboot before the boot of its node was seen")
	}
	k.r.Clusters = boots("before", corev1.ConditionTrue)
	k.obeys()
	k.pass()
	record := remediation.Remembered(k.remediation())
	if !slices.Contains(k.did, reboots) || record.BootID != "before" {
		t.Errorf("%q is done, with boot %q remembered; want it asked to reboot, and the boot that the node has", k.did, record.BootID)
	}
	if record.HostUID != k.host.UID || record.HostUID == "" { // one that is registered anew is not handed to the owner
		t.Errorf("%q is asked to reboot, and %q remembered", k.host.UID, record.HostUID)
	}
}
