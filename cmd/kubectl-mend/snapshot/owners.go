package snapshot

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
)

var (
	machineSetGVK        = clusterv1.GroupVersion.WithKind("MachineSet")
	machineDeploymentGVK = clusterv1.GroupVersion.WithKind("MachineDeployment")
	drainRuleGVK         = clusterv1.GroupVersion.WithKind("MachineDrainRule")
)

// owners are what makes the machines of the clusters in scope, where that is asked for.
func (r *reading) owners() []task {
	if !r.Owners {
		return nil
	}
	tasks := []task{
		{gvk: machineSetGVK, namespace: r.Namespace, options: r.labelled()}, {gvk: machineDeploymentGVK, namespace: r.Namespace, options: r.labelled()},
		{gvk: controlPlaneGVK, namespace: r.Namespace, anyVersion: true, options: r.labelled(), keep: rulesAlone},
		{gvk: drainRuleGVK, namespace: r.Namespace},
	}
	if r.Namespace != "" {
		tasks = append(tasks, r.namespaceItself())
	}
	return tasks
}

// namespaceItself is the Namespace in scope, which may be being deleted.
func (r *reading) namespaceItself() task {
	return task{gvk: namespaceGVK, bare: true, options: named(r.Namespace), keep: claimLabelAtMost}
}

// claimLabelAtMost keeps a Namespace without labels but the one that claims checks, if it has that.
func claimLabelAtMost(o client.Object) bool {
	if _, has := o.GetLabels()[mendv1.ClaimLabel]; has {
		return claimLabelAlone(o)
	}
	o.SetLabels(nil)
	o.SetAnnotations(nil)
	return true
}

// wayBack reads what tells whether the capacity of the one machine that was read is back: what makes its machines, those that it has, and the hosts that
// a new one may get. Nothing is read of a machine that has lost nothing.
func (r *reading) wayBack(ctx context.Context) {
	m := One[clusterv1.Machine](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Machine})
	if m == nil || !r.Owners || !capacity.Concerns(m, r.snapshot.Taken) {
		return
	}
	of := capacity.Of(m, m.CreationTimestamp.Time)
	tasks := []task{
		{gvk: machineGVK, namespace: r.Namespace, options: []client.ListOption{client.MatchingLabels{of.LabelKey: of.LabelValue}}}, r.namespaceItself(),
	}
	switch {
	case of.Deployment != "":
		tasks = append(tasks, task{gvk: machineDeploymentGVK, namespace: r.Namespace, options: r.labelled()},
			task{gvk: machineSetGVK, namespace: r.Namespace, options: []client.ListOption{client.MatchingLabels{of.LabelKey: of.LabelValue}}})
	case of.Owner.Kind == machineSetGVK.Kind:
		tasks = append(tasks, task{gvk: machineSetGVK, namespace: r.Namespace, options: named(of.Owner.Name)})
	case of.Owner.Kind == controlPlaneGVK.Kind:
		tasks = append(tasks, task{gvk: controlPlaneGVK, namespace: r.Namespace, anyVersion: true, options: named(of.Owner.Name), keep: rulesAlone})
	}
	if !m.DeletionTimestamp.IsZero() {
		tasks = append(tasks, task{gvk: drainRuleGVK, namespace: r.Namespace})
	}
	r.each(ctx, tasks)
	r.each(ctx, r.hostsOfNew())
}

// knownFor is how long a machine is asked for which other it was made. Records are many, and tell nothing of machines that are older than they.
const knownFor = 7 * 24 * time.Hour

// recordsOfNew are the records that may tell for which machine the one was made that was read.
func (r *reading) recordsOfNew() []task {
	m := One[clusterv1.Machine](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Machine})
	if m == nil || r.snapshot.Taken.Sub(m.CreationTimestamp.Time) > knownFor {
		return nil
	}
	return r.records()
}

// hostsOfNew are all hosts, and the Metal3Machines of the machines that may still get one, or are about to lose it.
func (r *reading) hostsOfNew() []task {
	var tasks []task
	for _, m := range All[clusterv1.Machine](r.snapshot, r.Namespace) {
		ref := m.Spec.InfrastructureRef
		if ref.Kind == metal3MachineGVK.Kind && ref.APIGroup == infrav1.GroupVersion.Group && (!m.Status.NodeRef.IsDefined() || m.DeletionTimestamp != nil) {
			tasks = append(tasks, task{gvk: metal3MachineGVK, namespace: m.Namespace, options: named(ref.Name)})
		}
	}
	if len(tasks) > 0 {
		tasks = append(tasks, task{gvk: hostGVK, namespace: r.Namespace})
	}
	return tasks
}

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
