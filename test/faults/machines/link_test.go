package machines

import (
	"context"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/workload"
	"github.com/kubemend/kubemend/test/inmemory"
)

const (
	// givenUp is after how many failed probes ClusterCache closes a connection.
	givenUp = 5
	// catchUp is how long a broken watch takes to be opened again after the cluster answers.
	catchUp = 3 * time.Second
)

var errCut = errors.New("the workload cluster does not answer")

// cluster is the workload cluster with its nodes, and whether it can be reached.
type cluster struct {
	clock *clocktesting.FakePassiveClock

	nodes   map[string]*corev1.Node // objects are replaced, never modified
	version int
	cutAt   time.Time // zero while the cluster can be reached
	backAt  time.Time
}

// sets sets the condition Ready of a node, with a transition some time ago.
func (c *cluster) sets(name string, ready corev1.ConditionStatus, since time.Duration) {
	c.version++
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(c.version)}}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: ready, Reason: "Test", LastTransitionTime: metav1.NewTime(c.clock.Now().Add(-since)),
	}}
	if since > 0 { // another Node of that name: what was observed of the former one would contradict this condition
		node.UID = types.UID(node.ResourceVersion)
	}
	c.nodes[name] = node
}

// connection simulates ClusterCache for one process of the manager.
type connection struct {
	clustercache.ClusterCache // nil: the controllers call only the methods below
	to                        *cluster
	nodes                     *nodeInformer // nil without a connection
	watched                   bool
}

// failures returns how many probes in a row have failed.
func (c *connection) failures() int {
	if c.to.cutAt.IsZero() {
		return 0
	}
	return int(c.to.clock.Now().Sub(c.to.cutAt) / workload.ProbeInterval)
}

// follow opens and closes connections, and delivers events of watches.
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

func (c *connection) GetHealthCheckingState(context.Context, client.ObjectKey) clustercache.HealthCheckingState {
	return clustercache.HealthCheckingState{ConsecutiveFailures: c.failures()}
}

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

func (c *connection) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if c.nodes == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return liveNodes{cluster: c.to}, nil
}

// nodeCache is the cache of one connection; it has only nodes.
type nodeCache struct {
	cache.Cache
	informer *nodeInformer
}

func (c nodeCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return c.informer, nil
}

// nodeInformer is an informer of nodes. It has the nodes that the test last gave it.
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
	_ = i.indexer.Replace(all, "") // an indexer accepts any object
}

func (i *nodeInformer) AddEventHandler(toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return nil, nil
}

func (i *nodeInformer) GetIndexer() toolscache.Indexer { return i.indexer }

func (i *nodeInformer) HasSynced() bool { return true }

func (i *nodeInformer) IsStopped() bool { return i.stopped }

// liveNodes reads the metadata of nodes without a cache.
type liveNodes struct {
	client.Client
	cluster *cluster
}

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

func (l liveNodes) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if !l.cluster.cutAt.IsZero() {
		return errCut
	}
	all := list.(*metav1.PartialObjectMetadataList)
	for _, node := range l.cluster.nodes {
		all.Items = append(all.Items,
			metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: node.Name, ResourceVersion: node.ResourceVersion}})
	}
	return nil
}

// syncedKinds is a cache of templates and requests that is always in sync.
type syncedKinds struct{ cache.Cache }

func (syncedKinds) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return &nodeInformer{}, nil
}

// noon is the beginning of every tale.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

var (
	requestKind  = schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: "Metal3Remediation"}
	templateKind = requestKind.GroupVersion().WithKind("Metal3RemediationTemplate")
)

// theScheme has all kinds, so that clients which share it never change it.
var theScheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, clusterv1.AddToScheme, mendv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	for _, kind := range []schema.GroupVersionKind{requestKind, templateKind} {
		s.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		s.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	metav1.AddToGroupVersion(s, requestKind.GroupVersion())
	return s
})

// newServer returns the API server of the management cluster. Like the garbage collector it deletes the requests of deleted machines.
func newServer(clock *clocktesting.FakePassiveClock) (*inmemory.Server, error) {
	kinds := []inmemory.Kind{
		{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), Global: true},
		{GroupVersionKind: mendv1.GroupVersion.WithKind(recordKind), Whole: true},
		{GroupVersionKind: requestKind}, {GroupVersionKind: templateKind},
	}
	for _, kind := range []string{"Cluster", "Machine", "MachineSet", "MachineHealthCheck"} {
		kinds = append(kinds, inmemory.Kind{GroupVersionKind: clusterv1.GroupVersion.WithKind(kind)})
	}
	s := inmemory.New(theScheme(), clock, kinds...)
	s.After = func(change inmemory.Change) {
		if change.Kind.Kind == "Machine" && change.Is == nil {
			_ = s.Delete(context.Background(), aRequest(change.Was.GetNamespace(), change.Was.GetName())) // if there is one
		}
	}
	return s, machinehealthcheck.AddIndexes(context.Background(), s)
}

func aRequest(namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(requestKind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func aTemplate(namespace, name string) *unstructured.Unstructured {
	o := aRequest(namespace, name)
	o.SetGroupVersionKind(templateKind)
	o.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
	return o
}

// ownedBy sets the managed fields of a machine's conditions, as far as these tests read them.
func ownedBy(owner string, m *clusterv1.Machine) {
	conditions := make([]string, 0, len(m.Status.Conditions))
	for _, c := range m.Status.Conditions {
		conditions = append(conditions, `"k:{\"type\":\"`+c.Type+`\"}":{}`)
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: owner, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1", Subresource: "status",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{` + strings.Join(conditions, ",") + `}}}`),
	}}
}
