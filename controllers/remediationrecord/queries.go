package remediationrecord

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
)

// Missing is what an open record says of capacity that is not back.
type Missing struct {
	// Target is what is remediated, Check what asked for that; without a name nothing did that is known.
	Target, Check mendv1.RecordRef
	// Namespace is that of the record, Cluster the one that the target belongs to; empty for nodes of this cluster.
	Namespace, Cluster string
	// Reason is what is waited for, Message that as a sentence, and Since since when; zero if that is not known.
	Reason, Message string
	Since           time.Time
	// Due is since when the target counts as unhealthy.
	Due time.Time
}

// notExpected are the reasons for which no other machine is to come: that a target is about to be gone then is no loss.
var notExpected = []string{
	capacity.ScaledDown, capacity.OwnerDeleted, capacity.ClusterDeleted, capacity.NamespaceDeleted,
}

// MissingBy is the capacity that is missing by a record; nil if it is closed, if nothing was begun yet, or if no other machine is expected.
func MissingBy(record *mendv1.RemediationRecord) *Missing {
	back := meta.FindStatusCondition(record.Status.Conditions, mendv1.RecordCapacityBack)
	if !record.Open() || record.Status.Begun == nil && back == nil || back != nil && slices.Contains(notExpected, back.Reason) {
		return nil
	}
	m := &Missing{
		Target: TargetOf(record), Check: ptr.Deref(record.Spec.Requester.Check, mendv1.RecordRef{}), Namespace: record.Namespace,
		Cluster: record.Spec.Target.ClusterName, Reason: Unread, Due: ptr.Deref(record.Spec.Due, record.Spec.Decided).Time,
	}
	if back != nil {
		m.Reason, m.Message = back.Reason, back.Message
	}
	if step := waitingFor(&record.Status); step != nil && step.Reason == m.Reason {
		m.Since = step.Time.Time
	}
	return m
}

// missingOfCheck is what a check says of the capacity that is missing by a record. How far a power cycle is, the record and the request
// say: a check, which names all of its targets, is not written for each step of one of them.
func missingOfCheck(record *mendv1.RemediationRecord) *Missing {
	m := MissingBy(record)
	if m != nil && powercycle.State(m.Reason).Known() {
		step := ptr.Deref(waitingFor(&record.Status), mendv1.RecordStep{})
		m.Reason, m.Message = RemediationInProgress, stepText(RemediationInProgress, "", ptr.Deref(step.Object, mendv1.RecordRef{}))
	}
	return m
}

// OldestFirst sorts what is missing: what was due first comes first.
func OldestFirst(losses []Missing) {
	slices.SortFunc(losses, func(a, b Missing) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Target.Namespace, b.Target.Namespace), cmp.Compare(a.Target.Name, b.Target.Name))
	})
}

// MissingOf is the capacity that is missing of a MachineHealthCheck; what was due first comes first. It is not known before the cache has
// all open records, nor where these are not installed.
func (r *Records) MissingOf(ctx context.Context, check types.NamespacedName) (losses []Missing, known bool, err error) {
	if r == nil || !r.followed() {
		return nil, false, nil
	}
	open, err := r.openOf(ctx, check.Namespace, checkKey(machineCheckKind, check.Namespace, check.Name))
	if err != nil {
		return nil, false, err
	}
	counted := map[mendv1.RecordRef]bool{}
	for _, record := range open {
		if lost := missingOfCheck(record); lost != nil && !counted[lost.Target] {
			counted[lost.Target] = true
			losses = append(losses, *lost)
		}
	}
	OldestFirst(losses)
	return losses, true, nil
}

// followed reports whether the cache has all open records.
func (r *Records) followed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.synced != nil && r.synced()
}

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
	if err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{recordIndex: subjectKey(kind + "/" + name)},
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
	r.asked.Do(func() { r.awaited = r.Clock.Now().Add(formerWithin) })
	return r.awaited
}

// countsUntil is until when a closed record counts: what it is about may fail again, and RemediationPolicies count for an hour what was
// begun (maxPerHour). It is zero for one that was not begun.
func countsUntil(record *mendv1.RemediationRecord) time.Time {
	switch {
	case record.Status.Begun == nil:
		return time.Time{}
	case len(repeats.SubjectsOf(record)) > 0:
		return record.Status.Ended.Add(repeats.Remembered)
	}
	return record.Status.Begun.Add(time.Hour)
}

// forgetClosed takes a closed record out of the cache once it counts no longer.
func (r *Reconciler) forgetClosed(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	record := &mendv1.RemediationRecord{}
	err := r.Client.Get(ctx, key, record)
	if err != nil || record.Open() || record.Labels[mendv1.RecordOpenLabel] == "" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if wait := countsUntil(record).Sub(r.Clock.Now()); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	after := record.DeepCopy()
	delete(after.Labels, mendv1.RecordOpenLabel)
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, after, client.MergeFrom(record)))
}
