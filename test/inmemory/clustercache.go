package inmemory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The defaults of Cluster API's ClusterCache: buildClusterAccessorConfig in controllers/clustercache of v1.14.2.
const (
	probeInterval    = 10 * time.Second
	failureThreshold = 5
	connectAgain     = 30 * time.Second
)

var errUnreachable = errors.New("the workload cluster does not answer")

// Workload is a workload cluster: its API server, and the way there.
type Workload struct {
	*Server
	mu   sync.Mutex
	goOn func() // nil while it can be reached
}

// Cut has nothing answered that is asked of the cluster, until Mend.
func (w *Workload) Cut() {
	goOn := w.Server.Cut("Node")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goOn = goOn
}

// Mend ends that.
func (w *Workload) Mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goOn()
	w.goOn = nil
}

func (w *Workload) reached() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.goOn != nil {
		return errUnreachable
	}
	return nil
}

// ClusterCache is Cluster API's, for workload clusters in memory. It connects, probes, gives up and sends events as clusterCache.Reconcile
// does in controllers/clustercache of v1.14.2, and no sooner.
type ClusterCache struct {
	clustercache.ClusterCache // of which nothing else is used
	// Of is the workload cluster of a Cluster; nil where no kubeconfig leads to one.
	Of func(cluster client.ObjectKey) *Workload

	client  client.Reader
	options cache.Options
	ctx     context.Context // of the manager

	mu        sync.Mutex
	accessors map[client.ObjectKey]*accessor
	sources   []*clusterSource
}

type accessor struct {
	health     clustercache.HealthCheckingState
	failed     time.Time   // when a connection could not be made
	connection *connection // nil while there is none
}

type connection struct {
	workload *Workload
	nodes    cache.Cache
	watches  map[string]bool
	stop     func()
}

// NewClusterCache adds a ClusterCache to mgr. options are those of the caches of the workload clusters.
func NewClusterCache(ctx context.Context, mgr manager.Manager, of func(client.ObjectKey) *Workload, options cache.Options) (*ClusterCache, error) {
	cc := &ClusterCache{Of: of, client: mgr.GetClient(), options: options, ctx: ctx, accessors: map[client.ObjectKey]*accessor{}}
	if err := ctrl.NewControllerManagedBy(mgr).Named("clustercache").For(&clusterv1.Cluster{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).Complete(cc); err != nil {
		return nil, fmt.Errorf("set up the connections to workload clusters: %w", err)
	}
	return cc, nil
}

// Reconcile connects to a cluster, probes it, or gives it up.
func (c *ClusterCache) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &clusterv1.Cluster{}
	if err := c.client.Get(ctx, req.NamespacedName, cluster); err != nil {
		if client.IgnoreNotFound(err) == nil {
			c.forget(req.NamespacedName)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false) {
		return ctrl.Result{}, nil
	}
	now := time.Now()
	c.mu.Lock()
	a := c.accessors[req.NamespacedName]
	if a == nil {
		a = &accessor{}
		c.accessors[req.NamespacedName] = a
	}
	connected, disconnected, after := c.probe(a, req.NamespacedName, now)
	success := a.health.LastProbeSuccessTime
	c.mu.Unlock()
	c.tell(ctx, cluster, now, success, connected, disconnected)
	return ctrl.Result{RequeueAfter: after}, nil
}

func (c *ClusterCache) probe(a *accessor, key client.ObjectKey, now time.Time) (connected, disconnected bool, after time.Duration) {
	if a.connection == nil {
		if since := now.Sub(a.failed); since < connectAgain {
			return false, false, connectAgain - since
		}
		if err := c.connect(a, key); err != nil {
			a.failed = now
			a.health.LastProbeTime = now
			a.health.ConsecutiveFailures++
			return false, false, connectAgain
		}
		a.health = clustercache.HealthCheckingState{LastProbeTime: now, LastProbeSuccessTime: now}
		return true, false, probeInterval
	}
	if since := now.Sub(a.health.LastProbeTime); since < probeInterval {
		return false, false, probeInterval - since
	}
	a.health.LastProbeTime = now
	if err := a.connection.workload.reached(); err == nil {
		a.health.LastProbeSuccessTime, a.health.ConsecutiveFailures = now, 0
		return false, false, probeInterval
	}
	a.health.ConsecutiveFailures++
	if a.health.ConsecutiveFailures < failureThreshold {
		return false, false, probeInterval
	}
	a.connection.stop()
	a.connection = nil
	return false, true, connectAgain
}

func (c *ClusterCache) connect(a *accessor, key client.ObjectKey) error {
	w := c.Of(key)
	if w == nil {
		return errUnreachable
	}
	if err := w.reached(); err != nil {
		return err
	}
	nodes, err := w.NewCache(c.options)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(c.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = nodes.Start(ctx)
	}()
	a.connection = &connection{workload: w, nodes: nodes, watches: map[string]bool{}, stop: func() { stop(); <-ended }}
	return nil
}

func (c *ClusterCache) forget(key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.accessors[key]; a != nil && a.connection != nil {
		a.connection.stop()
	}
	delete(c.accessors, key)
}

// at is the connection to a cluster.
func (c *ClusterCache) at(key client.ObjectKey) (*connection, error) {
	if a := c.accessors[key]; a != nil && a.connection != nil {
		return a.connection, nil
	}
	return nil, clustercache.ErrClusterNotConnected
}

// GetHealthCheckingState implements clustercache.ClusterCache.
func (c *ClusterCache) GetHealthCheckingState(_ context.Context, key client.ObjectKey) clustercache.HealthCheckingState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.accessors[key]; a != nil {
		return a.health
	}
	return clustercache.HealthCheckingState{}
}

// Watch implements clustercache.ClusterCache: a watch of a name is added once to a connection.
func (c *ClusterCache) Watch(_ context.Context, key client.ObjectKey, w clustercache.Watcher) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, err := c.at(key)
	if err != nil || to.watches[w.Name()] {
		return err
	}
	if err := w.Watch(to.nodes); err != nil {
		return err
	}
	to.watches[w.Name()] = true
	return nil
}

// GetUncachedClient implements clustercache.ClusterCache.
func (c *ClusterCache) GetUncachedClient(_ context.Context, key client.ObjectKey) (client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, err := c.at(key)
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(to.workload.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, live client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := to.workload.reached(); err != nil {
				return err
			}
			return live.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, live client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := to.workload.reached(); err != nil {
				return err
			}
			return live.List(ctx, list, opts...)
		},
	}), nil
}

// clusterSource is where the events of clusters are sent.
type clusterSource struct {
	events chan event.GenericEvent
	lost   time.Duration // see clustercache.WatchForProbeFailure; 0 for none
	sent   map[client.ObjectKey]time.Time
}

// GetClusterSource implements clustercache.ClusterCache.
func (c *ClusterCache) GetClusterSource(_ string, requests func(context.Context, client.Object) []ctrl.Request,
	options ...clustercache.GetClusterSourceOption,
) source.Source {
	s := &clusterSource{events: make(chan event.GenericEvent), sent: map[client.ObjectKey]time.Time{}}
	for _, o := range options {
		if lost, is := o.(clustercache.WatchForProbeFailure); is {
			s.lost = time.Duration(lost)
		}
	}
	c.sources = append(c.sources, s)
	return source.Channel(s.events, handler.TypedEnqueueRequestsFromMapFunc(requests))
}

// tell sends the events that shouldSendEvent of Cluster API's has sent: of a connection that was made or closed, and of probes that fail.
func (c *ClusterCache) tell(ctx context.Context, cluster *clusterv1.Cluster, now, success time.Time, connected, disconnected bool) {
	key := client.ObjectKeyFromObject(cluster)
	for _, s := range c.sources {
		c.mu.Lock()
		due := success.Add(s.lost)
		lost := s.lost > 0 && s.sent[key].Before(due) && due.Before(now)
		send := connected || disconnected || lost
		if send {
			s.sent[key] = now
		}
		c.mu.Unlock()
		if !send {
			continue
		}
		select {
		case s.events <- event.GenericEvent{Object: cluster}:
		case <-ctx.Done():
			return
		}
	}
}
