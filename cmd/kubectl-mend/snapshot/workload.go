package snapshot

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// workloadCluster is what was seen of a workload cluster.
type workloadCluster struct {
	// snapshot has its nodes; pods, budgets, volumes and leases are not read.
	snapshot *Snapshot
	// live reads it itself; nil in a record, and if it cannot be reached.
	live client.Reader
	// unseen is why its nodes were not seen, since is since when; empty if they were.
	unseen string
	since  time.Time
}

// Workload is a workload cluster, as a snapshot of its own.
func (w *Snapshot) Workload(cluster client.ObjectKey) *Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.workload(cluster).snapshot
}

// workload is a workload cluster, which is known from now on. The lock is held.
func (w *Snapshot) workload(cluster client.ObjectKey) *workloadCluster {
	if w.workloads[cluster] == nil {
		nodes := empty(w.scheme)
		nodes.kindFor(nodeGVK, "nodes", false)
		w.workloads[cluster] = &workloadCluster{snapshot: nodes, unseen: explain.NodesNotAsked}
	}
	return w.workloads[cluster]
}

// SetNodes says that a workload cluster was seen, and that these are its nodes.
func (w *Snapshot) SetNodes(cluster client.ObjectKey, nodes []corev1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.workloads, cluster)
	seen := w.workload(cluster)
	seen.unseen = ""
	for i := range nodes {
		_ = seen.snapshot.Add(&nodes[i]) // nodes are known by their type
	}
}

// SetUnseen says that a workload cluster cannot be seen, why, and since when; since may be zero. Its nodes are as they were.
func (w *Snapshot) SetUnseen(cluster client.ObjectKey, why string, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.workload(cluster)
	c.unseen, c.since = cmp.Or(why, explain.NodesNotAsked), since
}

// known is what is known of a workload cluster; one that was not seen if that is nothing.
func (w *Snapshot) known(cluster client.ObjectKey) workloadCluster {
	w.mu.RLock()
	defer w.mu.RUnlock()
	if c := w.workloads[cluster]; c != nil {
		return *c
	}
	return workloadCluster{snapshot: empty(w.scheme), unseen: explain.NodesNotAsked}
}

// Unseen says why the nodes of a workload cluster were not seen, and since when, if that is known; false if they were.
func (w *Snapshot) Unseen(cluster client.ObjectKey) (why string, since time.Time, unseen bool) {
	c := w.known(cluster)
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
	return All[corev1.Node](w.known(cluster).snapshot, "")
}

// Node returns a node of a workload cluster, or nil if there is none. It is shared: read only.
func (w *Snapshot) Node(cluster client.ObjectKey, name string) *corev1.Node {
	return One[corev1.Node](w.known(cluster).snapshot, client.ObjectKey{Name: name})
}

// Live reads a workload cluster itself, with the rights of the user, past what was seen of it. The error says why it cannot be asked.
func (w *Snapshot) Live(cluster client.ObjectKey) (client.Reader, error) {
	c := w.known(cluster)
	switch {
	case w.source == nil:
		return nil, errRecorded
	case c.live == nil:
		return nil, unseenError(cluster, cmp.Or(c.unseen, explain.NodesNotAsked))
	}
	return c.live, nil
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
