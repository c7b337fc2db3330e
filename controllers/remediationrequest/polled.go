package remediationrequest

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/access"
)

// MayWatch reports whether the objects of a kind may be watched by who asks.
type MayWatch func(ctx context.Context, kind schema.GroupVersionKind) (bool, error)

// AskFirst makes k ask before it watches a kind, and poll those that may be listed and not watched: an informer of one would report an
// error after each list, and show what was so up to a minute ago. Roles of remediators from before medik8s' operator watched grant no more
// than to list requests (Poison Pill, Self Node Remediation up to v0.5). It must be called before the first Readable.
func (k *Kinds[T]) AskFirst(may MayWatch) { k.mayWatch = may }

// Polled reports whether kind may be listed and not watched: it is ready, and in use, but in no cache. Its readers have to read it live,
// and to come back, since nothing enqueues them. Each Readable asks anew whether it still is so.
func (k *Kinds[T]) Polled(kind schema.GroupVersionKind) bool {
	return k.now(kind).polled
}

// MayWatchAll asks the API server behind c whether c's user may watch a kind in all namespaces.
func MayWatchAll(c client.Writer, mapper meta.RESTMapper) MayWatch {
	return func(ctx context.Context, kind schema.GroupVersionKind) (bool, error) {
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return false, fmt.Errorf("find the resource of %s: %w", kind.Kind, err)
		}
		return access.Allowed(ctx, c, authorizationv1.ResourceAttributes{
			Verb: "watch", Group: mapping.Resource.Group, Version: mapping.Resource.Version, Resource: mapping.Resource.Resource,
		})
	}
}
