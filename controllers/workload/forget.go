package workload

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ForgetDeleted makes c forget Clusters that are deleted, as clusters, the cache of the management cluster, shows. They are not read again, and
// thousands may come and go. A Cluster that is made again under the same name inherits nothing either.
func (c *Clusters) ForgetDeleted(ctx context.Context, clusters cache.Cache) error {
	informer, err := clusters.GetInformer(ctx, &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Clusters to forget those that are deleted: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: c.forget,
		UpdateFunc: func(before, after any) {
			if before.(client.Object).GetUID() != after.(client.Object).GetUID() { // the deletion was missed
				c.forget(after)
			}
		},
		DeleteFunc: func(obj any) {
			if unseen, missed := obj.(toolscache.DeletedFinalStateUnknown); missed {
				obj = unseen.Obj
			}
			c.forget(obj)
		},
	}); err != nil {
		return fmt.Errorf("watch Clusters to forget those that are deleted: %w", err)
	}
	return nil
}

// forget drops what is kept of the Cluster obj. The cache of its nodes is ClusterCache's to stop, which may come later; it is dropped then, with the
// next cluster that is connected or forgotten.
func (c *Clusters) forget(obj any) {
	cluster, ok := obj.(client.Object)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(cluster)
	if c.Kubeconfigs != nil {
		c.Kubeconfigs.forget(key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	is := c.of(key)
	is.doubt, is.identity = nil, identity{}
	c.dropStopped()
}

// dropStopped drops the caches of connections that are no more, which hold all nodes of a cluster, and what is empty without them.
func (c *Clusters) dropStopped() {
	for cluster, is := range c.states {
		is.dropStopped()
		if *is == (state{}) {
			delete(c.states, cluster)
		}
	}
}

// dropStopped drops the cache of a connection that is no more. The doubt stays: that a cluster does not answer is not over with its
// connection.
func (s *state) dropStopped() {
	if s.nodes == nil || !s.nodes.IsStopped() {
		return
	}
	if s.identity.nodes == s.nodes {
		s.identity.nodes = nil
	}
	if s.doubt != nil && s.doubt.stale == s.nodes {
		next := *s.doubt
		next.stale = nil
		s.doubt = &next
	}
	s.nodes = nil
}
