package remediationrequest

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Changed returns a handler that drops updates in which the metadata of a request or a template has not changed. For each remediation, a
// remediator writes about a dozen times to the status of the request, which no check reads.
func Changed(h handler.TypedEventHandler[*Metadata, reconcile.Request]) handler.TypedEventHandler[*Metadata, reconcile.Request] {
	update := func(
		ctx context.Context, e event.TypedUpdateEvent[*Metadata], q workqueue.TypedRateLimitingInterface[reconcile.Request],
	) {
		if !same(e.ObjectOld, e.ObjectNew) {
			h.Update(ctx, e, q)
		}
	}
	return handler.TypedFuncs[*Metadata, reconcile.Request]{CreateFunc: h.Create, UpdateFunc: update, DeleteFunc: h.Delete}
}

// same reports whether two versions of an object are equal in all fields that decisions use.
func same(a, b *Metadata) bool {
	return a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) && slices.Equal(a.Finalizers, b.Finalizers) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}
