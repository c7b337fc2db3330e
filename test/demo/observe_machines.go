package main

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// machineChanged describes a change of a Machine.
func machineChanged(was, is *clusterv1.Machine) []observation {
	switch {
	case is == nil:
		return []observation{{by: machineController, fact: machineGone, about: was.Name, text: fmt.Sprintf("Machine %s is gone", was.Name)}}
	case was == nil:
		return []observation{{by: makerOf(is), fact: machineCreated, about: is.Name, text: fmt.Sprintf("Machine %s is created", is.Name)}}
	}
	var seen []observation
	for _, describe := range []func(was, is *clusterv1.Machine) *observation{
		phaseChanged, healthChanged, ownerChanged, deletionChanged,
	} {
		if s := describe(was, is); s != nil {
			s.about = is.Name
			seen = append(seen, *s)
		}
	}
	return seen
}

// makerOf is who made a Machine: the controller that owns it.
func makerOf(machine *clusterv1.Machine) string {
	if owner := metav1.GetControllerOf(machine); owner != nil {
		return owner.Kind
	}
	return "somebody"
}

func ownerOf(machine *clusterv1.Machine) string {
	if owner := metav1.GetControllerOf(machine); owner != nil {
		return owner.Kind + " " + owner.Name
	}
	return "none"
}

// hostChanged describes a change of a Metal3Machine.
func hostChanged(was, is *unstructured.Unstructured) []observation {
	if was == nil || is == nil || provisioned(was) || !provisioned(is) {
		return nil
	}
	host := strings.TrimPrefix(is.GetAnnotations()[infrav1.HostAnnotation], namespace+"/")
	return []observation{{
		by: provider, fact: hostProvisioned, about: is.GetName(),
		text: fmt.Sprintf("Metal3Machine %s has a host, %s, which is powered on", is.GetName(), host),
	}}
}

func provisioned(machine *unstructured.Unstructured) bool {
	done, _, _ := unstructured.NestedBool(machine.Object, "status", "initialization", "provisioned") // absent means no
	return done
}

func phaseChanged(was, is *clusterv1.Machine) *observation {
	if was.Status.Phase == is.Status.Phase || is.Status.Phase != string(clusterv1.MachinePhaseRunning) {
		return nil
	}
	return &observation{by: machineController, fact: machineRunning, text: fmt.Sprintf("Machine %s runs, on Node %s", is.Name, is.Status.NodeRef.Name)}
}

func healthChanged(was, is *clusterv1.Machine) *observation {
	by := authorOf(is, clusterv1.MachineHealthCheckSucceededCondition)
	switch {
	case turned(was, is, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse):
		why := conditions.GetMessage(is, clusterv1.MachineHealthCheckSucceededCondition)
		why = strings.TrimPrefix(why, "Health check failed:")
		why = strings.ReplaceAll(why, "\n  * ", " ")
		return &observation{by: by, fact: machineFailed, text: fmt.Sprintf("marks Machine %s unhealthy:%s", is.Name, why)}
	case turned(was, is, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue):
		return &observation{by: by, fact: machineHealthy, text: fmt.Sprintf("Machine %s is healthy", is.Name)}
	}
	return nil
}

func ownerChanged(was, is *clusterv1.Machine) *observation {
	const owner = clusterv1.MachineOwnerRemediatedCondition
	before, now := conditions.Get(was, owner), conditions.Get(is, owner)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Reason == now.Reason):
		return nil
	case now.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason:
		by := authorOf(is, now.Type)
		if by == kubemend && conditions.Has(is, clusterv1.MachineExternallyRemediatedCondition) {
			by = kubemendHost // both write under the name of kubemend, but the check asks either the owner or somebody else
		}
		return &observation{
			by: by, fact: ownerRequested,
			text: fmt.Sprintf("requests owner remediation of Machine %s (owner: %s)", is.Name, ownerOf(is)),
		}
	default:
		// Only the owner changes the condition from there.
		return &observation{by: makerOf(is), fact: ownerActs, text: fmt.Sprintf("remediates Machine %s: %s", is.Name, now.Message)}
	}
}

func deletionChanged(was, is *clusterv1.Machine) *observation {
	if !was.DeletionTimestamp.IsZero() || is.DeletionTimestamp.IsZero() {
		return nil
	}
	by := "somebody"
	if conditions.GetReason(is, clusterv1.MachineOwnerRemediatedCondition) == clusterv1.MachineSetMachineRemediationMachineDeletingReason {
		by = makerOf(is)
	}
	return &observation{by: by, fact: machineDeleting, text: fmt.Sprintf("deletes Machine %s; its host is deprovisioned", is.Name)}
}

// turned reports whether a condition has a status that it did not have.
func turned(was, is conditions.Getter, kind string, status metav1.ConditionStatus) bool {
	before, now := conditions.Get(was, kind), conditions.Get(is, kind)
	return now != nil && now.Status == status && (before == nil || before.Status != status)
}
