package remediationrecord

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// RequestCache returns the requests of a kind in a namespace from a cache; false if that does not have them. It never begins to cache a kind. What it returns
// is shared: read only.
type RequestCache func(ctx context.Context, kind schema.GroupVersionKind, namespace string) (all []client.Object, has bool, err error)

// cachedRequests adds the requests that are part of the remediation from the first cache that has their kind, and reports whether it did. A beginning
// and an end are decided past the caches, and so is whether a request is gone that the record names: a cache may show it later.
func (r *Reconciler) cachedRequests(ctx context.Context, o *observed, kind schema.GroupVersionKind, namespace string) (bool, error) {
	if o.live || o.facts.Status.Begun.IsZero() {
		return false, nil
	}
	for _, cached := range r.Cached {
		all, has, err := cached(ctx, kind, namespace)
		switch {
		case err != nil:
			return false, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
		case !has:
		case len(r.missing(o, kind, namespace, all)) > 0:
			return false, nil
		default:
			return true, r.addRequests(ctx, o, kind, all)
		}
	}
	return false, nil
}

// missing are the requests of a kind in a namespace that the record names, that are not in all, and that are not known to be gone.
func (r *Reconciler) missing(o *observed, kind schema.GroupVersionKind, namespace string, all []client.Object) []mendv1.RecordRef {
	over := r.remembered(client.ObjectKeyFromObject(o.record), nil).over
	var refs []mendv1.RecordRef
	for _, ref := range o.facts.Status.Requests {
		if ref.Namespace != namespace || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != kind.GroupKind() {
			continue
		}
		there := slices.ContainsFunc(all, func(is client.Object) bool { return Same(ref, requestRef(is, kind), o.facts.Moved) })
		if !there && !slices.Contains(over, ref) {
			refs = append(refs, ref)
		}
	}
	return refs
}

// noteOver remembers which requests that the record names are gone, by what the API server itself says: all.
func (r *Reconciler) noteOver(o *observed, kind schema.GroupVersionKind, namespace string, all []client.Object) {
	if gone := r.missing(o, kind, namespace, all); len(gone) > 0 {
		r.remembered(client.ObjectKeyFromObject(o.record), func(m *memory) { m.over = append(slices.Clone(m.over), gone...) })
	}
}
