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
	if c.Kubeconfigs != nil {
		c.Kubeconfigs.forget(client.ObjectKeyFromObject(cluster))
	}
	if c.Gates != nil {
		c.Gates.forget(client.ObjectKeyFromObject(cluster))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.doubts, client.ObjectKeyFromObject(cluster))
	delete(c.identities, client.ObjectKeyFromObject(cluster))
	c.dropStopped()
}

// dropStopped drops the caches of connections that are no more, which hold all nodes of a cluster. Their doubts stay: that a cluster does not
// answer is not over with its connection.
func (c *Clusters) dropStopped() {
	for cluster, nodes := range c.nodes {
		if !nodes.IsStopped() {
			continue
		}
		delete(c.nodes, cluster)
		if known := c.identities[cluster]; known.nodes == nodes {
			known.nodes = nil
			c.identities[cluster] = known
		}
		if d := c.doubts[cluster]; d != nil && d.stale == nodes {
			next := *d
			next.stale = nil
			c.doubts[cluster] = &next
		}
	}
}
