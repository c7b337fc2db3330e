package machinestatus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// UpdatedInPlace reports whether m is being updated in place: somebody else is at work on it, and its node may be away meanwhile. (Cluster API,
// proposal 20240807-in-place-updates: health checks must not remediate such a machine.)
func UpdatedInPlace(m *clusterv1.Machine) bool {
	for i := range m.Status.Conditions {
		if c := &m.Status.Conditions[i]; c.Type == clusterv1.MachineUpdatingCondition {
			return c.Status == metav1.ConditionTrue
		}
	}
	return false
}
