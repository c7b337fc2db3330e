package remediationrecord

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/shard"
)

// observed is what one reconcile decides on. What is from caches is shared: read only.
type observed struct {
	now time.Time
	// live reports that an end is decided: nothing that it rests on may be from a cache. (Plan.Confirm)
	live   bool
	record *mendv1.RemediationRecord
	// cluster is nil if there is none, or if the record belongs to none; machine, if it does not exist.
	cluster *clusterv1.Cluster
	machine *clusterv1.Machine
	// openshift is the Machine of OpenShift that the node names, as namespace/name; empty if it names none.
	openshift string
	// outside reports that the manager must not find out what the record is about. (inScope)
	outside bool
	facts   Facts
	// checked reports that the check is there that asked for the remediation, and is not being deleted; acts, that kubemend acts on it. checkUID is the UID
	// that it has now, nodeCheck the check itself, if it is a NodeHealthCheck.
	checked   bool
	acts      bool
	checkUID  types.UID
	nodeCheck *nhcv1.NodeHealthCheck
	// story is what the capacity waits for; nil if it was not asked.
	story *capacity.Story
}

// observe reads an open record and what it is about, live or from caches. It is nil if the record is not open, or not this manager's. The record itself is
// from the cache always: a write of one that has changed since is refused.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey, now time.Time, live bool) (*observed, error) {
	o := &observed{now: now, live: live, record: &mendv1.RemediationRecord{}}
	if live {
		r.Recent.Forget()
	}
	err := r.Client.Get(ctx, key, o.record)
	if apierrors.IsNotFound(err) || err == nil && (!o.record.Open() || !o.record.DeletionTimestamp.IsZero()) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read RemediationRecord %s: %w", key, err)
	}
	if err := r.observeCluster(ctx, o); err != nil {
		return nil, err
	}
	if !r.covers(o) {
		return nil, nil
	}
	o.facts = Facts{
		Now: o.now.Truncate(time.Millisecond), Decided: o.record.Spec.Decided.Time,
		Moved: Moved(o.record), Paused: o.paused(), Status: o.record.Status,
	}
	if o.facts.Paused {
		return o, nil
	}
	for _, read := range []func(context.Context, *observed) error{r.observeTarget, r.observeHealth, r.observeRequests, r.observeCapacity} {
		if err := read(ctx, o); err != nil {
			return nil, err
		}
	}
	if listed := o.listed(); listed != nil && listed.ConditionsHealthyTimestamp == nil {
		o.facts.Target.Checked = No // by what it judges besides what was found at the beginning, perhaps
	}
	o.facts.Next = o.next()
	return o, nil
}

// read reads a Cluster or a Machine. One that the cache does not have may be shown by it later, such as one that clusterctl has just moved here, unless the
// record says already that it is gone.
func (r *Reconciler) read(ctx context.Context, o *observed, key client.ObjectKey, obj client.Object) error {
	if !o.live {
		if err := r.Client.Get(ctx, key, obj); !apierrors.IsNotFound(err) || last(&o.facts.Status, TargetGone) != nil {
			return err
		}
	}
	return r.Recent.Get(ctx, key, obj)
}

// observeCluster reads the Cluster of the record.
func (r *Reconciler) observeCluster(ctx context.Context, o *observed) error {
	name := o.record.Spec.Target.ClusterName
	if name == "" {
		return nil
	}
	cluster := &clusterv1.Cluster{}
	key := client.ObjectKey{Namespace: o.record.Namespace, Name: name}
	err := r.read(ctx, o, key, cluster)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Cluster %s: %w", key, err)
	}
	o.cluster = cluster
	return nil
}

// covers reports whether the record is this manager's.
func (r *Reconciler) covers(o *observed) bool {
	if o.record.Spec.Target.ClusterName == "" {
		return r.Nodes
	}
	return shard.Covers(r.WatchFilterValue, o.record, o.cluster)
}

// paused reports whether nothing of the Cluster is to be changed, as while it is moved.
func (o *observed) paused() bool {
	return o.cluster != nil && annotations.IsPaused(o.cluster, o.cluster)
}

// observeTarget reads what is remediated.
func (r *Reconciler) observeTarget(ctx context.Context, o *observed) error {
	target, t := TargetOf(o.record), &o.facts.Target
	t.RecordRef, t.Machine = target, o.record.Spec.Target.Machine != nil
	inScope, err := r.inScope(ctx, o)
	if o.outside = !inScope; err != nil || !inScope {
		return err
	}
	if err := r.readTarget(ctx, o); err != nil {
		return err
	}
	if t.Exists {
		r.memoryOf(client.ObjectKeyFromObject(o.record), func(m *memory) { m.seen = o.facts.Now })
	}
	if t.Known && !t.Exists {
		t.GoneAt = r.goneAt(o.record)
	}
	return nil
}

func (r *Reconciler) readTarget(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	if !t.Machine {
		return r.observeOther(ctx, o)
	}
	m, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}
	err := r.read(ctx, o, key, m)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err) || err == nil && !o.facts.Moved && t.UID != "" && string(m.UID) != t.UID:
		t.Known = true
		return nil
	case err != nil:
		return fmt.Errorf("read Machine %s: %w", key, err)
	}
	o.machine = m
	t.Known, t.Exists = true, true
	if m.DeletionTimestamp != nil {
		t.Deleting = m.DeletionTimestamp.Time
	}
	o.observeChecked(r.Finds)
	o.observeAsked(m)
	_, t.ByHand = m.Annotations[clusterv1.RemediateMachineAnnotation]
	return nil
}

// observeAsked notes since when the owner of m is asked to replace it, if that is what the record is about.
func (o *observed) observeAsked(m *clusterv1.Machine) {
	t := &o.facts.Target
	asked := conditions.Get(m, clusterv1.MachineOwnerRemediatedCondition)
	other, _ := carriedByMachine(m)
	t.Superseded = other.Name != "" && !carries(m, o.record) && o.record.Spec.Remediator == mendv1.RemediatedByOwner
	follows := !t.Superseded && (!o.facts.Status.Begun.IsZero() || carries(m, o.record))
	if follows && asked != nil && asked.Status == metav1.ConditionFalse {
		t.Asked = asked.LastTransitionTime.Time
	}
}

// observeOther reads a Node of this cluster, or a host, as far as the manager may. A node that a remediator has deleted comes back with
// another UID: its name tells that it is the same.
func (r *Reconciler) observeOther(ctx context.Context, o *observed) error {
	t := &o.facts.Target
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(schema.FromAPIVersionAndKind(t.APIVersion, t.Kind))
	err := r.Recent.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, found)
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err) || err == nil && t.Kind != "Node" && !o.facts.Moved && t.UID != "" && string(found.UID) != t.UID:
		t.Known = true
		return nil
	case err != nil:
		return fmt.Errorf("read %s %s: %w", t.Kind, t.Name, err)
	}
	t.Known, t.Exists = true, true
	o.openshift = found.Annotations[nodes.OpenShiftMachine]
	if found.DeletionTimestamp != nil {
		t.Deleting = found.DeletionTimestamp.Time
	}
	return nil
}
