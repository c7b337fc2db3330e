package workload

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

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
func (c *Clusters) caughtUp(ctx context.Context, cluster client.ObjectKey, d *doubt, cache toolscache.Indexer) bool {
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
		obj, exists, err := cache.GetByKey(name)
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

// view returns the View of a cluster while there is a doubt.
func (d *doubt) view(now time.Time, connected bool, health clustercache.HealthCheckingState) View {
	v := View{Link: Unsure}
	if health.ConsecutiveFailures >= lost || now.Sub(d.since) >= patience {
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
