package health

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestCapitalsInAProviderIDMakeNoOtherNode(t *testing.T) {
	machine, node := &clusterv1.Machine{}, &corev1.Node{}
	machine.Spec.ProviderID, node.Spec.ProviderID = "azure://m/1", "azure://M/1"
	if !IsNodeOf(machine, node) {
		t.Error("the node of Azure is not that of its machine")
	}
}
