package workload

import (
	"context"
	"fmt"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// firstList is how long to wait for the first list of a kind that is not cached yet. Without the right to list it there is never one.
const firstList = 10 * time.Second

// On returns the names of the VolumeAttachments of a node, from a cache that the first call for a cluster sets up: most clusters never
// need one, and the API server cannot select them by node.
func (c *Clusters) On(ctx context.Context, cluster client.ObjectKey, node string) ([]string, error) {
	if err := c.cache.Watch(ctx, cluster, volumeStore{}); err != nil {
		return nil, fmt.Errorf("watch the VolumeAttachments of cluster %s: %w", cluster, err)
	}
	reader, err := c.cache.GetReader(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read the VolumeAttachments of cluster %s: %w", cluster, err)
	}
	ctx, cancel := context.WithTimeout(ctx, firstList)
	defer cancel()
	list := &storagev1.VolumeAttachmentList{}
	if err := reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the VolumeAttachments of cluster %s: %w", cluster, err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == node {
			names = append(names, list.Items[i].Name)
		}
	}
	return names, nil
}

// volumeStore makes the cache of a cluster hold its VolumeAttachments.
type volumeStore struct{}

// Name identifies the watch; ClusterCache adds one of a name only once to a connection.
func (volumeStore) Name() string { return "kubemend-volumes" }

// Object is the kind that is watched.
func (volumeStore) Object() client.Object { return &storagev1.VolumeAttachment{} }

// Watch has the informer made. It must not block: ClusterCache holds a lock meanwhile.
func (volumeStore) Watch(c cache.Cache) error {
	if _, err := c.GetInformer(context.Background(), &storagev1.VolumeAttachment{}, cache.BlockUntilSynced(false)); err != nil {
		return fmt.Errorf("cache VolumeAttachments: %w", err)
	}
	return nil
}
