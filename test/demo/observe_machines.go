package main

import (
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// saw is one observation of an object.
func saw(by string, is fact, about, format string, args ...any) []observation {
	return []observation{{by: by, fact: is, about: about, text: fmt.Sprintf(format, args...)}}
}

// turned reports whether a condition has a status that it did not have.
func turned(was, is conditions.Getter, kind string, status metav1.ConditionStatus) bool {
	before, now := conditions.Get(was, kind), conditions.Get(is, kind)
	return now != nil && now.Status == status && (before == nil || before.Status != status)
}

// machineChanged describes a change of a Machine.
func machineChanged(was, is *clusterv1.Machine) []observation {
	switch {
	case is == nil:
		return saw(machineController, machineGone, was.Name, "Machine %s is gone", was.Name)
	case was == nil:
		return saw(makerOf(is), machineCreated, is.Name, "Machine %s is created", is.Name)
	}
	seen := append(healthChanged(was, is), ownerChanged(was, is)...)
	if was.Status.Phase != is.Status.Phase && is.Status.Phase == string(clusterv1.MachinePhaseRunning) {
		seen = append(saw(machineController, machineRunning, is.Name, "Machine %s runs, on Node %s", is.Name, is.Status.NodeRef.Name), seen...)
	}
	if was.DeletionTimestamp.IsZero() && !is.DeletionTimestamp.IsZero() {
		by := "somebody"
		const asked = clusterv1.MachineSetMachineRemediationMachineDeletingReason
		if conditions.GetReason(is, clusterv1.MachineOwnerRemediatedCondition) == asked {
			by = makerOf(is)
		}
		seen = append(seen, saw(by, machineDeleting, is.Name, "deletes Machine %s; its host is deprovisioned", is.Name)...)
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

func healthChanged(was, is *clusterv1.Machine) []observation {
	by := authorOf(is, clusterv1.MachineHealthCheckSucceededCondition)
	switch {
	case turned(was, is, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse):
		why := conditions.GetMessage(is, clusterv1.MachineHealthCheckSucceededCondition)
		why = strings.ReplaceAll(strings.TrimPrefix(why, "Health check failed:"), "\n  * ", " ")
		return saw(by, machineFailed, is.Name, "marks Machine %s unhealthy:%s", is.Name, why)
	case turned(was, is, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue):
		return saw(by, machineHealthy, is.Name, "Machine %s is healthy", is.Name)
	}
	return nil
}

func ownerChanged(was, is *clusterv1.Machine) []observation {
	const owner = clusterv1.MachineOwnerRemediatedCondition
	before, now := conditions.Get(was, owner), conditions.Get(is, owner)
	switch {
	case now == nil || (before != nil && before.Status == now.Status && before.Reason == now.Reason):
		return nil
	case now.Reason != clusterv1.MachineOwnerRemediatedWaitingForRemediationReason:
		// Only the owner changes the condition from there.
		return saw(makerOf(is), ownerActs, is.Name, "remediates Machine %s: %s", is.Name, now.Message)
	}
	by, name := authorOf(is, now.Type), "none"
	if by == kubemend && conditions.Has(is, clusterv1.MachineExternallyRemediatedCondition) {
		by = kubemendHost // both write under the name of kubemend, but the check asks either the owner or somebody else
	}
	if o := metav1.GetControllerOf(is); o != nil {
		name = o.Kind + " " + o.Name
	}
	return saw(by, ownerRequested, is.Name, "requests owner remediation of Machine %s (owner: %s)", is.Name, name)
}

// hostChanged describes a change of a Metal3Machine.
func hostChanged(was, is *unstructured.Unstructured) []observation {
	if was == nil || is == nil || provisioned(was) || !provisioned(is) {
		return nil
	}
	host := strings.TrimPrefix(is.GetAnnotations()[infrav1.HostAnnotation], namespace+"/")
	return saw(provider, shown, is.GetName(), "Metal3Machine %s has a host, %s, which is powered on", is.GetName(), host)
}

func provisioned(machine *unstructured.Unstructured) bool {
	done, _, _ := unstructured.NestedBool(machine.Object, "status", "initialization", "provisioned") // absent means no
	return done
}

// bareMetalChanged describes a change of a BareMetalHost.
func bareMetalChanged(was, is *bmov1alpha1.BareMetalHost) (seen []observation) {
	if was == nil || is == nil {
		return nil
	}
	if was.Status.PoweredOn != is.Status.PoweredOn {
		now, power := hostOff, "off"
		if is.Status.PoweredOn {
			now, power = hostOn, "on"
		}
		seen = saw(operator, now, is.Name, "BareMetalHost %s is %s", is.Name, power)
	}
	switch before, now := held(was), held(is); {
	case !before && now:
		seen = append(seen, saw(kubemendHost, offAsked, is.Name, "requests BareMetalHost %s to be off, by the annotation %s<UID>",
			is.Name, infrav1.PowerOffAnnotationPrefix)...)
	case before && !now:
		seen = append(seen, saw(kubemendHost, onAsked, is.Name, "releases BareMetalHost %s: removes that annotation", is.Name)...)
	}
	_, before := was.Annotations[infrav1.UnhealthyAnnotation]
	if _, now := is.Annotations[infrav1.UnhealthyAnnotation]; !before && now {
		seen = append(seen, saw(kubemendHost, shown, is.Name, "marks BareMetalHost %s with %s: no machine will use it",
			is.Name, infrav1.UnhealthyAnnotation)...)
	}
	return seen
}

// held reports whether a remediation keeps a host powered off. Only kubemend writes an annotation of this name.
func held(host *bmov1alpha1.BareMetalHost) bool {
	for key := range host.Annotations {
		if strings.HasPrefix(key, infrav1.PowerOffAnnotationPrefix) {
			return true
		}
	}
	return false
}
