package snapshot

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// workloadCluster is what was seen of a workload cluster.
type workloadCluster struct {
	snapshot *Snapshot
	// unseen is why its nodes were not, since is since when; empty if they were.
	unseen string
	since  time.Time
}

// inWorkloads are the kinds of a workload cluster that anybody looks at.
var inWorkloads = []installed{
	{corev1.SchemeGroupVersion.WithKind("Namespace"), "namespaces", false},
	{corev1.SchemeGroupVersion.WithKind("Node"), "nodes", false},
	{corev1.SchemeGroupVersion.WithKind("Pod"), "pods", true},
	{policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), "poddisruptionbudgets", true},
	{storagev1.SchemeGroupVersion.WithKind("VolumeAttachment"), "volumeattachments", false},
	{coordinationv1.SchemeGroupVersion.WithKind("Lease"), "leases", true},
}

// Workload is a workload cluster, as a snapshot of its own. It has nodes; pods, budgets, volumes and leases are not read.
func (w *Snapshot) Workload(cluster client.ObjectKey) *Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workload(cluster).snapshot
}

// workload is a workload cluster, which is known from now on. The lock is held.
func (w *Snapshot) workload(cluster client.ObjectKey) *workloadCluster {
	if w.workloads[cluster] == nil {
		w.workloads[cluster] = &workloadCluster{snapshot: empty(w.scheme, inWorkloads), unseen: explain.NodesNotAsked}
	}
	return w.workloads[cluster]
}

// SetNodes says that a workload cluster was seen, and that these are its nodes.
func (w *Snapshot) SetNodes(cluster client.ObjectKey, nodes []corev1.Node) {
	seen := &workloadCluster{snapshot: empty(w.scheme, inWorkloads)}
	for i := range nodes {
		_ = seen.snapshot.Add(&nodes[i]) // nodes are known by their type
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.workloads[cluster] = seen
}

// SetUnseen says that a workload cluster cannot be seen, why, and since when; since may be zero. Its nodes are as they were.
func (w *Snapshot) SetUnseen(cluster client.ObjectKey, why string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.workload(cluster)
	c.unseen, c.since = cmp.Or(why, explain.NodesNotAsked), since
}

// Unseen says why the nodes of a workload cluster were not seen, and since when, if that is known; false if they were.
func (w *Snapshot) Unseen(cluster client.ObjectKey) (why string, since time.Time, unseen bool) {
	w.mu.RLock()
	defer w.mu.RUnlock()
	c := w.workloads[cluster]
	if c == nil {
		return explain.NodesNotAsked, time.Time{}, true
	}
	return c.unseen, c.since, c.unseen != ""
}

// Workloads are the workload clusters of which anything is known, also those that were not seen, in the order of their names.
func (w *Snapshot) Workloads() []client.ObjectKey {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(w.workloads), compareKeys)
}

// Nodes are those of a workload cluster, by name. They are shared: read only.
func (w *Snapshot) Nodes(cluster client.ObjectKey) []*corev1.Node {
	if c := w.known(cluster); c != nil {
		return All[corev1.Node](c, "")
	}
	return nil
}

// Node returns a node of a workload cluster, or nil if there is none. It is shared: read only.
func (w *Snapshot) Node(cluster client.ObjectKey, name string) *corev1.Node {
	if c := w.known(cluster); c != nil {
		return One[corev1.Node](c, client.ObjectKey{Name: name})
	}
	return nil
}

// known is what was seen of a workload cluster; nil if nothing is known of it.
func (w *Snapshot) known(cluster client.ObjectKey) *Snapshot {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if c := w.workloads[cluster]; c != nil {
		return c.snapshot
	}
	return nil
}

// Clusters are the workload clusters of a snapshot, with what the controllers ask of workload.Clusters.
type Clusters struct{ snapshot *Snapshot }

// Clusters are the workload clusters. One of which nothing was read counts as down.
func (w *Snapshot) Clusters() *Clusters { return &Clusters{w} }

// View is what was seen of a workload cluster. Nothing is watched.
func (c *Clusters) View(_ context.Context, cluster client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	if _, _, unseen := c.snapshot.Unseen(cluster); unseen {
		return workload.Seen(workload.Down, nil), nil
	}
	nodes := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, node := range c.snapshot.Nodes(cluster) {
		_ = nodes.Add(node) // each has a key, which is its name
	}
	return workload.Seen(workload.Up, nodes), nil
}

// Doubt does nothing: what was seen is no newer if it is looked at again.
func (c *Clusters) Doubt(client.ObjectKey, time.Time) {}

// NodesExist says which of the named nodes a workload cluster has.
func (c *Clusters) NodesExist(_ context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	if why, _, unseen := c.snapshot.Unseen(cluster); unseen {
		return nil, unseenError(cluster, why)
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = c.snapshot.Node(cluster, name) != nil
	}
	return present, nil
}

// GetUncachedClient reads what was seen of a workload cluster.
func (c *Clusters) GetUncachedClient(_ context.Context, cluster client.ObjectKey) (client.Client, error) {
	if _, _, unseen := c.snapshot.Unseen(cluster); unseen {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.snapshot.Workload(cluster).ReadOnly(), nil
}

// Live reads a workload cluster itself, with the rights of the user, past what was seen of it. The error says why it cannot be asked.
func (w *Snapshot) Live(cluster client.ObjectKey) (client.Reader, error) {
	if w.source == nil {
		return nil, errRecorded
	}
	w.source.mu.Lock()
	defer w.source.mu.Unlock()
	if reader := w.source.live[cluster]; reader != nil {
		return reader, nil
	}
	why, _, _ := w.Unseen(cluster)
	return nil, unseenError(cluster, cmp.Or(why, explain.NodesNotAsked))
}
