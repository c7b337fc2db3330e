package builders

import (
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// ClaimedBy is the value of the paused annotation with which Cluster API's own controller skips a
// MachineHealthCheck and kubemend acts.
const ClaimedBy = "kubemend"

// Claimed gives a MachineHealthCheck to kubemend.
func Claimed(check *clusterv1.MachineHealthCheck) {
	if check.Annotations == nil {
		check.Annotations = map[string]string{}
	}
	check.Annotations[clusterv1.PausedAnnotation] = ClaimedBy
}

// RemediatedBy makes a MachineHealthCheck ask for remediation with copies of a template, instead of leaving it to the
// owner of the machine.
func RemediatedBy(apiVersion, kind, name string) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{
			APIVersion: apiVersion, Kind: kind, Name: name,
		}
	}
}

// Patience is how long a MachineHealthCheck lets every node condition that it has pass.
func Patience(d time.Duration) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		for i := range check.Spec.Checks.UnhealthyNodeConditions {
			check.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To(int32(d / time.Second))
		}
	}
}

// StartsWithin is how long a MachineHealthCheck lets a machine be without a node; forever, if 0.
func StartsWithin(d time.Duration) func(*clusterv1.MachineHealthCheck) {
	return func(check *clusterv1.MachineHealthCheck) {
		check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To(int32(d / time.Second))
	}
}
