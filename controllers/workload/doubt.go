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
	// patience is how long to stay Unsure. A cluster that lets itself be probed but not be read, or that ClusterCache does not try to
	// connect to, is as much out of reach as one that is silent.
	patience = time.Minute
	// lost is the number of attempts in a row that have to fail for a cluster to count as Down. One alone is a dropped packet
	// or a kubeconfig that was just rotated.
	lost = 2
	// catchUpInterval is how often to look whether a cache has caught up after an outage. Nothing tells that it has.
	catchUpInterval = time.Second / 2
)

// doubt is what is kept of a cluster from the moment at which it does not answer until its cache can be trusted again.
//
// An answered probe is not enough for that. A watch that broke is made again with growing pauses, so for up to half a minute the cache
// shows the nodes as they were before the outage: one that was silent then and is healthy now would be marked unhealthy.
type doubt struct {
	since    time.Time
	answered bool
	// stale is the connection whose cache was filled before; 0 for none. One that is filled anew shows what is.
	stale int
	// versions are those of the nodes when the cluster first answered again; nil before.
	versions map[string]string
}

// look returns the cache of a cluster's nodes, and the doubt about it; nil if there is none.
func (c *Clusters) look(cluster client.ObjectKey, now time.Time, answers bool) (toolscache.SharedIndexInformer, *doubt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.of(cluster)
	state.dropStopped() // the doubt stays: that a cluster does not answer is not over with its connection
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

// Doubt makes the next view of cluster prove that the cache shows its nodes as they are, which takes one list of them. It is for who has
// not looked for a while: what happened meanwhile was not seen.
func (c *Clusters) Doubt(cluster client.ObjectKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if state := c.of(cluster); state.nodes != nil && state.doubt == nil {
		state.doubt = &doubt{since: now, stale: state.connection}
	}
}

// caughtUp reports whether the cache shows no node as it was before the cluster answered again. It asks the cluster once what there is;
// later versions of nodes show as well that the cache is being told.
func (c *Clusters) caughtUp(ctx context.Context, cluster client.ObjectKey, d *doubt, cache toolscache.Indexer) bool {
	if d.versions == nil {
		versions, err := c.nodeVersions(ctx, cluster)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot tell whether the nodes of a cluster are known as they are", "Cluster", cluster)
			return false
		}
		c.mu.Lock()
		d.versions = versions
		c.mu.Unlock()
	}
	for name, version := range d.versions {
		obj, exists, err := cache.GetByKey(name)
		if err != nil || !exists {
			continue // a missing node is asked for
		}
		cached, err := resourceversion.CompareResourceVersion(obj.(client.Object).GetResourceVersion(), version)
		if err != nil || cached < 0 {
			return false
		}
	}
	return true
}

// view is what is to be seen of the cluster meanwhile.
func (d *doubt) view(now time.Time, connected bool, health clustercache.HealthCheckingState) View {
	v := View{Link: Unsure}
	if health.ConsecutiveFailures >= lost || now.Sub(d.since) >= patience {
		v.Link = Down
	}
	switch {
	case d.answered:
		v.Recheck = catchUpInterval
	case v.Link == Down && !connected: // that the connection is made again raises an event
	default:
		// There is an event of every node, but none that says that these were all, and none of a probe that succeeds again. The
		// first list is a matter of a second, all else of a probe.
		v.Recheck = min(max(now.Sub(d.since)/2, time.Second/4), ProbeInterval)
	}
	return v
}
