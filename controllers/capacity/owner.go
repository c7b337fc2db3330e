package capacity

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// owner is what replaces a Machine: a MachineDeployment, a MachineSet or a control plane of any provider.
type owner struct {
	ref rule.Ref
	// maker is what makes the machines, and may be paused: of a MachineDeployment the MachineSet of its current revision, which goes on
	// while the MachineDeployment is paused. (Cluster API, core/reconcilers/machineset.)
	maker rule.Ref
	// known reports that it was read, and gone that it does not exist any more, or not for long.
	known, gone, paused bool
	// replicas is how many machines it is to have; nil if it does not say that.
	replicas *int
	// noCreation reports that its annotation forbids it to create machines.
	noCreation bool
	rollingOut bool
	// conditions are those of maker.
	conditions []metav1.Condition
}

// readOwner reads what makes the machines. All owners have spec.replicas and, where their provider sets them, conditions of the same types.
// (Cluster API's contract of control planes.)
func (r *reading) readOwner(ctx context.Context) error {
	switch {
	case r.Owner.Kind == "":
		return nil
	case r.Deployment != "":
		return r.readDeployment(ctx)
	}
	obj := &unstructured.Unstructured{}
	r.owner.ref = rule.Ref{Kind: r.Owner.Kind, Namespace: r.Namespace, Name: r.Owner.Name}
	switch r.Owner.Kind {
	case machineSetKind:
		obj.SetGroupVersionKind(clusterv1.GroupVersion.WithKind(machineSetKind))
	case kubeadmKind:
		obj.SetGroupVersionKind(controlplanev1.GroupVersion.WithKind(kubeadmKind))
	default:
		mapping, err := r.Mapper.RESTMapping(schema.GroupKind{Group: r.Owner.Group, Kind: r.Owner.Kind})
		if err != nil {
			return r.note(r.Owner.Kind+"s", err)
		}
		obj.SetGroupVersionKind(mapping.GroupVersionKind)
	}
	if exists, err := r.readMaker(ctx, r.Owner.Name, obj, r.Owner.Kind); err != nil || !exists {
		return err
	}
	if replicas, has, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas"); has { // what is no number says none
		r.owner.replicas = ptr.To(int(replicas))
	}
	var status struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if fields, _, _ := unstructured.NestedMap(obj.Object, "status"); fields != nil {
		_ = runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &status) // conditions of another form say nothing
	}
	r.owner.madeBy(obj, status.Conditions)
	r.owner.rollingOut = cond(status.Conditions, clusterv1.RollingOutCondition).Status == metav1.ConditionTrue
	return nil
}

// readMaker reads the owner of a name, and what all kinds of owners have.
func (r *reading) readMaker(ctx context.Context, name string, obj client.Object, kind string) (exists bool, err error) {
	exists, known, err := r.get(ctx, name, obj, kind+"s")
	r.owner.ref = rule.Ref{Kind: kind, Namespace: r.Namespace, Name: name}
	r.owner.maker, r.owner.known, r.owner.gone = r.owner.ref, known, known && (!exists || !obj.GetDeletionTimestamp().IsZero())
	return exists, err
}

// readDeployment reads the MachineSets too, which name their MachineDeployment: of a long name the label of a machine has a hash. (Cluster
// API, internal/util/labels/format.)
func (r *reading) readDeployment(ctx context.Context) error {
	sets, deployment, name := &clusterv1.MachineSetList{}, &clusterv1.MachineDeployment{}, r.Deployment
	if _, err := r.list(ctx, sets, "MachineSets", client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: r.Deployment}); err != nil {
		return err
	}
	if len(sets.Items) > 0 {
		if controller := metav1.GetControllerOf(&sets.Items[0]); controller != nil {
			name = controller.Name
		}
	}
	if exists, err := r.readMaker(ctx, name, deployment, machineDeploymentKind); err != nil || !exists {
		return err
	}
	r.owner.replicas = ptr.To(int(ptr.Deref(deployment.Spec.Replicas, 0)))
	r.owner.rollingOut = cond(deployment.Status.Conditions, clusterv1.RollingOutCondition).Status == metav1.ConditionTrue
	for i := range sets.Items {
		if set := &sets.Items[i]; set.Annotations[clusterv1.RevisionAnnotation] == deployment.Annotations[clusterv1.RevisionAnnotation] {
			r.owner.maker.Kind, r.owner.maker.Name = machineSetKind, set.Name
			r.owner.madeBy(set, set.Status.Conditions)
		}
	}
	return nil
}

// madeBy adds what says of the machines what makes them.
func (o *owner) madeBy(maker client.Object, conditions []metav1.Condition) {
	o.paused, o.conditions = isPaused(maker), conditions
	o.noCreation = maker.GetAnnotations()[clusterv1.DisableMachineCreateAnnotation] == "true"
}

func isPaused(obj client.Object) bool {
	_, paused := obj.GetAnnotations()[clusterv1.PausedAnnotation]
	return paused
}
