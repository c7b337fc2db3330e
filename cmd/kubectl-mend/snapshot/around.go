package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// around reads what explains one machine, or the machine of one node.  The status of the check counts all other machines, so only this one
// is read, and those of the control plane, whose hosts are power-cycled one at a time.
func (r *reading) around(ctx context.Context) {
	r.each(ctx, append(r.clusters(), r.first()...))
	r.each(ctx, r.vouching())
	r.machineOfNode(ctx)
	if r.Machine != "" {
		r.each(ctx, r.oneMachine())
	}
	if r.Machine != "" && r.sufficient(ctx) {
		r.snapshot.SetCounted(client.ObjectKey{Namespace: r.Namespace, Name: r.Cluster})
		r.each(ctx, r.metal3Machines())
		r.each(ctx, r.namedHosts())
		r.wayBack(ctx)
		r.each(ctx, r.recordsOfNew())
	} else {
		r.Machine = ""
		r.each(ctx, slices.Concat(r.machines(), r.hosts(), r.owners(), r.records()))
	}
	r.each(ctx, append(r.second(ctx), r.controlPlanes()...))
	r.beyond(ctx)
	if r.Nodes {
		r.workloads(ctx, r.concerned())
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

// oneMachine reads the machine in question, and the control plane.
func (r *reading) oneMachine() []task {
	return []task{
		{gvk: machineGVK, namespace: r.Namespace, options: named(r.Machine)},
		{gvk: machineGVK, namespace: r.Namespace, options: append(r.labelled(), client.HasLabels{clusterv1.MachineControlPlaneLabel})},
	}
}

func named(name string) []client.ListOption {
	return []client.ListOption{client.MatchingFields{"metadata.name": name}}
}

// sufficient reports whether the machines that were read suffice: the machine is there, it is that of the node, and the status of its checks counts the
// others. They do not where there are NodeHealthChecks, which judge the machines of all nodes, and where no manager writes the status of a claimed check.
func (r *reading) sufficient(ctx context.Context) bool {
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
	m := One[clusterv1.Machine](r.snapshot, client.ObjectKey{Namespace: r.Namespace, Name: r.Machine})
	if m == nil || m.Spec.ClusterName != r.Cluster || r.Node != "" && m.Status.NodeRef.Name != r.Node {
		return false
	}
	claimed := func(check *clusterv1.MachineHealthCheck) bool {
		return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
	}
	return !slices.ContainsFunc(All[clusterv1.MachineHealthCheck](r.snapshot, ""), func(check *clusterv1.MachineHealthCheck) bool {
		return machinehealthcheck.Unselected(check, m) == "" &&
			(machinehealthcheck.Counted(check, cluster) == nil || claimed(check) && !reconciled(check))
	})
}

// metal3Machines are what stands between the machines that were read and their hosts.
func (r *reading) metal3Machines() []task {
	var tasks []task
	for _, m := range All[clusterv1.Machine](r.snapshot, "") {
		if ref := m.Spec.InfrastructureRef; ref.Kind == metal3MachineGVK.Kind && ref.APIGroup == infrav1.GroupVersion.Group {
			tasks = append(tasks, task{gvk: metal3MachineGVK, namespace: m.Namespace, bare: !r.Owners, options: named(ref.Name)})
		}
	}
	return tasks
}

// namedHosts are the hosts that the Metal3Machines name which were read, and the one in question.
func (r *reading) namedHosts() []task {
	var tasks []task
	if r.Host != "" {
		tasks = append(tasks, task{gvk: hostGVK, namespace: r.Namespace, options: named(r.Host)})
	}
	for _, between := range r.snapshot.Objects(metal3MachineGVK, "") {
		if namespace, name, whole := strings.Cut(between.GetAnnotations()[infrav1.HostAnnotation], "/"); whole && namespace == r.Namespace {
			tasks = append(tasks, task{gvk: hostGVK, namespace: namespace, options: named(name)})
		}
	}
	return tasks
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
