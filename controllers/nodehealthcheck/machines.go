package nodehealthcheck

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/machinestatus"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// ownerOfRequest is the Machine of Cluster API that owns obj, by name and UID; zero if none does. It is in the namespace of obj, as owners are.
func ownerOfRequest(obj metav1.Object) machineRef {
	owners := remediationrequest.OwningMachines(obj)
	if len(owners) == 0 {
		return machineRef{}
	}
	return machineRef{types.NamespacedName{Namespace: obj.GetNamespace(), Name: owners[0].Name}, owners[0].UID}
}

// machineRef is one Machine, and none that had its name before or has it elsewhere.
type machineRef struct {
	key types.NamespacedName
	uid types.UID
}

// owningMachine reads the Machine that owns obj, shared with the cache: read only. It is nil if none does, or that one is gone.
func (r *Reconciler) owningMachine(ctx context.Context, obj *unstructured.Unstructured) (*clusterv1.Machine, error) {
	ref, m := ownerOfRequest(obj), &clusterv1.Machine{}
	if ref == (machineRef{}) {
		return nil, nil
	}
	err := r.Management.Get(ctx, ref.key, m, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read machine %s of %s %s: %w", ref.key, obj.GetKind(), obj.GetName(), err)
	case m.UID != ref.uid: // also if it is gone
		return nil, nil
	}
	return m, nil
}

// observeMachines finds the Machines of the nodes that may be remediated, and the requests that have the names which theirs would have.
func (r *Reconciler) observeMachines(ctx context.Context, state *observed) {
	watchers := map[string]*clusterv1.MachineHealthCheckList{} // by namespace
	for i := range state.facts.Nodes {
		n, objects := &state.facts.Nodes[i], &state.objects[i]
		if !n.Exists {
			r.observeOwners(ctx, state, n, objects)
			continue
		}
		if !n.Concerns() {
			continue
		}
		n.Machine = &nodes.Machine{}
		var err error
		if objects.machine, err = r.machineOf(ctx, objects.node, n.Machine, watchers); err != nil {
			state.trouble = append(state.trouble, err)
			n.Machine.Unread = true
		}
		state.describeNames(n)
	}
}

// observeOwners finds out which of the requests for a node that is gone are about a Machine that is there.
func (r *Reconciler) observeOwners(ctx context.Context, state *observed, n *nodes.Node, objects *objects) {
	for j, f := range objects.requests {
		there, err := r.ownerThere(ctx, f.obj)
		if err != nil {
			state.trouble = append(state.trouble, err)
		}
		n.Requests[j].MachineThere = there || err != nil // not known is no reason to end it
	}
}

// ownerThere reports whether the Machine that owns a request is there, and stays.
func (r *Reconciler) ownerThere(ctx context.Context, req *unstructured.Unstructured) (bool, error) {
	obj, err := r.owningMachine(ctx, req)
	return obj != nil && obj.DeletionTimestamp.IsZero(), err
}

// machineOf finds the Machine that a node names in its annotations, and states in m what it says. Names can be the same in two clusters, so the Machine
// has to name the node too.
func (r *Reconciler) machineOf(
	ctx context.Context, node *corev1.Node, m *nodes.Machine, watchers map[string]*clusterv1.MachineHealthCheckList,
) (*clusterv1.Machine, error) {
	name, namespace := node.Annotations[clusterv1.MachineAnnotation], node.Annotations[clusterv1.ClusterNamespaceAnnotation]
	if name == "" || namespace == "" {
		return nil, nil
	}
	obj := &clusterv1.Machine{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	if err := r.Management.Get(ctx, key, obj, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read machine %s of node %s: %w", key, node.Name, err)
	}
	if obj.Status.NodeRef.Name != node.Name || !health.IsNodeOf(obj, node) {
		return nil, nil
	}
	m.Ref, m.ID, m.Cluster = nodes.Ref{Kind: "Machine", Namespace: namespace, Name: name}, string(obj.UID), obj.Spec.ClusterName
	m.Deleting = !obj.DeletionTimestamp.IsZero()
	_, m.Skipped = obj.Annotations[clusterv1.MachineSkipRemediationAnnotation]
	_, m.Paused = obj.Annotations[clusterv1.PausedAnnotation]
	m.Updating = machinestatus.UpdatedInPlace(obj)
	cluster, clusterKey := &clusterv1.Cluster{}, client.ObjectKey{Namespace: namespace, Name: obj.Spec.ClusterName}
	err := r.Management.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	if client.IgnoreNotFound(err) != nil {
		return obj, fmt.Errorf("read cluster %s: %w", clusterKey, err)
	}
	m.ClusterPaused, m.RollingOut = ptr.Deref(cluster.Spec.Paused, false), rollingOut(cluster)
	m.WatchedBy, err = r.watcherOf(ctx, obj, watchers)
	return obj, err
}

// watcherOf names a MachineHealthCheck that selects m and that somebody acts on: it is not paused, or claimed for kubemend.
func (r *Reconciler) watcherOf(ctx context.Context, m *clusterv1.Machine, watchers map[string]*clusterv1.MachineHealthCheckList) (string, error) {
	list := watchers[m.Namespace]
	if list == nil {
		list = &clusterv1.MachineHealthCheckList{}
		if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("list the MachineHealthChecks in %s: %w", m.Namespace, err)
		}
		watchers[m.Namespace] = list
	}
	for i := range list.Items {
		if check := &list.Items[i]; machinestatus.Judges(check, m) {
			return client.ObjectKeyFromObject(check).String(), nil
		}
	}
	return "", nil
}

func rollingOut(cluster *clusterv1.Cluster) bool {
	return meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterRollingOutCondition)
}

// memberMachines are the nodes of the control plane's Machines. What they say of themselves is stated.
func (r *Reconciler) memberMachines(ctx context.Context, state *observed) (map[machineRef]string, error) {
	m := state.someMachine()
	if m == nil {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: m.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", m.Spec.ClusterName, err)
	}
	nodeOf := make(map[machineRef]string, len(list.Items))
	for i := range list.Items {
		m := &list.Items[i]
		nodeOf[machineRef{client.ObjectKeyFromObject(m), m.UID}] = m.Status.NodeRef.Name
		state.facts.ControlPlane.Machines = append(state.facts.ControlPlane.Machines, nodes.MemberMachine{
			Ref: nodes.Ref{Kind: "Machine", Namespace: m.Namespace, Name: m.Name}, Node: m.Status.NodeRef.Name,
			Replaced: replacedSince(m), Remediated: beingRemediated(m),
		})
	}
	return nodeOf, nil
}

// replacedSince is since when m is being deleted, or its owner was asked to replace it; zero if neither.
func replacedSince(m *clusterv1.Machine) time.Time {
	if !m.DeletionTimestamp.IsZero() {
		return m.DeletionTimestamp.Time
	}
	i := slices.IndexFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == clusterv1.MachineOwnerRemediatedCondition && c.Status == metav1.ConditionFalse
	})
	if i < 0 || !beingRemediated(m) {
		return time.Time{}
	}
	return m.Status.Conditions[i].LastTransitionTime.Time
}

// someMachine is one of the cluster's, if any is known: all nodes belong to the same cluster.
func (state *observed) someMachine() *clusterv1.Machine {
	for i := range state.objects {
		if m := state.objects[i].machine; m != nil {
			return m
		}
	}
	return nil
}

// beingRemediated reports whether a MachineHealthCheck has m remediated, by its owner or by the controller of the requests about machines.
func beingRemediated(m *clusterv1.Machine) bool {
	if meta.IsStatusConditionTrue(m.Status.Conditions, clusterv1.MachineHealthCheckSucceededCondition) {
		return false
	}
	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		switch {
		case c.Status != metav1.ConditionFalse:
			return false
		case c.Type == clusterv1.MachineExternallyRemediatedCondition:
			return c.Reason != clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason &&
				c.Reason != clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason // no request was made
		default:
			return c.Type == clusterv1.MachineOwnerRemediatedCondition
		}
	})
}
