package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// recordsKept is for how long a machine is asked for which other it was made. Records are many, and tell nothing of machines that are older than they.
const recordsKept = 7 * 24 * time.Hour

// oneMachine reads what explains one machine, or the machine of one node. The status of the check counts all other machines, so only this one is
// read, and those of the control plane, whose hosts are power-cycled one at a time. Where that does not do, everything is read.
func (r *reading) oneMachine(ctx context.Context, everything []query) {
	r.machineOfNode(ctx)
	if r.Machine != "" {
		r.each(ctx, []query{
			{gvk: machineGVK, namespace: r.Namespace, options: only(r.Machine)},
			{gvk: machineGVK, namespace: r.Namespace, options: append(labelled(r.Cluster), client.HasLabels{clusterv1.MachineControlPlaneLabel})},
		})
	}
	machine := One[clusterv1.Machine](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Machine})
	if machine == nil || !r.sufficient(ctx, machine) {
		r.Machine = ""
		r.each(ctx, everything)
		return
	}
	r.snapshot.SetCounted(client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster})
	r.each(ctx, r.metal3Machines(func(*clusterv1.Machine) bool { return true }))
	r.each(ctx, r.namedHosts())
	if r.Owners && capacity.Concerns(machine, r.snapshot.Taken) {
		r.wayBack(ctx, machine)
	}
	if r.snapshot.Taken.Sub(machine.CreationTimestamp.Time) <= recordsKept {
		r.each(ctx, r.records())
	}
}

// machineOfNode finds the machine of the node in question, if there is one cluster whose node it can be: its node names the machine. Several clusters
// may have nodes of one name, and only all of their machines tell which.
func (r *reading) machineOfNode(ctx context.Context) {
	if r.Node == "" || r.Namespace == "" || r.AllMachines {
		return
	}
	clusters := All[clusterv1.Cluster](r.snapshot, "")
	if len(clusters) != 1 {
		return
	}
	key := client.ObjectKeyFromObject(clusters[0])
	reader, err := r.snapshot.WorkloadReader(ctx, r.client, key)
	if err != nil {
		return // the cluster is read later, and says why it cannot be
	}
	node := &corev1.Node{}
	if reader.Get(ctx, client.ObjectKey{Name: r.Node}, node) == nil && node.Annotations[clusterv1.ClusterNamespaceAnnotation] == key.Namespace {
		r.Cluster, r.Machine = key.Name, node.Annotations[clusterv1.MachineAnnotation]
	}
}

// sufficient reports whether the machines that were read suffice: the machine is that of the node, and the status of its checks counts the
// others. They do not where there are NodeHealthChecks, which judge the machines of all nodes, and where no manager writes the status of a claimed check.
func (r *reading) sufficient(ctx context.Context, machine *clusterv1.Machine) bool {
	managers, err := managerlease.Of(ctx, r.snapshot.ReadOnly(), r.snapshot.Taken)
	cluster := cmp.Or(One[clusterv1.Cluster](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster}), &clusterv1.Cluster{})
	reconciled := func(check *clusterv1.MachineHealthCheck) bool {
		return err != nil || slices.ContainsFunc(managers, func(m managerlease.Manager) bool {
			off := m.StandsOff(check, cluster)
			return off.Reason == "" || off.Unknown()
		})
	}
	if len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 || r.NodeChecks || r.AllMachines {
		return false
	}
	if machine.Spec.ClusterName != r.Cluster || r.Node != "" && machine.Status.NodeRef.Name != r.Node {
		return false
	}
	claimed := func(check *clusterv1.MachineHealthCheck) bool {
		return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
	}
	return !slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, ""), func(check *clusterv1.MachineHealthCheck) bool {
		return machinehealthcheck.Unselected(check, machine) == "" &&
			(machinehealthcheck.Counted(check, cluster) == nil || claimed(check) && !reconciled(check))
	})
}

// metal3Machines are what stands between the machines that were read and are wanted, and their hosts.
func (r *reading) metal3Machines(wanted func(*clusterv1.Machine) bool) []query {
	var queries []query
	for _, machine := range All[clusterv1.Machine](r.snapshot, r.Namespace) {
		ref := machine.Spec.InfrastructureRef
		if ref.Kind == metal3MachineGVK.Kind && ref.APIGroup == infrav1.GroupVersion.Group && wanted(machine) {
			queries = append(queries, query{gvk: metal3MachineGVK, namespace: machine.Namespace, bare: !r.Owners, options: only(ref.Name)})
		}
	}
	return queries
}

// namedHosts are the hosts that the Metal3Machines name which were read, and the one in question.
func (r *reading) namedHosts() []query {
	var queries []query
	if r.Host != "" {
		queries = append(queries, query{gvk: hostGVK, namespace: r.Namespace, options: only(r.Host)})
	}
	for _, metal3Machine := range r.snapshot.Objects(metal3MachineGVK, "") {
		if namespace, name, whole := strings.Cut(metal3Machine.GetAnnotations()[infrav1.HostAnnotation], "/"); whole && namespace == r.Namespace {
			queries = append(queries, query{gvk: hostGVK, namespace: namespace, options: only(name)})
		}
	}
	return queries
}

// wayBack reads what tells whether the capacity of a machine is back that is lost: what makes its machines, those that it has, and the hosts that a
// new one may get, or that one which goes may lose.
func (r *reading) wayBack(ctx context.Context, machine *clusterv1.Machine) {
	set := capacity.Of(machine, machine.CreationTimestamp.Time)
	r.each(ctx, append(r.owners(),
		query{gvk: machineGVK, namespace: r.Namespace, options: []client.ListOption{client.MatchingLabels{set.LabelKey: set.LabelValue}}}))
	hosts := r.metal3Machines(func(m *clusterv1.Machine) bool { return !m.Status.NodeRef.IsDefined() || m.DeletionTimestamp != nil })
	if len(hosts) > 0 {
		r.each(ctx, append(hosts, query{gvk: hostGVK, namespace: r.Namespace}))
	}
}

// concerned tells the clusters whose nodes are read: with a machine that is, or that has the node.
func (r *reading) concerned() func(*clusterv1.Cluster) bool {
	clusters := map[client.ObjectKey]bool{}
	for _, m := range All[clusterv1.Machine](r.snapshot, "") {
		if r.Machine != "" || m.Status.NodeRef.Name == r.Node {
			clusters[client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ClusterName}] = true
		}
	}
	return func(c *clusterv1.Cluster) bool {
		return clusters[client.ObjectKeyFromObject(c)] || r.Node == "" && r.reads(client.ObjectKeyFromObject(c))
	}
}
