package snapshot

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

// slimMachine is what the manager's cache keeps of a machine, and of one that is being deleted also who added its finalizers.
func slimMachine(m *clusterv1.Machine) (any, error) {
	slimmed, err := machinehealthcheck.SlimMachine(m)
	if kept, is := slimmed.(*clusterv1.Machine); is && err == nil && m.DeletionTimestamp != nil {
		kept.ManagedFields = m.ManagedFields
	}
	return slimmed, err
}

// slimOwner is slimSet or slimDeployment.
func slimOwner(obj client.Object) any {
	if ms, is := obj.(*clusterv1.MachineSet); is {
		return slimSet(ms)
	}
	if md, is := obj.(*clusterv1.MachineDeployment); is {
		return slimDeployment(md)
	}
	return obj
}

// slimUntyped is what the manager's cache keeps of an object, but for a Metal3Machine.
func slimUntyped(o *unstructured.Unstructured) (any, error) {
	if o.GetKind() == metal3MachineGVK.Kind {
		return slimMetal3Machine(o), nil
	}
	return nodehealthcheck.Slim(o)
}

// slimSet keeps of a MachineSet how many machines it is to have, and what it says of them. The template of the machines may be anything.
func slimSet(ms *clusterv1.MachineSet) *clusterv1.MachineSet {
	kept := &clusterv1.MachineSet{ObjectMeta: ms.ObjectMeta}
	kept.Spec.ClusterName, kept.Spec.Replicas = ms.Spec.ClusterName, ms.Spec.Replicas
	kept.Status.Conditions = ms.Status.Conditions
	if old := ms.GetV1Beta1Conditions(); old != nil {
		kept.SetV1Beta1Conditions(old)
	}
	return kept
}

// slimDeployment is slimSet for a MachineDeployment.
func slimDeployment(md *clusterv1.MachineDeployment) *clusterv1.MachineDeployment {
	kept := &clusterv1.MachineDeployment{ObjectMeta: md.ObjectMeta}
	kept.Spec.ClusterName, kept.Spec.Replicas, kept.Spec.Paused = md.Spec.ClusterName, md.Spec.Replicas, md.Spec.Paused
	kept.Status.Conditions = md.Status.Conditions
	return kept
}

// slimMetal3Machine keeps of a Metal3Machine which hosts it may have, and what it says of that. Its user data are in other objects.
func slimMetal3Machine(m *unstructured.Unstructured) *unstructured.Unstructured {
	spec := map[string]any{}
	if selector, has, err := unstructured.NestedMap(m.Object, "spec", "hostSelector"); err == nil && has {
		spec["hostSelector"] = selector
	}
	kept := map[string]any{"apiVersion": m.GetAPIVersion(), "kind": m.GetKind(), "metadata": m.Object["metadata"], "spec": spec}
	if conditions, has, err := unstructured.NestedSlice(m.Object, "status", "conditions"); err == nil && has {
		kept["status"] = map[string]any{"conditions": conditions}
	}
	return &unstructured.Unstructured{Object: kept}
}

// finalizersAlone are the managed fields that say who added finalizers, without all else.
func finalizersAlone(all []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var kept []metav1.ManagedFieldsEntry
	for _, entry := range all {
		var set struct {
			Metadata struct {
				Finalizers map[string]json.RawMessage `json:"f:finalizers,omitempty"`
			} `json:"f:metadata"`
		}
		if entry.FieldsV1 == nil || !strings.Contains(string(entry.FieldsV1.GetRawBytes()), "f:finalizers") ||
			json.Unmarshal(entry.FieldsV1.GetRawBytes(), &set) != nil {
			continue
		}
		if raw, err := json.Marshal(set); err == nil {
			entry.FieldsV1 = &metav1.FieldsV1{Raw: raw}
			kept = append(kept, entry)
		}
	}
	return kept
}
