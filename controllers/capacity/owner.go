package capacity

import (
	"context"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

const (
	machineSetKind = "MachineSet"

	machineDeploymentKind = "MachineDeployment"

	kubeadmKind       = "KubeadmControlPlane"
	metal3MachineKind = "Metal3Machine"
	metal3Machines    = "Metal3Machines"
	bareMetalHosts    = "BareMetalHosts"
)

// readOwner reads what makes the machines.
func (r *reading) readOwner(ctx context.Context) error {
	r.facts.Owner = capacity.Owner{Kind: r.Owner.Kind, Name: r.Owner.Name, Deployment: r.Deployment, Set: r.setName()}
	switch {
	case r.Owner.Kind == "":
		return nil
	case r.Deployment != "":
		return r.readDeployment(ctx)
	case r.Owner.Kind == machineSetKind:
		return r.readSet(ctx)
	case r.Owner.Kind == kubeadmKind:
		return r.readKubeadm(ctx)
	}
	return r.readControlPlane(ctx)
}

// readDeployment reads the MachineDeployment, and the MachineSet of its current revision, which makes its machines: whether the MachineDeployment is paused or
// not. (Cluster API, core/reconcilers/machineset: it asks the Cluster and the MachineSet.)
func (r *reading) readDeployment(ctx context.Context) error {
	md, o := &clusterv1.MachineDeployment{}, &r.facts.Owner
	name, err := r.deploymentName(ctx)
	if err != nil {
		return err
	}
	exists, known, err := r.get(ctx, name, md, "MachineDeployments")
	o.Deployment = name
	if o.Known, o.Gone = known, known && !exists; err != nil || !exists {
		return err
	}
	o.Deleting, o.Replicas, o.Topology = moment(md.DeletionTimestamp), int(ptr.Deref(md.Spec.Replicas, 0)), topology(md)
	o.RollingOut = conditions.IsTrue(md, clusterv1.MachineDeploymentRollingOutCondition)
	o.RolloutPaused = paused(md) || ptr.Deref(md.Spec.Paused, false)
	o.OnDelete = md.Spec.Rollout.Strategy.Type == clusterv1.OnDeleteMachineDeploymentStrategyType
	sets := &clusterv1.MachineSetList{}
	if _, err := r.list(ctx, sets, "MachineSets", client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: r.Deployment}); err != nil {
		return err
	}
	for i := range sets.Items {
		ms := &sets.Items[i]
		if ms.Annotations[clusterv1.RevisionAnnotation] != md.Annotations[clusterv1.RevisionAnnotation] {
			continue
		}
		o.Set = ms.Name
		o.Paused = paused(ms)
		set(o, ms)
	}
	return nil
}

// deploymentName is the name of the MachineDeployment. The label of a machine has it, but for a long one. (Cluster API, internal/util/labels/format: a hash.)
func (r *reading) deploymentName(ctx context.Context) (string, error) {
	if !strings.HasPrefix(r.Deployment, "hash_") {
		return r.Deployment, nil
	}
	ms := &clusterv1.MachineSet{}
	exists, _, err := r.get(ctx, r.Owner.Name, ms, "MachineSets")
	if owner := metav1.GetControllerOf(ms); err == nil && exists && owner != nil {
		return owner.Name, nil
	}
	return r.Deployment, err
}

func (r *reading) readSet(ctx context.Context) error {
	ms, o := &clusterv1.MachineSet{}, &r.facts.Owner
	exists, known, err := r.get(ctx, r.Owner.Name, ms, "MachineSets")
	if o.Known, o.Gone = known, known && !exists; err != nil || !exists {
		return err
	}
	o.Deleting, o.Replicas, o.Paused = moment(ms.DeletionTimestamp), int(ptr.Deref(ms.Spec.Replicas, 0)), paused(ms)
	set(o, ms)
	return nil
}

// set adds to the owner what a MachineSet says of the machines that it makes. Why it makes none is in the old condition MachinesCreated: of the new ones,
// ScalingUp has it in its message alone.
func set(o *capacity.Owner, ms *clusterv1.MachineSet) {
	o.NoCreation = ms.Annotations[clusterv1.DisableMachineCreateAnnotation] == "true"
	o.ScalingUp = condition(ms, clusterv1.MachineSetScalingUpCondition)
	blocked(o, v1beta1conditions.Get(ms, clusterv1.MachinesCreatedV1Beta1Condition))
}

func blocked(o *capacity.Owner, created *clusterv1.Condition) {
	if created == nil || created.Status != "False" {
		return
	}
	o.Blocked = true
	o.ScalingUp = capacity.Condition{Status: "False", Reason: created.Reason, Message: created.Message, Since: created.LastTransitionTime.Time}
}

func (r *reading) readKubeadm(ctx context.Context) error {
	kcp, o := &controlplanev1.KubeadmControlPlane{}, &r.facts.Owner
	exists, known, err := r.get(ctx, r.Owner.Name, kcp, "KubeadmControlPlanes")
	if o.Known, o.Gone = known, known && !exists; err != nil || !exists {
		return err
	}
	o.Deleting, o.Replicas, o.Paused = moment(kcp.DeletionTimestamp), int(ptr.Deref(kcp.Spec.Replicas, 0)), paused(kcp)
	o.Topology = topology(kcp)
	o.RollingOut = conditions.IsTrue(kcp, controlplanev1.KubeadmControlPlaneRollingOutCondition)
	o.ScalingUp = condition(kcp, controlplanev1.KubeadmControlPlaneScalingUpCondition)
	blocked(o, v1beta1conditions.Get(kcp, controlplanev1.MachinesCreatedV1Beta1Condition))
	for _, kind := range []string{
		controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition,
	} {
		if is := condition(kcp, kind); o.Ailing.Reason == "" && !is.True() {
			o.Ailing = is
		}
	}
	o.Kubeadm = kubeadmRules(kcp, r.facts.Now)
	return nil
}

// readControlPlane reads an owner of another kind. All control planes have spec.replicas. (Cluster API's contract of control planes.)
func (r *reading) readControlPlane(ctx context.Context) error {
	obj, err := r.untyped(schema.GroupKind{Group: r.Owner.Group, Kind: r.Owner.Kind})
	if err != nil {
		return r.unread(r.Owner.Kind+"s", err)
	}
	o := &r.facts.Owner
	exists, known, err := r.get(ctx, r.Owner.Name, obj, r.Owner.Kind+"s")
	if o.Known, o.Gone = known, known && !exists; err != nil || !exists {
		return err
	}
	o.Deleting, o.Paused = moment(obj.GetDeletionTimestamp()), paused(obj)
	replicas, has, _ := unstructured.NestedInt64(obj.Object, "spec", "replicas") // what is no number says none
	o.Replicas, o.Uncounted = int(replicas), !has
	return nil
}

// untyped is an object of the preferred version of a kind.
func (o *Observer) untyped(kind schema.GroupKind) (*unstructured.Unstructured, error) {
	mapping, err := o.Mapper.RESTMapping(kind)
	if err != nil {
		return nil, err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(mapping.GroupVersionKind)
	return obj, nil
}

// topology reports whether the topology of a Cluster writes obj.
func topology(obj client.Object) bool {
	_, is := obj.GetLabels()[clusterv1.ClusterTopologyOwnedLabel]
	return is
}

func paused(obj client.Object) bool {
	_, is := obj.GetAnnotations()[clusterv1.PausedAnnotation]
	return is
}

// defaultNodeStartup applies where a check does not say; Cluster API's webhook writes the same into the spec.
const defaultNodeStartup = 600

// readTimeouts reads how long checks wait for the nodes of machines that have none.
func (r *reading) readTimeouts(ctx context.Context) error {
	var awaited []*clusterv1.Machine
	for _, m := range r.all {
		if !m.Status.NodeRef.IsDefined() {
			awaited = append(awaited, m)
		}
	}
	if len(awaited) == 0 {
		return nil
	}
	checks := &clusterv1.MachineHealthCheckList{}
	if _, err := r.list(ctx, checks, "MachineHealthChecks"); err != nil {
		return err
	}
	for _, m := range awaited {
		is := r.known(m.Name)
		for i := range checks.Items {
			timeout := startupTimeout(&checks.Items[i], m)
			if timeout > 0 && (is.StartupTimeout == 0 || timeout < is.StartupTimeout) {
				is.StartupTimeout = timeout
			}
		}
	}
	return nil
}

// startupTimeout is how long a check waits for the node of m; zero if for ever, or if it does not select m.
func startupTimeout(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) time.Duration {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	if err != nil || check.Spec.ClusterName != m.Spec.ClusterName || selector.Empty() || !selector.Matches(labels.Set(m.Labels)) {
		return 0
	}
	return seconds(check.Spec.Checks.NodeStartupTimeoutSeconds, defaultNodeStartup)
}

// known are the facts about a machine of the owner.
func (r *reading) known(name string) *capacity.Machine {
	for i := range r.facts.Others {
		if r.facts.Others[i].Name == name {
			return &r.facts.Others[i]
		}
	}
	return &r.facts.Old
}
