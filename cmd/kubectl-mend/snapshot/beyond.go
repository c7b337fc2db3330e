package snapshot

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// beyond reads what is out of scope and what NodeHealthChecks are judged by all the same: the Machines of the nodes of the management cluster, in all
// namespaces, with their Clusters, and the MachineHealthChecks that may select them. What explains these checks is read as well, since a record does
// not say why they are in it.
func (r *reading) beyond(ctx context.Context) {
	clusters := r.clustersOfNodes()
	tasks := make([]task, 0, 3*len(clusters))
	for _, is := range clusters {
		tasks = append(tasks,
			task{gvk: clusterGVK, namespace: is.Namespace, keep: ofCluster(is.Name)},
			task{gvk: machineCheckGVK, namespace: is.Namespace, keep: ofCluster(is.Name)},
			task{gvk: machineGVK, namespace: is.Namespace, options: []client.ListOption{client.MatchingLabels{clusterv1.ClusterNameLabel: is.Name}}})
	}
	r.each(ctx, tasks)
	named := naming{}
	among := func(namespace, cluster string) bool {
		return slices.Contains(clusters, client.ObjectKey{Namespace: namespace, Name: cluster})
	}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		if among(check.Namespace, check.Spec.ClusterName) {
			named.addOf(check, check.Namespace)
		}
	}
	r.each(ctx, r.tasks(named))
	if r.Nodes && r.Node == "" && r.Machine == "" { // else the clusters of that node are read in the end
		r.workloads(ctx, func(c *clusterv1.Cluster) bool { return among(c.Namespace, c.Name) })
	}
}

// clustersOfNodes are the Clusters that the nodes of the management cluster say they are of, but for those in scope.
func (r *reading) clustersOfNodes() []client.ObjectKey {
	var clusters []client.ObjectKey
	for _, node := range All[corev1.Node](r.snapshot, "") {
		is := client.ObjectKey{Namespace: node.Annotations[clusterv1.ClusterNamespaceAnnotation], Name: node.Annotations[clusterv1.ClusterNameAnnotation]}
		if is.Namespace != "" && is.Name != "" && !r.reads(is) && !slices.Contains(clusters, is) {
			clusters = append(clusters, is)
		}
	}
	slices.SortFunc(clusters, compareKeys)
	return clusters
}

// reads reports whether a Cluster is in scope, and with it all that belongs to it.
func (s *Scope) reads(cluster client.ObjectKey) bool {
	return (s.Namespace == "" || s.Namespace == cluster.Namespace) && (s.Cluster == "" || s.Cluster == cluster.Name)
}

// ofCluster keeps what belongs to the Cluster of a name; everything if that is empty.
func ofCluster(name string) func(client.Object) bool {
	return func(obj client.Object) bool {
		switch o := obj.(type) {
		case *clusterv1.Cluster:
			return name == "" || o.Name == name
		case *clusterv1.MachineHealthCheck:
			return name == "" || o.Spec.ClusterName == name
		}
		return true
	}
}
