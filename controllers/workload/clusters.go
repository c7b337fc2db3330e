// Package workload reads the workload clusters through the connections of Cluster API's ClusterCache: their nodes from caches kept small,
// single nodes live, and whether a cluster can be reached at all. It decides nothing.
package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

const (
	// ProbeInterval is how often ClusterCache asks a connected cluster whether it is there. A probe that
	// succeeds again after failures raises no event, so its users read again after this time.
	ProbeInterval = 10 * time.Second
	// refusedInterval is how often to look whether a kubeconfig is still refused for the same entry: ClusterCache reads it again after 30
	// seconds, and sends no event.
	refusedInterval = 30 * time.Second
)

// Unsure, Up and Down are the states of the connection to a workload cluster.
const (
	Unsure = health.Unsure
	Up     = health.Up
	Down   = health.Down
)

// Clusters gives views of workload clusters. It is safe for concurrent use.
type Clusters struct {
	cache clustercache.ClusterCache
	// Transports are those that the cache connects by.
	Transports *Transports
	// Server is the API server of the management cluster, whose clock is held against that of this process. It may be nil.
	Server *clockerror.Server
	// Management has the Clusters, which keep which workload cluster they are. It may be nil: none does then.
	Management client.Client

	mu     sync.Mutex
	states map[client.ObjectKey]*state
}

// state is what is kept of one cluster.
type state struct {
	nodes      toolscache.SharedIndexInformer // the cache of its nodes; nil while there is none
	connection int                            // counts these caches
	doubt      *doubt                         // about the cache; nil if there is none
	identity   identity
}

// dropStopped drops the cache of a connection that is no more: it holds all nodes of a cluster.
func (s *state) dropStopped() {
	if s.nodes != nil && s.nodes.IsStopped() {
		s.nodes = nil
	}
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
	return &Clusters{cache: cc, Transports: &Transports{}, states: map[client.ObjectKey]*state{}}
}

// View is a workload cluster as it was read once.
type View struct {
	Link health.Link
	// Recheck is how long to wait before looking again if no event comes; zero if one will.
	Recheck time.Duration
	// Refused is why ClusterCache does not connect to the cluster, if that is because of its kubeconfig.
	Refused *RefusedError
	// Silent says that the cluster answers probes, and leaves other requests unanswered, or answers them without end: it is Down for that.
	Silent bool
	// Changed is a ChangedError if another workload cluster answers: it is Down for that.
	Changed error
	// Keep writes to the Cluster which workload cluster answers; nil if that is not known, or kept already. It is for a controller that
	// acts on the cluster: in observe mode nothing is written.
	Keep func(context.Context)
	// ClockAhead is how far the clock of this process is ahead of that of the cluster's API server, or of the management cluster's, if that
	// error is larger; less than 0 if it is behind, 0 up to 30 s. A cluster that is not Up has no say in it.
	ClockAhead time.Duration

	nodes toolscache.Indexer
}

// Seen is a view of nodes that are kept elsewhere than in a cache, such as by a user's command. They are not changed.
func Seen(link health.Link, nodes []*corev1.Node) View {
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{byProviderID: providerIDs})
	for _, node := range nodes {
		_ = indexer.Add(node) // each has a key, which is its name
	}
	return View{Link: link, nodes: indexer}
}

// View looks at cluster, at now, and makes sure that watches on its nodes are in place. It asks the cluster itself only after an outage,
// whether the cache has caught up. A cluster that leaves requests unanswered is Down, and is asked that as often as its circuit lets it be.
func (c *Clusters) View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (View, error) {
	view, err := c.view(ctx, cluster, now, watches)
	if err == nil && c.Management != nil {
		view = c.identified(ctx, cluster, view, now)
	}
	if to := c.Transports.routeOf(cluster); view.Link == Up && to != nil { // else its last answer may be old, or of a proxy
		view.ClockAhead = to.clock.Ahead()
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
		c.Doubt(cluster, now) // the list of nodes that ends the doubt is the trial
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

// ForgetDeleted makes c forget Clusters that are deleted, as clusters, the cache of the management cluster, shows. They are not read again,
// and thousands may come and go. A Cluster that is made again under the same name inherits nothing either.
func (c *Clusters) ForgetDeleted(ctx context.Context, clusters cache.Cache) error {
	informer, err := clusters.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err == nil {
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			// What it is connected by stays: ClusterCache, which hears of the Cluster as well, may have connected already.
			AddFunc: func(obj any) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if state := c.states[client.ObjectKeyFromObject(obj.(client.Object))]; state != nil {
					state.doubt, state.identity = nil, identity{}
				}
			},
			UpdateFunc: func(before, after any) {
				if before.(client.Object).GetUID() != after.(client.Object).GetUID() { // the deletion was missed
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

// forget drops what is kept of the Cluster obj, or of one whose deletion was missed.
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
