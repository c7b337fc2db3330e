package remediationrecord

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

// Repeated are the records that count for an owner, a host or a node; none if they cannot be read, or before the cache has all open ones.
// They are shared: read only. They are read from the cache that has the index, which may not be that of the caller: NodeHealthChecks have
// one of their own. A command line has a nil Records, and reader reads more than a cache. One that says it was begun at a moment to come,
// as a manager whose clock was ahead or a user wrote it, would keep the next remediation waiting for as long, and does not count.
func (r *Records) Repeated(ctx context.Context, reader client.Reader, namespace, kind, name string) []mendv1.RemediationRecord {
	switch {
	case r == nil:
	case !r.followed():
		return nil
	default:
		reader = r.Client
	}
	list := &mendv1.RemediationRecordList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{subjectIndex: kind + "/" + name},
		client.UnsafeDisableDeepCopy); err != nil && !meta.IsNoMatchError(err) {
		log.FromContext(ctx).Error(err, "Former remediations do not count, as their records cannot be read", "kind", kind, "name", name)
	}
	return slices.DeleteFunc(list.Items, func(record mendv1.RemediationRecord) bool {
		return r != nil && record.Status.Begun != nil && record.Status.Begun.After(r.Clock.Now())
	})
}

// formerWithin is how long a remediation waits after a start for the records of those before it.
const formerWithin = 30 * time.Second

// Awaited is until when the next remediation waits as those before it are not known: the cache does not have the records yet. It is zero if
// it has them, or if none are kept.
func (r *Records) Awaited(ctx context.Context) time.Time {
	if r == nil || r.followed() {
		return time.Time{}
	}
	if installed, err := r.Installed(ctx, CRD); err != nil || !installed {
		return time.Time{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.awaited.IsZero() {
		r.awaited = r.Clock.Now().Add(formerWithin)
	}
	return r.awaited
}

// forgetClosed takes a closed record out of the cache once it counts no longer.
func (r *Reconciler) forgetClosed(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	record := &mendv1.RemediationRecord{}
	err := r.Client.Get(ctx, key, record)
	if err != nil || record.Open() || record.Labels[mendv1.RecordOpenLabel] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wait := record.Status.Ended.Add(repeats.Remembered).Sub(r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	after := record.DeepCopy()
	delete(after.Labels, mendv1.RecordOpenLabel)
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, after, client.MergeFrom(record)))
}
