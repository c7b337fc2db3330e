package workload

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

const (
	// byProviderID is the index of a node cache by provider ID in lower case.
	byProviderID = "kubemend.providerID"
	// singly is up to how many nodes are read one by one. For more nodes, one list is less work for the API server.
	singly = 5
	// nodesPerPage and mostPages limit a live list of nodes. They allow more nodes than Kubernetes supports.
	nodesPerPage, mostPages = 500, 200
)

func providerIDs(obj any) ([]string, error) {
	if node, ok := obj.(*corev1.Node); ok && node.Spec.ProviderID != "" {
		return []string{strings.ToLower(node.Spec.ProviderID)}, nil
	}
	return nil, nil
}

// Node returns the node of that name, or nil if the cache does not have it. The node must not be changed. The Link must be Up.
func (v View) Node(name string) *corev1.Node {
	obj, exists, err := v.nodes.GetByKey(name)
	if err != nil || !exists {
		return nil
	}
	return obj.(*corev1.Node)
}

// NodeOf returns the node of m, or another node because of which it is not known: see health.NodeOf. Neither must be changed. If the cache
// does not have the node in the status of m, NodeOf looks for a node with the name of m.
func (v View) NodeOf(m *clusterv1.Machine) (node, other *corev1.Node) {
	var named *corev1.Node
	if m.Status.NodeRef.Name != "" {
		named = v.Node(m.Status.NodeRef.Name)
	}
	if named == nil {
		named = v.Node(m.Name)
	}
	var provided []*corev1.Node
	if m.Spec.ProviderID != "" {
		objects, _ := v.nodes.ByIndex(byProviderID, strings.ToLower(m.Spec.ProviderID)) // fails only without this index
		for _, obj := range objects {
			provided = append(provided, obj.(*corev1.Node))
		}
		slices.SortFunc(provided, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	return health.NodeOf(m, named, provided)
}

// Identified returns the nodes in the cache if all have provider IDs that differ, or else nil. If a Machine has not changed and its node is
// still in the set, NodeOf would return the same node again. To look it up in the set costs a tenth of NodeOf.
func (v View) Identified() sets.Set[any] {
	nodes := v.nodes.List()
	if len(v.nodes.ListIndexFuncValues(byProviderID)) != len(nodes) {
		return nil
	}
	return sets.New(nodes...)
}

// NodesExist asks the workload cluster's API server which of the named nodes exist. The deadline of ctx is for all requests together.
func (c *Clusters) NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	present := make(map[string]bool, len(names))
	if len(names) > singly {
		versions, err := c.nodeVersions(ctx, cluster)
		for name := range versions {
			present[name] = true
		}
		return present, err
	}
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	for _, name := range names {
		// A list instead of a get: proxies and load balancers without an API server behind them send 404, which a get takes for a missing
		// node.
		list := nodeMetadata()
		if err := live.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
			return nil, fmt.Errorf("ask cluster %s for node %q: %w", cluster, name, err)
		}
		named := func(node metav1.PartialObjectMetadata) bool { return node.Name == name } // a simulated server may ignore the selector
		present[name] = slices.ContainsFunc(list.Items, named)
	}
	return present, nil
}

func nodeMetadata() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	return list
}

// nodeVersions reads the names and resourceVersions of all nodes from the API server of the workload cluster.
func (c *Clusters) nodeVersions(ctx context.Context, cluster client.ObjectKey) (map[string]string, error) {
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	versions, page := map[string]string{}, ""
	for range mostPages {
		list := nodeMetadata()
		if err := live.List(ctx, list, client.Limit(nodesPerPage), client.Continue(page)); err != nil {
			return nil, fmt.Errorf("list the nodes of cluster %s: %w", cluster, err)
		}
		for i := range list.Items {
			versions[list.Items[i].Name] = list.Items[i].ResourceVersion
		}
		if page = list.Continue; page == "" {
			return versions, nil
		}
	}
	return nil, fmt.Errorf("list the nodes of cluster %s: there are more than %d", cluster, nodesPerPage*mostPages)
}

// NodeWatch is a watch of a running controller on the nodes of one workload cluster. The controller gets all events of a node after the
// first View that shows the node; with clustercache.NewWatcher it could miss some (see enqueue.Informed).
type NodeWatch struct {
	// ID is unique among the watches on a cluster.
	ID         string
	Controller clustercache.SourceWatcher[reconcile.Request]
	Hears      handler.TypedEventHandler[*corev1.Node, reconcile.Request]
	Predicate  predicate.TypedPredicate[*corev1.Node]

	begin func(nodes cache.Cache, informer cache.Informer) error // called in place of Controller.Watch if it is not nil
}

// Name returns the ID. ClusterCache adds only one watch of a name to a connection.
func (w NodeWatch) Name() string { return w.ID }

// Object returns an object of the watched kind.
func (NodeWatch) Object() client.Object { return &corev1.Node{} }

// Watch begins the watch. It must not block, because ClusterCache holds a lock.
func (w NodeWatch) Watch(nodes cache.Cache) error {
	informer, err := nodes.GetInformer(context.Background(), &corev1.Node{}, cache.BlockUntilSynced(false))
	switch {
	case err != nil:
	case w.begin != nil:
		err = w.begin(nodes, informer)
	default:
		return w.Controller.Watch(enqueue.Informed(informer, w.Hears, w.Predicate))
	}
	if err != nil {
		return fmt.Errorf("watch nodes for %s: %w", w.ID, err)
	}
	return nil
}

// store returns a watch that stores the node cache of a cluster in c. ClusterCache begins the watch for every connection, so the cache of a
// new connection replaces the old cache.
//
// A hostile server can invent nodes in a watch. If a cache has more nodes than would fit into a response, store drops the cache, and the
// cluster counts as unreachable until ClusterCache reconnects.
func (c *Clusters) store(cluster client.ObjectKey) NodeWatch {
	return NodeWatch{ID: "kubemend-nodes", begin: func(nodes cache.Cache, informer cache.Informer) error {
		shared, ok := informer.(toolscache.SharedIndexInformer)
		if !ok {
			return fmt.Errorf("the informer is a %T and cannot be read", informer)
		}
		if shared.GetIndexer().GetIndexers()[byProviderID] == nil {
			if err := shared.GetIndexer().AddIndexers(toolscache.Indexers{byProviderID: providerIDs}); err != nil {
				return err
			}
		}
		c.keepNodes(cluster, shared)
		var count atomic.Int64
		_, err := shared.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) {
				if most := c.Transports.limit / bytesPerItem; count.Add(1) == most+1 && most > 0 {
					err := nodes.RemoveInformer(context.Background(), &corev1.Node{})
					log.Log.Error(err, "A cluster has more nodes than --clustercache-response-limit allows for; they cannot be judged",
						"Cluster", cluster, "most", most)
				}
			},
			DeleteFunc: func(any) { count.Add(-1) },
		})
		return err
	}}
}

func (c *Clusters) keepNodes(cluster client.ObjectKey, nodes toolscache.SharedIndexInformer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, state := range c.states {
		state.dropStopped() // of clusters that View is not called for any more
	}
	state := c.of(cluster)
	state.nodes = nodes
	state.connection++
}

// Fenced returns the nodes with the annotation fenced-by, by Cluster, from the existing caches of workload clusters. They are slim, and
// must not be changed.
func (c *Clusters) Fenced() map[client.ObjectKey][]*corev1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	fenced := map[client.ObjectKey][]*corev1.Node{}
	for cluster, state := range c.states {
		if state.nodes == nil || state.nodes.IsStopped() || !state.nodes.HasSynced() {
			continue
		}
		for _, obj := range state.nodes.GetStore().List() {
			if node := obj.(*corev1.Node); node.Annotations[mendv1.FencedByAnnotation] != "" {
				fenced[cluster] = append(fenced[cluster], node)
			}
		}
	}
	return fenced
}
