package builders

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// LongTrue is a condition that has been True for an hour.
func LongTrue(kind string) metav1.Condition {
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: since}
}

// Standing is the status of a Cluster whose infrastructure and control plane have been ready for an hour, for tests without the controllers
// that would write it.
func Standing() clusterv1.ClusterStatus {
	return clusterv1.ClusterStatus{
		Initialization: clusterv1.ClusterInitializationStatus{InfrastructureProvisioned: ptr.To(true), ControlPlaneInitialized: ptr.To(true)},
		Conditions: []metav1.Condition{
			LongTrue(clusterv1.ClusterInfrastructureReadyCondition), LongTrue(clusterv1.ClusterControlPlaneInitializedCondition),
		},
	}
}

// Reports gives a node a condition, instead of the one of that type if it has one.
func Reports(node *corev1.Node, condition corev1.NodeCondition) {
	same := func(c corev1.NodeCondition) bool { return c.Type == condition.Type }
	if i := slices.IndexFunc(node.Status.Conditions, same); i >= 0 {
		node.Status.Conditions[i] = condition
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, condition)
}
