package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Machine Deletion Remediation says Succeeded when the Machine is gone, long before its new node is there.
func TestNodesThatAreNotReplacedYetCountForTheThreshold(t *testing.T) {
	k := ten(t)
	for _, fail := range [][]string{{"n0", "n1", "n2", "n3"}, {"n4", "n5"}, {"n6"}, {"n7"}} {
		for _, n := range fail {
			k.turn(n, corev1.ConditionUnknown)
		}
		k.after(300 * time.Second)
		k.settle("nhc")
		for _, obj := range k.objects() {
			k.goneNode(obj.GetName())
		}
		k.says(nhcv1.NodeDeletionExpectedCondition, "True", "MachineDeleted", "")
		k.settle("nhc")
		k.after(time.Minute)
		k.answers("Replace", nhcv1.SucceededCondition, "True")
		k.settle("nhc")
		k.restart()
	}
	if len(k.made) != 4 {
		t.Errorf("%d of 10 nodes are replaced at once, none is back, 4 may be away: %v", len(k.made), k.made)
	}
	if is := k.look("nhc").Counts; is.Total() != 10 || is.InFlight != 4 || is.Unhealthy != 8 {
		t.Errorf("population %+v", is)
	}
}

// goneNode removes a node, if it is there.
func (k *fixture) goneNode(name string) { _ = k.client.Delete(k.t.Context(), node(name, nil)) }
