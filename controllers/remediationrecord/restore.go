package remediationrecord

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/record"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/records"
)

// vanishedRecords are the open records that have left the cache, as they were last seen. One that is closed leaves it as well.
type vanishedRecords struct {
	mu    sync.Mutex
	found map[types.NamespacedName]*mendv1.RemediationRecord
	// expected are the records that this process closes or deletes itself.
	expected map[types.UID]bool
}

// expectEnd says that this process is about to close or delete a record, which is not to be written again then.
func (r *Reconciler) expectEnd(is *mendv1.RemediationRecord) {
	r.vanished.mu.Lock()
	defer r.vanished.mu.Unlock()
	if r.vanished.expected == nil {
		r.vanished.expected = map[types.UID]bool{}
	}
	r.vanished.expected[is.UID] = true
}

// stillOpen says that the write by which a record was to be closed has failed with err. One whose answer was lost may have closed it.
func (r *Reconciler) stillOpen(is *mendv1.RemediationRecord, err error) {
	if !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return
	}
	r.vanished.mu.Lock()
	defer r.vanished.mu.Unlock()
	delete(r.vanished.expected, is.UID)
}

// noteVanished remembers an open record that has left the cache, and reports whether it may have to be written again.
func (r *Reconciler) noteVanished(is *mendv1.RemediationRecord) bool {
	r.vanished.mu.Lock()
	defer r.vanished.mu.Unlock()
	expected := r.vanished.expected[is.UID]
	delete(r.vanished.expected, is.UID)
	if expected || !is.Open() {
		return false
	}
	if r.vanished.found == nil {
		r.vanished.found = map[types.NamespacedName]*mendv1.RemediationRecord{}
	}
	r.vanished.found[client.ObjectKeyFromObject(is)] = is
	return true
}

// onDeletions enqueues open records that have left the cache.
func (r *Reconciler) onDeletions() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if is, ok := e.Object.(*mendv1.RemediationRecord); ok && r.noteVanished(is) {
				q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(is)})
			}
		},
	}
}

// restore writes the record called key again, as it was last seen, if somebody has deleted it while its remediation goes on.
func (r *Reconciler) restore(ctx context.Context, key types.NamespacedName) (ctrl.Result, error) {
	r.vanished.mu.Lock()
	was := r.vanished.found[key]
	r.vanished.mu.Unlock()
	if was == nil {
		return ctrl.Result{}, nil
	}
	o := &observed{now: r.Clock.Now(), live: true, record: was}
	again, err := r.rewrite(ctx, o)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write RemediationRecord %s again: %w", key, err)
	}
	if again.IsZero() {
		r.vanished.mu.Lock()
		defer r.vanished.mu.Unlock()
		if r.vanished.found[key] == was {
			delete(r.vanished.found, key)
		}
	}
	return enqueue.At(again, o.now), nil
}

// rewrite writes the record of o again, or returns when to look again. It is zero if there is no more to do: as of a record that is there, be it closed, of a
// remediation that is over or that another record is about, and of one that went with its Cluster or namespace.
func (r *Reconciler) rewrite(ctx context.Context, o *observed) (again time.Time, err error) {
	there := &mendv1.RemediationRecord{}
	err = r.Live.Get(ctx, client.ObjectKeyFromObject(o.record), there)
	switch {
	case err == nil:
		return time.Time{}, r.relabel(ctx, there)
	case meta.IsNoMatchError(err):
		return time.Time{}, nil
	case !apierrors.IsNotFound(err):
		return time.Time{}, err
	}
	if err := r.observeCluster(ctx, o); err != nil {
		return time.Time{}, err
	}
	if !r.covers(o) || o.ownerless() {
		return time.Time{}, nil
	}
	if err := r.observeFacts(ctx, o); err != nil {
		return time.Time{}, err
	}
	o.facts.Lost = true
	plan := record.Decide(o.facts)
	switch {
	case o.facts.Paused: // it may be moved: then the Cluster goes as well
		return o.now.Add(latest), nil
	case !plan.State.Ended.IsZero():
		return time.Time{}, nil
	case plan.State.Begun.IsZero(): // who begins it writes a record, but may just have seen this one
		return o.unbegun(), nil
	}
	if last := lastRestored(&o.facts.State); o.now.Before(last.Add(latest)) { // somebody deletes it again and again
		return last.Add(latest), nil
	}
	if other, err := records.OpenBeside(ctx, r.Live, o.record); other != nil || err != nil {
		return time.Time{}, err
	}
	return time.Time{}, r.createAgain(ctx, o, plan)
}

// relabel puts the label back on an open record that somebody took off or gave another value: without it, nothing follows the record.
func (r *Reconciler) relabel(ctx context.Context, is *mendv1.RemediationRecord) error {
	if is.Labels[mendv1.RecordOpenLabel] == "true" || !is.Open() || !is.DeletionTimestamp.IsZero() {
		return nil
	}
	after := is.DeepCopy()
	metav1.SetMetaDataLabel(&after.ObjectMeta, mendv1.RecordOpenLabel, "true")
	return client.IgnoreNotFound(r.Client.Patch(ctx, after, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{})))
}

// ownerless reports whether the Cluster that owns the record is gone, or on its way out: then the record goes with it.
func (o *observed) ownerless() bool {
	if o.record.Spec.Target.ClusterName == "" {
		return false
	}
	if o.cluster == nil || !o.cluster.DeletionTimestamp.IsZero() {
		return true
	}
	for _, owner := range o.record.OwnerReferences {
		if owner.Kind == "Cluster" && owner.Name == o.cluster.Name {
			return owner.UID != o.cluster.UID
		}
	}
	return false
}

// unbegun is when to look again at a record whose remediation has not begun; zero if it does not begin any more.
func (o *observed) unbegun() time.Time {
	if !o.now.Before(o.attempted().Add(record.Unbegun)) {
		return time.Time{}
	}
	return o.now.Add(soonest)
}

// attempted is when the remediation was last about to begin.
func (o *observed) attempted() time.Time {
	if at := o.facts.State.Attempted; at.After(o.facts.Decided) {
		return at
	}
	return o.facts.Decided
}

// lastRestored is when the record was last written again; zero if it was not.
func lastRestored(s *record.State) (at time.Time) {
	for _, step := range s.Steps {
		if step.Reason == record.RecordRestored {
			at = step.Time
		}
	}
	return at
}

// createAgain creates the record of o anew, by plan. Where nothing may be created any more, or somebody else was faster, there is no more to do.
func (r *Reconciler) createAgain(ctx context.Context, o *observed, plan record.Plan) error {
	is := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.record.Namespace, Name: o.record.Name, Labels: maps.Clone(o.record.Labels), Annotations: maps.Clone(o.record.Annotations),
			OwnerReferences: o.record.OwnerReferences,
		},
		Spec: *o.record.Spec.DeepCopy(), Status: statusOf(o, plan),
	}
	metav1.SetMetaDataLabel(&is.ObjectMeta, mendv1.RecordOpenLabel, "true")
	labelled(o, is)
	records.Bound(is)
	err := r.Client.Create(ctx, is)
	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		return err
	}
	log.FromContext(ctx).Info("Wrote a record again that was deleted while it was open", "RemediationRecord", klog.KObj(is))
	return nil
}
