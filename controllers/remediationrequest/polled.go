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

// MayWatch reports whether the manager may watch the objects of a kind.
type MayWatch func(ctx context.Context, kind schema.GroupVersionKind) (bool, error)

// AskFirst makes k call may before it watches a kind, and poll kinds that may be listed but not watched: their informers would log an error
// after each list, and be up to a minute behind. Roles of remediators from before medik8s' operator watched requests grant only list
// (Poison Pill, Self Node Remediation up to v0.5). AskFirst must be called before the first Readable.
func (k *Kinds[T]) AskFirst(may MayWatch) { k.mayWatch = may }

// Polled reports whether kind may be listed but not watched. A polled kind is ready and in use, but in no cache: controllers must read it
// from the API server, and reconcile again after a time, because they get no events. Each Readable checks the right again.
func (k *Kinds[T]) Polled(kind schema.GroupVersionKind) bool {
	return k.now(kind).polled
}

// MayWatchAll returns a MayWatch that asks the API server whether the user of c may watch a kind in all namespaces.
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
