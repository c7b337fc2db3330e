package remediationrequest

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cached returns the requests of a kind in a namespace from its informer, or false if the kind is not watched or not synced. It does not
// read through the cache, because that would begin a watch, also of a kind that may not be watched. The objects must not be changed.
func (k *Kinds[T]) Cached(_ context.Context, kind schema.GroupVersionKind, namespace string) (all []client.Object, has bool, err error) {
	now := k.now(kind)
	store, one := now.informer.(toolscache.SharedIndexInformer) // false for a cache of several namespaces
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
