package health

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestTwoProviderIDsDecideWhoseANodeIsAndElseItsName(t *testing.T) {
	for _, tc := range []struct {
		machine, name, node string
		own                 bool
	}{
		{"azure://m/1", "other", "azure://M/1", true},
		{"azure://m/1", "n", "azure://m/2", false},
		{"azure://m/1", "n", "", true},
		{"", "n", "azure://m/1", true},
		{"azure://m/1", "other", "", false},
	} {
		machine, node := &clusterv1.Machine{}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: tc.name}}
		machine.Spec.ProviderID, machine.Status.NodeRef.Name, node.Spec.ProviderID = tc.machine, "n", tc.node
		if IsNodeOf(machine, node) != tc.own {
			t.Errorf("node %s with %q is that of a machine with node n and %q: %t", tc.name, tc.node, tc.machine, !tc.own)
		}
	}
}
