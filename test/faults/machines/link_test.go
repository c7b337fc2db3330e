package machines

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/workload"
)

const (
	// givenUp is how many probes have to fail until ClusterCache closes a connection.
	givenUp = 5
	// catchUp is how long a watch takes that broke until it is made again, although probes are answered.
	catchUp = 3 * time.Second
)

var errCut = errors.New("the workload cluster does not answer")

// cluster is the workload cluster: its nodes, and the way to it.
type cluster struct {
	clock *clocktesting.FakePassiveClock

	nodes   map[string]*corev1.Node // never changed, but replaced
	version int
	cutAt   time.Time // zero while it can be reached
	backAt  time.Time
}

// sets gives a node the condition Ready, for some time already.
func (c *cluster) sets(name string, ready corev1.ConditionStatus, since time.Duration) {
	c.version++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(c.version)}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "Test", LastTransitionTime: metav1.NewTime(c.clock.Now().Add(-since)),
	}}
	if since > 0 { // it is another Node of that name: what was seen of the one before would contradict it
		node.UID = types.UID(node.ResourceVersion)
	}
	c.nodes[name] = node
}

// connection is ClusterCache, as one process of the manager has it.
type connection struct {
	clustercache.ClusterCache // of which nothing else is used
	to                        *cluster
	nodes                     *nodeInformer // nil while there is no connection
	watched                   bool
}

// failures are the probes in a row without an answer.
func (c *connection) failures() int {
	if c.to.cutAt.IsZero() {
		return 0
	}
	return int(c.to.clock.Now().Sub(c.to.cutAt) / workload.ProbeInterval)
}

// follow does what happens without the controllers: connections are made and closed, and watches deliver events.
func (c *connection) follow() {
	up := c.to.cutAt.IsZero()
	switch {
	case !up && c.nodes != nil && c.failures() >= givenUp:
		c.nodes.stopped, c.nodes = true, nil
	case up && c.nodes == nil:
		c.nodes, c.watched = &nodeInformer{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})}, false
		c.nodes.show(c.to.nodes)
	case up && !c.to.clock.Now().Before(c.to.backAt.Add(catchUp)):
		c.nodes.show(c.to.nodes)
	}
}

// GetHealthCheckingState implements clustercache.ClusterCache.
func (c *connection) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{ConsecutiveFailures: c.failures()}
}

// Watch implements clustercache.ClusterCache. The test enqueues the checks itself.
func (c *connection) Watch(_ context.Context, _ client.ObjectKey, w clustercache.Watcher) error {
	c.follow()
	if c.nodes == nil {
		return clustercache.ErrClusterNotConnected
	}
	if w.Name() != "kubemend-nodes" || c.watched {
		return nil
	}
	c.watched = true
	return w.Watch(nodeCache{informer: c.nodes})
}

// GetUncachedClient implements clustercache.ClusterCache.
func (c *connection) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if c.nodes == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return liveNodes{cluster: c.to}, nil
}

// nodeCache is the cache of one connection, of nodes alone.
type nodeCache struct {
	cache.Cache
	informer *nodeInformer
}

// GetInformer implements cache.Cache.
func (c nodeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

// nodeInformer is that of nodes. It shows what it was last made to.
type nodeInformer struct {
	toolscache.SharedIndexInformer
	indexer toolscache.Indexer
	shown   map[string]*corev1.Node
	stopped bool
}

func (i *nodeInformer) show(nodes map[string]*corev1.Node) {
	if maps.Equal(i.shown, nodes) {
		return
	}
	i.shown = maps.Clone(nodes)
	all := make([]any, 0, len(nodes))
	for _, node := range nodes {
		all = append(all, node)
	}
	_ = i.indexer.Replace(all, "") // it keeps objects of any kind
}

// AddEventHandler implements toolscache.SharedIndexInformer. What a handler of nodes does, no story here is about.
func (i *nodeInformer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

// GetIndexer implements toolscache.SharedIndexInformer.
func (i *nodeInformer) GetIndexer() toolscache.Indexer { return i.indexer }

// HasSynced implements toolscache.SharedIndexInformer.
func (i *nodeInformer) HasSynced() bool { return true }

// IsStopped implements toolscache.SharedIndexInformer.
func (i *nodeInformer) IsStopped() bool { return i.stopped }

// liveNodes reads the metadata of nodes past all caches.
type liveNodes struct {
	client.Client
	cluster *cluster
}

// Get implements client.Reader.
func (l liveNodes) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if !l.cluster.cutAt.IsZero() {
		return errCut
	}
	node, found := l.cluster.nodes[key.Name]
	if !found {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	}
	obj.SetName(node.Name)
	obj.SetResourceVersion(node.ResourceVersion)
	return nil
}

// List implements client.Reader.
func (l liveNodes) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if !l.cluster.cutAt.IsZero() {
		return errCut
	}
	all := list.(*metav1.PartialObjectMetadataList)
	for _, node := range l.cluster.nodes {
		all.Items = append(all.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: node.ResourceVersion}})
	}
	return nil
}

// syncedKinds is the cache of the kinds of templates and requests: each is watched, and its first list was read.
type syncedKinds struct{ cache.Cache }

// GetInformer implements cache.Cache.
func (syncedKinds) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &nodeInformer{}, nil
}
