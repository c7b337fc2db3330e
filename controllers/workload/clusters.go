// Package workload reads the workload clusters: their nodes from caches kept small,
// single nodes live, and whether a cluster can be asked at all.
//
// It decides nothing. The connections themselves are Cluster API's ClusterCache.
package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ProbeInterval is how often ClusterCache asks a connected cluster whether it is there. A probe that
// succeeds again after failures raises no event, so whoever waits for one looks again after this time.
const ProbeInterval = 10 * time.Second

// patience is how long to stay Unsure. A cluster that lets itself be probed but not be read, or that nobody tries to connect to,
// is as much out of reach as one that is silent.
const patience = time.Minute

// Link is the state of the connection to a workload cluster.
type Link int

const (
	// Unsure means that an answer is awaited: the connection is being made, the nodes are being listed for the
	// first time, or one probe went unanswered. Nodes cannot be judged, but nothing is lost yet.
	Unsure Link = iota
	// Up means that the last probe was answered and the cache is filled.
	Up
	// Down means that the cluster failed to answer at least twice.
	Down
)

// lost is the number of attempts in a row that have to fail for a cluster to count as Down. One alone is a dropped packet
// or a kubeconfig that was just rotated.
const lost = 2

// Clusters gives views of workload clusters. It is safe for concurrent use.
type Clusters struct {
	cache clustercache.ClusterCache
	// Kubeconfigs are those that the cache connects by. It may be nil.
	Kubeconfigs *Kubeconfigs

	mu     sync.Mutex
	fenced func(cluster client.ObjectKey) // see OnFenced
	nodes  map[client.ObjectKey]toolscache.SharedIndexInformer
	doubts map[client.ObjectKey]*doubt
}

// RBAC in the workload clusters. ClusterCache's probe asks for the path /.
// +kubebuilder:rbac:urls=/,verbs=get
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get;list;watch
// ClusterCache asks a cluster for the pod that it runs in, to know whether that is its own cluster. Refused, it does not connect.
// +kubebuilder:rbac:groups=core,resources=pods,verbs=get

// NewClusters returns the workload clusters that cc connects to.
func NewClusters(cc clustercache.ClusterCache) *Clusters {
	return &Clusters{
		cache: cc, nodes: map[client.ObjectKey]toolscache.SharedIndexInformer{}, doubts: map[client.ObjectKey]*doubt{},
	}
}

// View is one look at a workload cluster.
type View struct {
	Link Link
	// Recheck is how long to wait before looking again if no event comes; zero if one will.
	Recheck time.Duration
	// Refused is why nobody connects to the cluster, if that is because of its kubeconfig.
	Refused *RefusedError

	nodes Store
}

// Store is where the nodes of a view are kept, by name.
type Store interface {
	GetByKey(name string) (node any, exists bool, err error)
}

// Seen is a view of nodes that are kept elsewhere than in a cache, such as by somebody who has read them once. nodes holds *corev1.Node, which
// nobody changes; it is not asked unless link is Up.
func Seen(link Link, nodes Store) View { return View{Link: link, nodes: nodes} }

// Node returns the node of that name, or nil if the cache has none. The node is
// shared: it must not be changed. It is an error of the caller to ask while the link is not Up.
func (v View) Node(name string) *corev1.Node {
	obj, exists, err := v.nodes.GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// View looks at cluster, at now, and makes sure that watches on its nodes are in place. It asks the cluster itself only after
// an outage, whether the cache has caught up.
func (c *Clusters) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (View, error) {
	health := c.cache.GetHealthCheckingState(ctx, cluster)
	connected := true
	for _, w := range append(watches, nodeStore{clusters: c, cluster: cluster}) {
		err := c.cache.Watch(ctx, cluster, w)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			connected = false
			break
		}
		if err != nil {
			return View{}, fmt.Errorf("watch nodes of cluster %s: %w", cluster, err)
		}
	}
	informer, d := c.look(cluster, now, connected && health.ConsecutiveFailures == 0)
	switch {
	case d == nil:
		return View{Link: Up, nodes: informer.GetIndexer()}, nil
	case d.answered && c.caughtUp(ctx, cluster, d, informer.GetIndexer()):
		c.settle(cluster)
		return View{Link: Up, nodes: informer.GetIndexer()}, nil
	}
	v := d.view(now, connected, health)
	if c.Kubeconfigs != nil && !connected {
		if v.Refused = c.Kubeconfigs.Refused(cluster); v.Refused != nil {
			v.Link, v.Recheck = Down, refusedInterval
		}
	}
	return v, nil
}

// refusedInterval is how often to look whether a kubeconfig is still refused for the same entry: ClusterCache reads it again after 30 seconds, and tells
// nobody.
const refusedInterval = 30 * time.Second

// singly is the number of nodes up to which each is asked for; beyond it, one list is less work for the API server.
const singly = 5

// NodesExist asks the workload cluster itself, past the cache, which of the named nodes it has.
func (c *Clusters) NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	present := make(map[string]bool, len(names))
	if len(names) > singly {
		list, err := c.listNodes(ctx, cluster)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			present[list.Items[i].Name] = true
		}
		return present, nil
	}
	for _, name := range names {
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		err := live.Get(ctx, client.ObjectKey{Name: name}, node)
		if err != nil && !saysGone(err, name) {
			return nil, fmt.Errorf("ask cluster %s for node %q: %w", cluster, name, err)
		}
		present[name] = err == nil
	}
	return present, nil
}

// saysGone reports whether err is the API server's word that it has no node of that name. Another 404 is not: proxies and load balancers send it when
// there is no API server behind them, and the client takes it for one about what was asked for.
func saysGone(err error, node string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return false
	}
	about := status.Status().Details
	return about != nil && about.Group == "" && about.Kind == "nodes" && about.Name == node
}

// listNodes asks the workload cluster itself, past the cache, for the metadata of its nodes.
func (c *Clusters) listNodes(ctx context.Context, cluster client.ObjectKey) (*metav1.PartialObjectMetadataList, error) {
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the nodes of cluster %s: %w", cluster, err)
	}
	return list, nil
}

// nodeStore remembers where the nodes of a cluster are cached. ClusterCache calls it once for every connection it makes, so after a
// reconnect the new cache takes the place of the old one.
type nodeStore struct {
	clusters *Clusters
	cluster  client.ObjectKey
}

// Name identifies the watch; ClusterCache adds one of a name only once to a connection.
func (nodeStore) Name() string { return "kubemend-nodes" }

// Object is the kind that is watched.
func (nodeStore) Object() client.Object { return &corev1.Node{} }

// Watch takes hold of the informer of nodes. It must not block: ClusterCache holds a lock meanwhile.
func (s nodeStore) Watch(nodes cache.Cache) error {
	informer, err := nodes.GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache nodes of cluster %s: %w", s.cluster, err)
	}
	shared, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return fmt.Errorf("cache nodes of cluster %s: the informer is a %T and cannot be read", s.cluster, informer)
	}
	s.clusters.keep(s.cluster, shared)
	if _, err := shared.AddEventHandler(s.tellFenced()); err != nil {
		return fmt.Errorf("watch nodes of cluster %s: %w", s.cluster, err)
	}
	return nil
}

func (c *Clusters) keep(cluster client.ObjectKey, nodes toolscache.SharedIndexInformer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropStopped()
	c.nodes[cluster] = nodes
}
