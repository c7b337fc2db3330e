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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ProbeInterval is how often ClusterCache asks a connected cluster whether it is there. A probe that
// succeeds again after failures raises no event, so whoever waits for one looks again after this time.
const ProbeInterval = 10 * time.Second

// syncInterval is how often to look again while the first list of nodes is being read, which is a matter
// of a second. There is an event for each node, but none for "that was all".
const syncInterval = 250 * time.Millisecond

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

	mu    sync.RWMutex
	nodes map[client.ObjectKey]toolscache.SharedIndexInformer
}

// NewClusters returns the workload clusters that cc connects to.
func NewClusters(cc clustercache.ClusterCache) *Clusters {
	return &Clusters{cache: cc, nodes: map[client.ObjectKey]toolscache.SharedIndexInformer{}}
}

// View is one look at a workload cluster.
type View struct {
	Link Link
	// LastSeen is when the cluster last answered; zero if it never did.
	LastSeen time.Time
	// Recheck is how long to wait before looking again if no event comes; zero while Up.
	Recheck time.Duration

	nodes toolscache.Indexer
}

// Node returns the node of that name, or nil if the cache has none. The node is
// shared: it must not be changed. It is an error of the caller to ask while the link is not Up.
func (v View) Node(name string) *corev1.Node {
	obj, exists, err := v.nodes.GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// View looks at cluster and makes sure that watches on its nodes are in place. No call of it blocks on the network.
func (c *Clusters) View(ctx context.Context, cluster client.ObjectKey, watches ...clustercache.Watcher) (View, error) {
	health := c.cache.GetHealthCheckingState(ctx, cluster)
	v := View{Link: Unsure, LastSeen: health.LastProbeSuccessTime}
	if health.ConsecutiveFailures >= lost {
		v.Link = Down
	}
	for _, w := range append(watches, c.store(cluster)) {
		switch err := c.cache.Watch(ctx, cluster, w); {
		case errors.Is(err, clustercache.ErrClusterNotConnected):
			if v.Link == Unsure && health.ConsecutiveFailures > 0 {
				v.Recheck = ProbeInterval // whether the next attempt failed too is told by no event, that it succeeded is
			}
			return v, nil
		case err != nil:
			return View{}, fmt.Errorf("watch nodes of cluster %s: %w", cluster, err)
		}
	}
	if health.ConsecutiveFailures > 0 {
		v.Recheck = ProbeInterval
		return v, nil
	}
	c.mu.RLock()
	informer := c.nodes[cluster]
	c.mu.RUnlock()
	if informer == nil || !informer.HasSynced() {
		v.Recheck = syncInterval
		return v, nil
	}
	v.Link, v.nodes = Up, informer.GetIndexer()
	return v, nil
}

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
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := live.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list the nodes of cluster %s: %w", cluster, err)
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
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("ask cluster %s for node %q: %w", cluster, name, err)
		}
		present[name] = err == nil
	}
	return present, nil
}

// Forget drops what is kept of a cluster that no longer exists. Of one that merely nobody looks at for a while it must
// not be called: ClusterCache calls a store only once for every connection.
func (c *Clusters) Forget(cluster client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, cluster)
}

// store returns the watcher that remembers where the nodes of cluster are cached. ClusterCache calls it once
// for every connection it makes, so after a reconnect the new cache takes the place of the old one.
func (c *Clusters) store(cluster client.ObjectKey) clustercache.Watcher {
	return nodeStore{clusters: c, cluster: cluster}
}

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
	s.clusters.mu.Lock()
	defer s.clusters.mu.Unlock()
	s.clusters.nodes[s.cluster] = shared
	return nil
}
