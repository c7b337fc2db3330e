package nodehealthcheck

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// owningMachine reads the Machine of Cluster API that owns obj, shared with the cache: read only. It is nil if none does, or that one is
// gone.
func (r *Reconciler) owningMachine(ctx context.Context, obj *unstructured.Unstructured) (*clusterv1.Machine, error) {
	owners, m := remediationrequest.OwningMachines(obj), &clusterv1.Machine{}
	if len(owners) == 0 {
		return nil, nil
	}
	err := r.Management.Get(ctx, client.ObjectKey{Namespace: obj.GetNamespace(), Name: owners[0].Name}, m, client.UnsafeDisableDeepCopy)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return nil, fmt.Errorf("read machine %s of %s %s: %w", owners[0].Name, obj.GetKind(), obj.GetName(), err)
	case m.UID != owners[0].UID: // also if it is gone
		return nil, nil
	}
	return m, nil
}

// observeMachines finds the Machines of the nodes that may be remediated, and the requests that have the names which theirs would have.
func (r *Reconciler) observeMachines(ctx context.Context, state *observed) {
	for i := range state.facts.Nodes {
		n := &state.facts.Nodes[i]
		if !n.Exists() {
			r.observeOwners(ctx, state, n)
			continue
		}
		if !state.facts.Concerns(n) {
			continue
		}
		n.Machine = &nodes.Machine{}
		if err := r.observeMachine(ctx, n.Object, n.Machine); err != nil {
			state.trouble = append(state.trouble, err)
			n.Machine.Unread = true
		}
		state.describeNames(n)
	}
}

func (state *observed) describeNames(n *nodes.Node) {
	n.Named = make([]nodes.Named, len(state.facts.Templates))
	for j := range state.facts.Templates {
		t := &state.facts.Templates[j]
		if t.Object == nil {
			continue
		}
		same := state.requests.byName[keyOf(t.Request.GroupKind(), t.Namespace, nameFor(state.check, t, n))]
		if same != nil {
			n.Named[j] = nodes.Named{Object: same, Own: state.made(same)}
		}
	}
}

// observeOwners finds out which of the requests for a node that is gone are about a Machine that is there.
func (r *Reconciler) observeOwners(ctx context.Context, state *observed, n *nodes.Node) {
	for j := range n.Requests {
		there, err := r.ownerThere(ctx, n.Requests[j].Object)
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

// observeMachine finds the Machine that a node names in its annotations, its Cluster and its MachineHealthCheck. Names can be the same in
// two clusters, so the Machine has to name the node too.
func (r *Reconciler) observeMachine(ctx context.Context, node *corev1.Node, m *nodes.Machine) error {
	annotations := node.Annotations
	key := client.ObjectKey{Namespace: annotations[clusterv1.ClusterNamespaceAnnotation], Name: annotations[clusterv1.MachineAnnotation]}
	if key.Name == "" || key.Namespace == "" {
		return nil
	}
	machine := &clusterv1.Machine{}
	if err := r.Management.Get(ctx, key, machine, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read machine %s of node %s: %w", key, node.Name, err)
	}
	if machine.Status.NodeRef.Name != node.Name || !health.IsNodeOf(machine, node) {
		return nil
	}
	m.Object = machine
	cluster, clusterKey := &clusterv1.Cluster{}, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}
	err := r.Management.Get(ctx, clusterKey, cluster, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		m.Cluster = cluster
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read cluster %s: %w", clusterKey, err)
	}
	checks := &clusterv1.MachineHealthCheckList{}
	if err := r.Management.List(ctx, checks, client.InNamespace(machine.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the MachineHealthChecks in %s: %w", machine.Namespace, err)
	}
	for i := range checks.Items {
		if check := &checks.Items[i]; m.WatchedBy == "" && capi.Judges(check, machine) {
			m.WatchedBy = check.Name
		}
	}
	return nil
}

// memberMachines reads the control plane's Machines, and returns them by UID.
func (r *Reconciler) memberMachines(ctx context.Context, state *observed) (map[types.UID]*clusterv1.Machine, error) {
	m := state.someMachine()
	if m == nil {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := r.Management.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy,
		client.MatchingLabels{clusterv1.ClusterNameLabel: m.Spec.ClusterName}, client.HasLabels{clusterv1.MachineControlPlaneLabel}); err != nil {
		return nil, fmt.Errorf("list the control-plane machines of cluster %s: %w", m.Spec.ClusterName, err)
	}
	state.facts.ControlPlane.Machines = list.Items
	members := make(map[types.UID]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		members[list.Items[i].UID] = &list.Items[i]
	}
	return members, nil
}

// someMachine is one of the cluster's, if any is known: all nodes belong to the same cluster.
func (state *observed) someMachine() *clusterv1.Machine {
	for i := range state.facts.Nodes {
		if m := state.facts.Nodes[i].Machine; m.There() {
			return m.Object
		}
	}
	return nil
}
