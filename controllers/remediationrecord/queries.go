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

// Missing is the capacity that is missing according to an open record.
type Missing struct {
	// Target is what is remediated. Check is the check that asked for the remediation; it has no name if no check did.
	Target, Check mendv1.RecordRef
	// Namespace is the record's namespace. Cluster is the target's Cluster; empty for nodes of this cluster.
	Namespace, Cluster string
	// Reason is what the record waits for, Message the same as a sentence. Since is when the wait began; zero if that is not known.
	Reason, Message string
	Since           time.Time
	// Due is since when the target counts as unhealthy.
	Due time.Time
}

// notExpected are the reasons for which no machine will come, so that no capacity is missing even before the target is gone.
var notExpected = []string{
	capacity.ScaledDown, capacity.OwnerDeleted, capacity.ClusterDeleted, capacity.NamespaceDeleted,
}

// MissingBy returns the capacity that is missing by a record; nil if it is closed, if nothing has begun, or if no machine will come.
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

// missingOfCheck returns what a check reports of the capacity that is missing by a record. It reports every state of a power cycle as
// RemediationInProgress. Otherwise each state would cause a write of the check, which lists all its targets.
func missingOfCheck(record *mendv1.RemediationRecord) *Missing {
	m := MissingBy(record)
	if m != nil && powercycle.State(m.Reason).Known() {
		step := ptr.Deref(waitingFor(&record.Status), mendv1.RecordStep{})
		m.Reason, m.Message = RemediationInProgress, stepText(RemediationInProgress, "", ptr.Deref(step.Object, mendv1.RecordRef{}))
	}
	return m
}

// OldestFirst sorts by when the targets were due.
func OldestFirst(losses []Missing) {
	slices.SortFunc(losses, func(a, b Missing) int {
		return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Target.Namespace, b.Target.Namespace), cmp.Compare(a.Target.Name, b.Target.Name))
	})
}

// MissingOf returns the missing capacity of a MachineHealthCheck, the oldest first. known is false until the cache has all open records.
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

// Repeated returns the records that count for an owner, a host or a node; none if they cannot be read, or before the cache has all open
// ones. They are shared: read only. The manager reads them from its own cache, which has the index, and not from reader, which may be the
// cache of the NodeHealthChecks. The command line has a nil Records and reads from reader. A record that begins in the future does not
// count, since it would delay the next remediation until then: a user wrote it, or a manager whose clock was ahead.
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

// formerWithin is how long after a start a remediation waits for the records of earlier remediations.
const formerWithin = 30 * time.Second

// Awaited returns until when the next remediation waits because the cache lacks the earlier records; zero if it has them, or has no CRD.
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

// countsUntil returns until when a closed record counts; zero if it was not begun. repeats counts it for Remembered after its end, and
// RemediationPolicies for an hour after it has begun (maxPerHour).
func countsUntil(record *mendv1.RemediationRecord) time.Time {
	switch {
	case record.Status.Begun == nil:
		return time.Time{}
	case len(repeats.SubjectsOf(record)) > 0:
		return record.Status.Ended.Add(repeats.Remembered)
	}
	return record.Status.Begun.Add(time.Hour)
}

// forgetClosed removes a closed record from the cache once it does not count any more.
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
