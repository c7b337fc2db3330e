// Package workload reads the workload clusters through the connections of Cluster API's ClusterCache: their nodes from caches kept small, single nodes
// live, and whether a cluster can be reached at all. It decides nothing.
package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/clockerror"
)

// ProbeInterval is how often ClusterCache asks a connected cluster whether it is there. A probe that
// succeeds again after failures raises no event, so its users read again after this time.
const ProbeInterval = 10 * time.Second

// patience is how long to stay Unsure. A cluster that lets itself be probed but not be read, or that ClusterCache does not try to connect to,
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
	// MostNodes is how many nodes a cluster may have; 0 for any number.
	MostNodes int64
	// Server is the API server of the management cluster, whose clock is held against that of this process. It may be nil.
	Server *clockerror.Server
	// Management has the Clusters, which keep which workload cluster they are. It may be nil: none does then.
	Management client.Client

	mu     sync.Mutex
	fenced func(cluster client.ObjectKey) // see OnFenced
	states map[client.ObjectKey]*state
}

// state is what is kept of one cluster.
type state struct {
	nodes    toolscache.SharedIndexInformer // the cache of its nodes; nil while there is none
	doubt    *doubt                         // about that cache; nil if there is none
	identity identity
}

// of returns the state of a cluster. The mutex is held.
func (c *Clusters) of(cluster client.ObjectKey) *state {
	if c.states[cluster] == nil {
		c.states[cluster] = &state{}
	}
	return c.states[cluster]
}

// RBAC in the workload clusters. ClusterCache's probe asks for the path /.
// +kubebuilder:rbac:urls=/,verbs=get
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get;list;watch
// ClusterCache asks a cluster for the pod that it runs in, to know whether that is its own cluster. Refused, it does not connect.
// +kubebuilder:rbac:groups=core,resources=pods,verbs=get

// NewClusters returns the workload clusters that cc connects to.
func NewClusters(cc clustercache.ClusterCache) *Clusters {
	return &Clusters{cache: cc, states: map[client.ObjectKey]*state{}}
}

// View is a workload cluster as it was read once.
type View struct {
	Link Link
	// Recheck is how long to wait before looking again if no event comes; zero if one will.
	Recheck time.Duration
	// Refused is why ClusterCache does not connect to the cluster, if that is because of its kubeconfig.
	Refused *RefusedError
	// Silent says that the cluster answers probes, and leaves other requests unanswered, or answers them without end: it is Down for that.
	Silent bool
	// Changed is a ChangedError if another workload cluster answers: it is Down for that.
	Changed error
	// ClockAhead is how far the clock of this process is ahead of that of the cluster's API server, or of the management cluster's, if that error is
	// larger; less than 0 if it is behind, 0 up to 30 s. A cluster that is not Up has no say in it.
	ClockAhead time.Duration

	nodes Store
	ids   func() map[string][]*corev1.Node // of nodes that have no index: by provider ID, in lower case
}

// Store is where the nodes of a view are kept, by name.
type Store interface {
	GetByKey(name string) (node any, exists bool, err error)
	List() []any
}

// Seen is a view of nodes that are kept elsewhere than in a cache, such as by somebody who has read them once. nodes holds *corev1.Node, which
// is not changed; it is not asked unless link is Up.
func Seen(link Link, nodes Store) View {
	return View{Link: link, nodes: nodes, ids: sync.OnceValue(func() map[string][]*corev1.Node { return byID(nodes.List()) })}
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

// View looks at cluster, at now, and makes sure that watches on its nodes are in place. It asks the cluster itself only after
// an outage, whether the cache has caught up. A cluster that leaves requests unanswered is Down, and is asked that as often as its circuit lets it be.
func (c *Clusters) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (View, error) {
	view, err := c.view(ctx, cluster, now, watches)
	if err == nil && c.Management != nil {
		view = c.identified(ctx, cluster, view, now)
	}
	if route := c.Kubeconfigs.route(cluster); view.Link == Up && route != nil { // else its last answer may be old, or of a proxy
		view.ClockAhead = route.answers.clock.Ahead()
	}
	if c.Server != nil {
		if ahead := c.Server.Ahead(); ahead.Abs() > view.ClockAhead.Abs() {
			view.ClockAhead = ahead
		}
	}
	if view.ClockAhead != 0 && view.Recheck == 0 {
		view.Recheck = ProbeInterval // nothing tells that a clock was set
	}
	return view, err
}

// view is the View of whatever cluster answers.
func (c *Clusters) view(ctx context.Context, cluster client.ObjectKey, now time.Time, watches []clustercache.Watcher) (View, error) {
	health := c.cache.GetHealthCheckingState(ctx, cluster)
	connected, err := c.watch(ctx, cluster, append(watches, nodeStore{clusters: c, cluster: cluster}))
	if err != nil {
		return View{}, err
	}
	silent, rests := c.silent(cluster, now)
	if silent {
		c.Doubt(cluster, now) // the list of nodes that ends the doubt is the trial
	}
	informer, d := c.look(cluster, now, connected && health.ConsecutiveFailures == 0 && !rests)
	switch {
	case d == nil:
		return View{Link: Up, nodes: informer.GetIndexer()}, nil
	case d.answered && c.caughtUp(ctx, cluster, d, informer.GetIndexer()):
		c.mu.Lock()
		defer c.mu.Unlock()
		c.of(cluster).doubt = nil
		return View{Link: Up, nodes: informer.GetIndexer()}, nil
	}
	v := d.view(now, connected, health)
	if silent && connected {
		v.Link, v.Silent = Down, true
	}
	if !connected {
		if v.Refused = c.Kubeconfigs.Refused(cluster); v.Refused != nil {
			v.Link, v.Recheck = Down, refusedInterval
		}
	}
	return v, nil
}

// watch makes sure that watches are in place, and reports whether the cluster is connected.
func (c *Clusters) watch(ctx context.Context, cluster client.ObjectKey, watches []clustercache.Watcher) (connected bool, err error) {
	for _, w := range watches {
		err := c.cache.Watch(ctx, cluster, w)
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("watch nodes of cluster %s: %w", cluster, err)
		}
	}
	return true, nil
}

// silent reports whether a cluster leaves requests unanswered at now, and whether so much so that it is not even tried.
func (c *Clusters) silent(cluster client.ObjectKey, now time.Time) (open, rests bool) {
	route := c.Kubeconfigs.route(cluster)
	switch {
	case route == nil:
		return false, false
	case route.answers.unsure(now):
		return true, true // what the cache shows it has shown for a while
	}
	return c.Kubeconfigs.Transports.gates.silent(&route.answers.gate, now)
}

// refusedInterval is how often to look whether a kubeconfig is still refused for the same entry: ClusterCache reads it again after 30 seconds, and
// sends no event.
const refusedInterval = 30 * time.Second

// singly is the number of nodes up to which each is asked for; beyond it, one list is less work for the API server.
const singly = 5

// NodesExist asks the workload cluster itself, past the cache, which of the named nodes it has. The deadline of ctx is that of all its questions.
func (c *Clusters) NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error) {
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	present := make(map[string]bool, len(names))
	if len(names) > singly {
		versions, err := c.nodeVersions(ctx, cluster)
		if err != nil {
			return nil, err
		}
		for name := range versions {
			present[name] = true
		}
		return present, nil
	}
	for _, name := range names {
		if len(content.IsPathSegmentName(name)) > 0 { // no node can have it, and client-go asks for none: the others are asked for all the same
			present[name] = false
			continue
		}
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

// nodesPerPage and mostPages are how nodes are listed live: so many to an answer, and so many answers. That is more nodes than Kubernetes supports.
const nodesPerPage, mostPages = 500, 200

// nodeVersions asks the workload cluster itself, past the cache, which nodes it has, and in what versions.
func (c *Clusters) nodeVersions(ctx context.Context, cluster client.ObjectKey) (map[string]string, error) {
	live, err := c.cache.GetUncachedClient(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("ask cluster %s for its nodes: %w", cluster, err)
	}
	versions, page := map[string]string{}, ""
	for range mostPages {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
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
	if err := indexed(shared.GetIndexer()); err != nil {
		return fmt.Errorf("index nodes of cluster %s: %w", s.cluster, err)
	}
	s.clusters.keep(s.cluster, shared)
	_, err = shared.AddEventHandler(s.reportFenced())
	if most := s.clusters.MostNodes; err == nil && most > 0 {
		_, err = shared.AddEventHandler(s.countedIn(nodes, most))
	}
	if err != nil {
		return fmt.Errorf("watch nodes of cluster %s: %w", s.cluster, err)
	}
	return nil
}

// countedIn drops a cache of nodes that has more of them than a cluster may have: a server can invent some with every watch. Without it the cluster
// is out of reach, until ClusterCache connects to it anew.
func (s nodeStore) countedIn(nodes cache.Cache, most int64) toolscache.ResourceEventHandler {
	var count atomic.Int64
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			if count.Add(1) != most+1 {
				return
			}
			err := nodes.RemoveInformer(context.Background(), &corev1.Node{})
			log.Log.Error(err, "A cluster has more nodes than --clustercache-response-limit allows for; they cannot be judged",
				"Cluster", s.cluster, "most", most)
		},
		DeleteFunc: func(any) { count.Add(-1) },
	}
}

func (c *Clusters) keep(cluster client.ObjectKey, nodes toolscache.SharedIndexInformer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropStopped()
	c.of(cluster).nodes = nodes
}
