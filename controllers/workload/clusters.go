// Package workload reads workload clusters through the connections of Cluster API's ClusterCache: nodes from small caches, single nodes
// from API servers, and whether a cluster can be reached.
package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

const (
	// ProbeInterval is how often ClusterCache probes a connected cluster. There is no event when a probe succeeds again after failures, so
	// controllers call View again after this time.
	ProbeInterval = 10 * time.Second
	// refusedInterval is how often to check whether a kubeconfig is still refused: ClusterCache reads it again after 30 seconds, without an
	// event.
	refusedInterval = 30 * time.Second
)

// Unsure, Up and Down are the states of the connection to a workload cluster.
const (
	Unsure = health.Unsure
	Up     = health.Up
	Down   = health.Down
)

// Clusters returns Views of workload clusters. It is safe for concurrent use.
type Clusters struct {
	cache clustercache.ClusterCache
	// Transports are used by the connections of cache.
	Transports *Transports
	// Server compares the clock with that of the API server of the management cluster. It may be nil.
	Server *clockerror.Server
	// Management reads and writes Clusters, whose annotation has the UID of the workload cluster. If nil, View does not compare the UID.
	Management client.Client

	mu     sync.Mutex
	states map[client.ObjectKey]*state
}

// state is what Clusters stores about one cluster.
type state struct {
	nodes      toolscache.SharedIndexInformer // the cache of its nodes; nil while there is none
	connection int                            // how many node caches there have been
	doubt      *doubt                         // nil if the cache is up to date
	identity   identity
}

// dropStopped drops the node cache of a connection that has ended, to free memory.
func (s *state) dropStopped() {
	if s.nodes != nil && s.nodes.IsStopped() {
		s.nodes = nil
	}
}

// of returns the state of a cluster, and adds it if it is missing. The mutex must be held.
func (c *Clusters) of(cluster client.ObjectKey) *state {
	if c.states[cluster] == nil {
		c.states[cluster] = &state{}
	}
	return c.states[cluster]
}

// RBAC in the workload clusters. ClusterCache probes the path /.
// +kubebuilder:rbac:urls=/,verbs=get
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=get;list;watch
// Transports read the manager's pod, to find the manager's own cluster (runsIn). Without this right, no request is sent.
// +kubebuilder:rbac:groups=core,resources=pods,verbs=get

// NewClusters returns the workload clusters that cc connects to.
func NewClusters(cc clustercache.ClusterCache) *Clusters {
	return &Clusters{cache: cc, Transports: &Transports{}, states: map[client.ObjectKey]*state{}}
}

// View is the state of a workload cluster at one time.
type View struct {
	Link health.Link
	// Recheck is after how long to call View again if no event comes; zero if an event will come.
	Recheck time.Duration
	// Refused is why the kubeconfig is refused, if ClusterCache does not connect for that reason.
	Refused *RefusedError
	// Silent says that the link is Down because the cluster answers probes but no other requests, or answers without end.
	Silent bool
	// Changed is a ChangedError if the link is Down because another workload cluster answers.
	Changed error
	// Keep writes the UID of the workload cluster to the Cluster; nil if the UID is not known or already written. Only a controller that
	// acts on the cluster calls Keep: in observe mode nothing is written.
	Keep func(context.Context)
	// ClockAhead is by how much the clock of this process is ahead of the clock of the API server of the management cluster or, if Link is
	// Up, of the workload cluster, whichever error is larger. It is negative if the clock is behind, and 0 for errors of at most 30 s.
	ClockAhead time.Duration

	nodes toolscache.Indexer
}

// Seen returns a View of nodes that were read elsewhere, such as by a user's command.
func Seen(link health.Link, nodes []*corev1.Node) View {
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{byProviderID: providerIDs})
	for _, node := range nodes {
		_ = indexer.Add(node) // fails only for an object without a key
	}
	return View{Link: link, nodes: indexer}
}

// View returns the state of a cluster at now, and begins watches on its nodes that have not begun. It sends requests to the cluster only to
// read its UID, and after an outage to check whether the cache has caught up. A cluster that leaves requests unanswered is Down; its
// circuit limits the requests.
func (c *Clusters) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (View, error) {
	view, err := c.view(ctx, cluster, now, watches)
	if err == nil && c.Management != nil {
		view = c.identified(ctx, cluster, view, now)
	}
	if to := c.Transports.routeOf(cluster); view.Link == Up && to != nil { // otherwise the last response may be old, or from a proxy
		view.ClockAhead = to.clock.Ahead()
	}
	if c.Server != nil {
		if ahead := c.Server.Ahead(); ahead.Abs() > view.ClockAhead.Abs() {
			view.ClockAhead = ahead
		}
	}
	if view.ClockAhead != 0 && view.Recheck == 0 {
		view.Recheck = ProbeInterval // there is no event when a clock is corrected
	}
	return view, err
}

// view returns the View without regard to which workload cluster answers.
func (c *Clusters) view(ctx context.Context, cluster client.ObjectKey, now time.Time, watches []clustercache.Watcher) (View, error) {
	probes, connected := c.cache.GetHealthCheckingState(ctx, cluster), true
	for _, watch := range append(watches, c.store(cluster)) { //nolint:contextcheck // the cache that it drops outlives the reconcile
		err := c.cache.Watch(ctx, cluster, watch)
		if connected = !errors.Is(err, clustercache.ErrClusterNotConnected); !connected {
			break
		}
		if err != nil {
			return View{}, fmt.Errorf("watch nodes of cluster %s: %w", cluster, err)
		}
	}
	silent, rests := c.Transports.silent(cluster, now)
	if silent {
		c.Doubt(cluster, now) // the list of nodes that ends the doubt is the trial request of the circuit
	}
	informer, doubt := c.look(cluster, now, connected && probes.ConsecutiveFailures == 0 && !rests)
	if doubt != nil && doubt.answered && c.caughtUp(ctx, cluster, doubt, informer.GetIndexer()) {
		c.mu.Lock()
		c.of(cluster).doubt, doubt = nil, nil
		c.mu.Unlock()
	}
	if doubt == nil {
		return View{Link: Up, nodes: informer.GetIndexer()}, nil
	}
	v := doubt.view(now, connected, probes)
	switch {
	case silent && connected:
		v.Link, v.Silent = Down, true
	case !connected:
		if v.Refused = c.Transports.Refused(cluster); v.Refused != nil {
			v.Link, v.Recheck = Down, refusedInterval
		}
	}
	return v, nil
}

// ForgetDeleted makes c drop the state of a Cluster when it is deleted, because thousands may come and go. A new Cluster of the same name
// starts without state. clusters is the cache of the management cluster.
func (c *Clusters) ForgetDeleted(ctx context.Context, clusters cache.Cache) error {
	informer, err := clusters.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			// The route stays, because ClusterCache gets this event too and may have connected already.
			AddFunc: func(obj any) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if state := c.states[client.ObjectKeyFromObject(obj.(client.Object))]; state != nil {
					state.doubt, state.identity = nil, identity{}
				}
			},
			UpdateFunc: func(before, after any) {
				if before.(client.Object).GetUID() != after.(client.Object).GetUID() { // the informer missed the deletion
					c.forget(after)
				}
			},
			DeleteFunc: c.forget,
		})
	}
	if err != nil {
		return fmt.Errorf("watch Clusters to forget those that are deleted: %w", err)
	}
	return nil
}

// forget drops the state and the route of a Cluster. obj may be a DeletedFinalStateUnknown.
func (c *Clusters) forget(obj any) {
	key, err := toolscache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return
	}
	cluster := client.ObjectKey{Namespace: key.Namespace, Name: key.Name}
	c.Transports.forget(cluster)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.states, cluster)
}

const (
	// patience is how long a cluster may be Unsure before it is Down. Probes may succeed although the cluster cannot be read, and
	// ClusterCache may not try to connect.
	patience = time.Minute
	// lost is how many probes in a row must fail until a cluster is Down. A single failure may be a lost packet or a kubeconfig that was
	// just rotated.
	lost = 2
	// catchUpInterval is how often to check whether a cache has caught up after an outage. There is no event for that.
	catchUpInterval = time.Second / 2
)

// doubt says that the node cache of a cluster cannot be trusted: from when the cluster stops answering until the cache has caught up.
//
// A successful probe does not end a doubt. A broken watch is retried with growing pauses, so for up to half a minute the cache shows the
// nodes as before the outage: a node that was NotReady then and is healthy now would be judged unhealthy.
type doubt struct {
	since    time.Time
	answered bool // the cluster answers again, and its cache is filled
	// stale is the connection whose cache was filled before the outage; 0 if there is none. The cache of a later connection can be trusted.
	stale int
	// versions are the resourceVersions of the nodes when the cluster first answered again; nil before.
	versions map[string]string
}

// look returns the node cache of a cluster, and the doubt about it; nil if there is none. answers says that the cluster answers.
func (c *Clusters) look(cluster client.ObjectKey, now time.Time, answers bool) (toolscache.SharedIndexInformer, *doubt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.of(cluster)
	state.dropStopped() // but keep the doubt, because the outage may go on with the next connection
	filled := state.nodes != nil && state.nodes.HasSynced()
	if filled && answers && (state.doubt == nil || state.doubt.stale != state.connection) {
		state.doubt = nil
		return state.nodes, nil
	}
	next := doubt{since: now, answered: filled && answers}
	if state.doubt != nil {
		next.since, next.stale = state.doubt.since, state.doubt.stale
	}
	switch {
	case next.answered:
		next.versions = state.doubt.versions
	case filled:
		next.stale = state.connection
	}
	state.doubt = &next
	return state.nodes, &next
}

// Doubt makes the next View list the nodes of a cluster, to verify that the cache is up to date. Call it before View if View was not called
// for a while, because an outage in that time was not noticed.
func (c *Clusters) Doubt(cluster client.ObjectKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state := c.of(cluster); state.nodes != nil && state.doubt == nil {
		state.doubt = &doubt{since: now, stale: state.connection}
	}
}

// caughtUp reports whether all nodes in the cache are at least as new as when the cluster first answered again. It lists the nodes of the
// cluster only once for each doubt.
func (c *Clusters) caughtUp(ctx context.Context, cluster client.ObjectKey, d *doubt, nodes toolscache.Indexer) bool {
	if d.versions == nil {
		versions, err := c.nodeVersions(ctx, cluster)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot find out whether the cached nodes of a cluster are up to date", "Cluster", cluster)
			return false
		}
		c.mu.Lock()
		d.versions = versions
		c.mu.Unlock()
	}
	for name, version := range d.versions {
		obj, exists, err := nodes.GetByKey(name)
		if err != nil || !exists {
			continue // NodesExist checks missing nodes
		}
		cached, err := resourceversion.CompareResourceVersion(obj.(client.Object).GetResourceVersion(), version)
		if err != nil || cached < 0 {
			return false
		}
	}
	return true
}

func (d *doubt) view(now time.Time, connected bool, probes clustercache.HealthCheckingState) View {
	v := View{Link: Unsure}
	if probes.ConsecutiveFailures >= lost || now.Sub(d.since) >= patience {
		v.Link = Down
	}
	switch {
	case d.answered:
		v.Recheck = catchUpInterval
	case v.Link == Down && !connected: // there is an event when ClusterCache reconnects
	default:
		// There is no event when the first list is complete, which takes about a second, and none when a probe succeeds again.
		v.Recheck = min(max(now.Sub(d.since)/2, time.Second/4), ProbeInterval)
	}
	return v
}
