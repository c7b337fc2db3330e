package snapshot

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestAClusterIsReadIfCoreSaysThatAMachineIsNotReady(t *testing.T) {
	for _, kind := range []string{clusterv1.ClusterControlPlaneMachinesReadyCondition, clusterv1.ClusterWorkerMachinesReadyCondition} {
		for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown} {
			cluster := &clusterv1.Cluster{}
			cluster.Status.Conditions = []metav1.Condition{{Type: kind, Status: status}}
			if got := machinesReady(cluster); got != (status == metav1.ConditionTrue) {
				t.Errorf("with %s=%s all machines are Ready: %t", kind, status, got)
			}
		}
	}
	if !machinesReady(&clusterv1.Cluster{}) {
		t.Error("a cluster of which core says nothing is read")
	}
}
