package explain

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/workload"
)

// Messages of the conditions by which the owner of a machine is asked to remediate it.
const (
	PowerCycleFailed = "Power-cycling the host did not help, and no MachineHealthCheck judges the machine"
	OwnerRequested   = "Waiting for remediation: power-cycling the host did not help"
)

// PowerOffDisabled is the message of the conditions of a host that can only be rebooted.
const PowerOffDisabled = "spec.disablePowerOff of the host is set: it is rebooted, whether it was off cannot be proven, and its node is not fenced"

// NoCluster is why the node of a remediation cannot be read.
const NoCluster = "its Cluster does not exist"

// Unreachable says why nothing can be read from a workload cluster, which may have been silent for long.
func Unreachable(silent bool) string {
	if silent {
		return Plain(workload.ErrSilent)
	}
	return "the workload cluster cannot be reached"
}

// UnhealthyNode says that a NodeHealthCheck marks a node unhealthy for one of its conditions.
func UnhealthyNode(check, condition, status string) string {
	return fmt.Sprintf("NodeHealthCheck %s marks a node unhealthy that has %s=%s", check, condition, status)
}

// KeptOff is a host that a remediation keeps powered off, as what disrupts a member of a control plane.
func KeptOff(host string) string { return "BareMetalHost " + host + " is kept powered off" }

// OrphanedAnnotation says that an annotation was removed from a host.
func OrphanedAnnotation(key string, remediation types.UID) string {
	return fmt.Sprintf("Removed annotation %s: remediation %s does not exist any more", key, remediation)
}

// OrphanedFence says that a node was unfenced.
func OrphanedFence(node string, remediation types.UID) string {
	return fmt.Sprintf("Unfenced node %s: remediation %s, which had fenced it, does not exist any more", node, remediation)
}

// UnhealthyMarkRemoved says that a host is no longer marked as unhealthy.
func UnhealthyMarkRemoved(machine string) string {
	return fmt.Sprintf("Machine %s is healthy after all: the host is no longer marked as unhealthy", machine)
}

// Unasked says what could not be read for a decision, and what is shown instead: the remediation's last condition, or the decision without the answer.
func Unasked(errs []error, last bool) []string {
	without := "; this is what a reconcile decides that cannot read it either"
	if last {
		without = "; the last condition of the remediation is repeated"
	}
	var texts []string
	for _, err := range errs {
		if text := Plain(err) + without; !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return texts
}
