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

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
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

// workloadCluster is what was seen of a workload cluster: pods, budgets, volumes and leases are not read.
type workloadCluster struct {
	Nodes map[string]*corev1.Node `json:"nodes,omitempty"`
	// Unseen is why its nodes were not seen, Since is since when; empty if they were.
	Unseen string    `json:"unseen,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// SetNodes says that a workload cluster was seen, and that these are its nodes.
func (s *Snapshot) SetNodes(cluster client.ObjectKey, nodes []corev1.Node) {
	seen := &workloadCluster{Nodes: map[string]*corev1.Node{}}
	for i := range nodes {
		seen.put(&nodes[i])
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workloads[cluster] = seen
}

// PutNode adds a node to a workload cluster, or replaces the one of its name.
func (s *Snapshot) PutNode(cluster client.ObjectKey, node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workload(cluster).put(node)
}

// put keeps what is looked at of a node: who controls the cluster decides how long names and texts are, and a page shows them.
func (c *workloadCluster) put(node *corev1.Node) {
	slim, _ := workload.SlimNode(node) // it returns an error of no node
	own := slim.(*corev1.Node)
	own.SetGroupVersionKind(nodeGVK)
	c.Nodes[own.Name] = own
}

// workload is a workload cluster, which is known from now on. The lock is held.
func (s *Snapshot) workload(cluster client.ObjectKey) *workloadCluster {
	if s.workloads[cluster] == nil {
		s.workloads[cluster] = &workloadCluster{Nodes: map[string]*corev1.Node{}, Unseen: explain.NodesNotAsked}
	}
	return s.workloads[cluster]
}

// SetUnseen says that a workload cluster cannot be seen, why, and since when; since may be zero. Its nodes are as they were.
func (s *Snapshot) SetUnseen(cluster client.ObjectKey, why string, since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.workload(cluster)
	c.Unseen, c.Since = cmp.Or(why, explain.NodesNotAsked), since
}

// known is what is known of a workload cluster; one that was not seen if that is nothing.
func (s *Snapshot) known(cluster client.ObjectKey) workloadCluster {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if c := s.workloads[cluster]; c != nil {
		return *c
	}
	return workloadCluster{Unseen: explain.NodesNotAsked}
}

// Unseen says why the nodes of a workload cluster were not seen, and since when, if that is known; false if they were.
func (s *Snapshot) Unseen(cluster client.ObjectKey) (why string, since time.Time, unseen bool) {
	c := s.known(cluster)
	return c.Unseen, c.Since, c.Unseen != ""
}

// Workloads are the workload clusters of which anything is known, also those that were not seen, in the order of their names.
func (s *Snapshot) Workloads() []client.ObjectKey {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.SortedFunc(maps.Keys(s.workloads), compareKeys)
}

// Nodes are those of a workload cluster, by name. They are shared: read only.
func (s *Snapshot) Nodes(cluster client.ObjectKey) []*corev1.Node {
	return slices.SortedFunc(maps.Values(s.known(cluster).Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
}

// Node returns a node of a workload cluster, or nil if there is none. It is shared: read only.
func (s *Snapshot) Node(cluster client.ObjectKey, name string) *corev1.Node {
	return s.known(cluster).Nodes[name]
}

// Clusters are the workload clusters of a snapshot, with what the controllers ask of workload.Clusters. One of which nothing was read
// counts as down.
type Clusters struct {
	*Snapshot

	// ClockAhead is how far the clock of the manager is ahead.
	ClockAhead time.Duration
}

// View is what was seen of a workload cluster. Nothing is watched.
func (c Clusters) View(_ context.Context, cluster client.ObjectKey, _ time.Time, _ ...clustercache.Watcher) (workload.View, error) {
	view := workload.Seen(workload.Up, c.Nodes(cluster))
	if _, _, unseen := c.Unseen(cluster); unseen {
		view = workload.Seen(workload.Down, nil)
	}
	view.ClockAhead = c.ClockAhead
	return view, nil
}

// Doubt does nothing: what was seen is no newer if it is looked at again.
func (c Clusters) Doubt(client.ObjectKey, time.Time) {}

// NodesExist says which of the named nodes a workload cluster has.
func (c Clusters) NodesExist(_ context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	if why, _, unseen := c.Unseen(cluster); unseen {
		return nil, fmt.Errorf("cluster %s cannot be asked: %s", cluster, why)
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = c.Node(cluster, name) != nil
	}
	return present, nil
}

const (
	// reachPatience is how long a workload cluster may take until it begins to answer. One that is out of reach must not hold up the others
	// for longer; all that it has to say may take as long as that of the management cluster.
	reachPatience = 5 * time.Second
	// longestAnswer is how long an answer of a workload cluster may be, in bytes: all nodes at once, 4600 of them with 50 images each. Who
	// controls the cluster decides what it answers, on the machine of the person who asks.
	longestAnswer = 96 << 20
)

func (r *source) readNodesOf(ctx context.Context, cluster *clusterv1.Cluster) {
	key := client.ObjectKeyFromObject(cluster)
	if !meta.IsStatusConditionTrue(cluster.Status.Conditions, clusterv1.ClusterControlPlaneInitializedCondition) {
		r.snapshot.SetUnseen(key, explain.ControlPlaneNotInitialized, time.Time{})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nodes, err := r.nodes(ctx, cluster)
	if err != nil {
		since := time.Time{} // since when the management cluster cannot reach it either
		probe := meta.FindStatusCondition(cluster.Status.Conditions, clusterv1.ClusterRemoteConnectionProbeCondition)
		if probe != nil && probe.Status != metav1.ConditionTrue {
			since = probe.LastTransitionTime.Time
		}
		r.snapshot.SetUnseen(key, why(err), since)
		r.snapshot.Lacks(NodesOf+key.String(), why(err))
		return
	}
	r.snapshot.SetNodes(key, nodes)
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
		if found, err := workload.UIDOf(ctx, reader); err == nil && kept != found { // what cannot be read says nothing
			return nil, &workload.ChangedError{Cluster: key, Kept: kept, Found: found}
		}
	}
	return list.Items, nil
}

// WorkloadReader reads a workload cluster with its kubeconfig from the management cluster, which is kept nowhere.
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

// inWorkloads knows the kinds that anybody reads in a workload cluster, so that none has to be asked which kinds it serves.
func inWorkloads() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		corev1.SchemeGroupVersion, policyv1.SchemeGroupVersion, storagev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
	})
	for _, gvk := range []schema.GroupVersionKind{namespaceGVK, nodeGVK, storagev1.SchemeGroupVersion.WithKind("VolumeAttachment")} {
		mapper.Add(gvk, meta.RESTScopeRoot)
	}
	for _, gvk := range []schema.GroupVersionKind{podGVK, budgetGVK, leaseGVK} {
		mapper.Add(gvk, meta.RESTScopeNamespace)
	}
	return mapper
}

// answering ends requests to which no answer has begun in time, however long the rest of it takes then.
func answering(within time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) {
			ctx, end := context.WithCancel(request.Context()) // while the answer is read, it lasts as long as the request
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
