package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/workload"
)

// workloadCluster has what was read of a workload cluster: only nodes.
type workloadCluster struct {
	// counted is true if the Machines of the cluster were not all read, because the status of its checks already counts them. unselected is
	// how many of them no MachineHealthCheck selects.
	counted    bool
	unselected int

	Nodes map[string]*corev1.Node `json:"nodes,omitempty"`
	// Unseen is why the nodes could not be read; empty if they were.
	Unseen string `json:"unseen,omitempty"`
	// Since is since when the management cluster cannot reach the workload cluster, if that is known.
	Since time.Time `json:"since,omitzero"`
}

// SetNodes sets all nodes of a workload cluster.
func (s *Snapshot) SetNodes(cluster client.ObjectKey, nodes []corev1.Node) {
	seen := &workloadCluster{Nodes: map[string]*corev1.Node{}}
	for i := range nodes {
		seen.put(&nodes[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workloads[cluster] = seen
}

// PutNode adds or replaces a node of a workload cluster.
func (s *Snapshot) PutNode(cluster client.ObjectKey, node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workload(cluster).put(node)
}

// put stores a node, cut down by SlimNode: whoever controls the workload cluster decides how long its texts are, and pages print them.
func (c *workloadCluster) put(node *corev1.Node) {
	slim, _ := workload.SlimNode(node) // never fails for a Node
	own := slim.(*corev1.Node)
	own.SetGroupVersionKind(nodeGVK)
	c.Nodes[own.Name] = own
}

// workload returns a workload cluster, and adds it if needed. The caller holds the lock.
func (s *Snapshot) workload(cluster client.ObjectKey) *workloadCluster {
	if s.workloads[cluster] == nil {
		s.workloads[cluster] = &workloadCluster{Nodes: map[string]*corev1.Node{}, Unseen: explain.NodesNotAsked}
	}
	return s.workloads[cluster]
}

// SetUnseen notes why and since when the nodes of a workload cluster cannot be read; since may be zero. It keeps nodes that are there.
func (s *Snapshot) SetUnseen(cluster client.ObjectKey, why string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.workload(cluster)
	c.Unseen, c.Since = cmp.Or(why, explain.NodesNotAsked), since
}

// Counted reports whether the machines of a cluster were not all read, because the status of its checks already counts them. It also
// returns how many of them no MachineHealthCheck selects.
func (s *Snapshot) Counted(cluster client.ObjectKey) (unselected int, counted bool) {
	c := s.known(cluster)
	return c.unselected, c.counted
}

// SetCounted notes that the machines and nodes of a cluster are not all read, and how many machines no MachineHealthCheck selects.
func (s *Snapshot) SetCounted(cluster client.ObjectKey, unselected int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.workload(cluster)
	c.counted, c.unselected, c.Unseen = true, unselected, ""
}

// known returns a copy of a workload cluster. If nothing was read of it, Unseen is set.
func (s *Snapshot) known(cluster client.ObjectKey) workloadCluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.workloads[cluster]; c != nil {
		return *c
	}
	return workloadCluster{Unseen: explain.NodesNotAsked}
}

// Unseen returns whether the nodes of a workload cluster could not be read, why, and since when, if that is known.
func (s *Snapshot) Unseen(cluster client.ObjectKey) (why string, since time.Time, unseen bool) {
	c := s.known(cluster)
	return c.Unseen, c.Since, c.Unseen != ""
}

// Workloads returns the workload clusters that were read, or could not be read, sorted by name.
func (s *Snapshot) Workloads() []client.ObjectKey {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(s.workloads), compareKeys)
}

// Nodes returns the nodes of a workload cluster, sorted by name. Callers must not change them.
func (s *Snapshot) Nodes(cluster client.ObjectKey) []*corev1.Node {
	return slices.SortedFunc(maps.Values(s.known(cluster).Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
}

// Node returns a node of a workload cluster, or nil if it is not known. Callers must not change it.
func (s *Snapshot) Node(cluster client.ObjectKey, name string) *corev1.Node {
	return s.known(cluster).Nodes[name]
}

// Clusters gives the controllers the workload clusters of a snapshot, in place of workload.Clusters. A cluster whose nodes were not read
// counts as down.
type Clusters struct {
	*Snapshot

	// ClockAhead is how far the clock of the manager is ahead.
	ClockAhead time.Duration
}

// View returns the nodes that were read of a workload cluster. It watches nothing.
func (c Clusters) View(_ context.Context, cluster client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	view := workload.Seen(workload.Up, c.Nodes(cluster))
	if _, _, unseen := c.Unseen(cluster); unseen {
		view = workload.Seen(workload.Down, nil)
	}
	view.ClockAhead = c.ClockAhead
	return view, nil
}

// Doubt does nothing, because a snapshot does not read nodes again.
func (c Clusters) Doubt(client.ObjectKey, time.Time) {}

// NodesExist reports which of the named nodes a workload cluster has.
func (c Clusters) NodesExist(_ context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	if why, _, unseen := c.Unseen(cluster); unseen {
		return nil, fmt.Errorf("cluster %s cannot be read: %s", cluster, why)
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = c.Node(cluster, name) != nil
	}
	return present, nil
}

const (
	// reachPatience is how long a workload cluster may take until its answer begins, so that an unreachable cluster does not delay the
	// others. The whole answer may take as long as that of the management cluster.
	reachPatience = 5 * time.Second
	// longestAnswer limits an answer of a workload cluster, in bytes: a list of 4600 nodes with 50 images each fits. Without it, whoever
	// controls the cluster could fill the memory of the user's machine.
	longestAnswer = 96 << 20
)

// readNodesOf reads the nodes of a workload cluster, or notes why they could not be read.
func (r *source) readNodesOf(ctx context.Context, cluster *clusterv1.Cluster) error {
	key := client.ObjectKeyFromObject(cluster)
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		r.snapshot.SetUnseen(key, explain.ControlPlaneNotInitialized, time.Time{})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, err := r.nodes(ctx, cluster)
	if err != nil {
		since := time.Time{} // stays zero unless the management cluster cannot reach the cluster either
		probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
		if probe != nil && probe.Status != metav1.ConditionTrue {
			since = probe.LastTransitionTime.Time
		}
		r.snapshot.SetUnseen(key, why(err), since)
		return err
	}
	r.snapshot.SetNodes(key, nodes)
	return nil
}

func (r *source) nodes(ctx context.Context, cluster *clusterv1.Cluster) ([]corev1.Node, error) {
	key, list := client.ObjectKeyFromObject(cluster), &corev1.NodeList{}
	reader, err := r.workload(ctx, key)
	if err == nil {
		err = reader.List(ctx, list, fromMemory())
	}
	if err != nil {
		return nil, err
	}
	if kept := workload.Kept(cluster); kept != "" {
		if found, err := workload.UIDOf(ctx, reader); err == nil && kept != found { // an unreadable UID proves nothing
			return nil, &workload.ChangedError{Cluster: key, Kept: kept, Found: found}
		}
	}
	return list.Items, nil
}

// WorkloadReader returns a reader of a workload cluster, with the kubeconfig from the management cluster. It stores the kubeconfig nowhere.
func WorkloadReader(ctx context.Context, management client.Reader, cluster client.ObjectKey) (client.Reader, error) {
	data, err := kubeconfig.FromSecret(ctx, management, cluster)
	var config *rest.Config
	if err == nil {
		config, err = workload.RESTConfig(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	config.Timeout, config.QPS, config.WarningHandler = patience, -1, rest.NoWarnings{}
	config.Wrap(answering(reachPatience))
	config.Wrap(workload.Bounded(longestAnswer))
	reader, err := client.New(config, client.Options{Scheme: Scheme, Mapper: inWorkloads()})
	if err != nil {
		return nil, fmt.Errorf("use its kubeconfig: %w", err)
	}
	return reader, nil
}

// inWorkloads returns a mapper of the kinds that are read in workload clusters, so that no request for discovery is needed.
func inWorkloads() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk, scope := range map[schema.GroupVersionKind]meta.RESTScope{
		namespaceGVK: meta.RESTScopeRoot, nodeGVK: meta.RESTScopeRoot, attachmentGVK: meta.RESTScopeRoot,
		podGVK: meta.RESTScopeNamespace, budgetGVK: meta.RESTScopeNamespace, leaseGVK: meta.RESTScopeNamespace,
	} {
		mapper.Add(gvk, scope)
	}
	return mapper
}

// answering cancels requests whose answer has not begun in time. It does not limit how long the rest of the answer takes.
func answering(within time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) {
			ctx, end := context.WithCancel(request.Context()) // not canceled on success: the body of the answer is still read with it
			late := time.AfterFunc(within, end)
			response, err := next.RoundTrip(request.WithContext(ctx))
			if began := late.Stop(); began || request.Context().Err() != nil {
				return response, err
			}
			if response != nil {
				err = errors.Join(err, response.Body.Close())
			}
			return nil, errors.Join(err, context.DeadlineExceeded)
		})
	}
}
