package remediationrequest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cached returns the requests of a kind in a namespace from the store of the watch that goes on; false if there is none, or if its first
// list was not read yet. Without a watch a read of the cache would begin one, also of a kind that may not be watched. They are shared: read
// only.
func (k *Kinds[T]) Cached(_ context.Context, kind schema.GroupVersionKind, namespace string) (all []client.Object, has bool, err error) {
	now := k.now(kind)
	store, one := now.informer.(toolscache.SharedIndexInformer) // a cache of several namespaces has several
	if now.beginning || !one || !now.synced() {
		return nil, false, nil
	}
	objects, err := store.GetIndexer().ByIndex(toolscache.NamespaceIndex, namespace)
	if err != nil {
		return nil, false, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
	}
	for _, o := range objects {
		if obj, known := o.(T); known {
			all = append(all, obj)
		}
	}
	return all, true, nil
}
