// Package remediationrecord writes and follows RemediationRecords. Records writes a record before its remediation begins. Reconciler writes
// into the record what becomes of the remediation, and closes it when the capacity is back or no longer expected. It deletes closed records
// that are old, or of which a Cluster has too many.
//
// The package remediates nothing itself. Other controllers read the records to delay remediations that repeat (package repeats). A
// reconcile of an open record observes, decides, applies and reports.
package remediationrecord

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/enqueue"
)

// RBAC to follow what becomes of a Machine. Package remediationrequest has the rights on requests; the features that act on hosts, or on
// nodes of this cluster, have the rights on those. Without a right the fact is unknown, and no record changes.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get

// Reconciler follows the open records. The Client of Records also reads Machines and Clusters from caches.
type Reconciler struct {
	*Records

	// Recent reads from the API server, for objects that no cache has.
	Recent *Recent
	Mapper meta.RESTMapper
	// Cached are the caches that requests are read from, in this order. Requests of kinds that no cache has are read from the API server.
	Cached []RequestCache
	// Finds returns whether a MachineHealthCheck itself finds a Machine healthy, whatever other checks find; known is false without a
	// verdict.
	Finds func(check types.NamespacedName, machine types.UID) (healthy, known bool)
	// StepLeft reports whether a NodeHealthCheck has an escalation step left for an unhealthy node; true if that is not known yet.
	StepLeft func(check, node string) bool
	// NodeCache has the nodes of this cluster and the NodeHealthChecks while kubemend acts on NodeHealthChecks; nil without such a cache.
	NodeCache client.Reader
	// HostLists lists BareMetalHosts from a cache, where the manager watches them; nil to list them from the API server.
	HostLists client.Reader
	// Namespace is the only namespace that the caches have; empty if they have all.
	Namespace string
	// Recorder sends events about checks and Machines.
	Recorder events.EventRecorder
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a record, or its Cluster, must have; empty for all.
	WatchFilterValue string
	// Nodes reports whether this manager follows records without a Cluster: those of NodeHealthChecks, which belong to no shard.
	Nodes bool
	// ActsOnUnclaimed reports whether kubemend acts on MachineHealthChecks that no user has claimed for kubemend.
	ActsOnUnclaimed bool
	// ActsOnNodes reports whether kubemend acts on NodeHealthChecks; nil if it does.
	ActsOnNodes func() bool
	// Retention says which closed records are kept.
	Retention Options

	// memories has a *memory for each open record. retired has when the closed records of a Cluster were last listed (see retire).
	memories, retired sync.Map
}

// memory is what this process remembers of an open record. It is empty after a restart, which costs some reads and writes.
type memory struct {
	// written is when the record was last written. idle is since when nothing acts on its target. Only the record's reconcile uses them.
	written, idle time.Time
	// went is when the cache showed that the Machine was deleted. An event handler stores it.
	went atomic.Pointer[time.Time]
}

func (r *Reconciler) memoryOf(record types.NamespacedName) *memory {
	kept, _ := r.memories.LoadOrStore(record, &memory{})
	return kept.(*memory)
}

// Reconcile writes into a record what has become of its remediation.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	o, err := r.observe(ctx, req.NamespacedName, r.Clock.Now(), false)
	if err != nil {
		return ctrl.Result{}, err
	}
	if o == nil {
		r.memories.Delete(req.NamespacedName)
		return r.forgetClosed(ctx, req.NamespacedName)
	}
	if r.expired(o) {
		return ctrl.Result{}, r.remove(ctx, o.record, "Unread")
	}
	plan := Decide(o.facts)
	if plan.Confirm {
		if o, err = r.observe(ctx, req.NamespacedName, o.now, true); err != nil || o == nil {
			return ctrl.Result{}, err
		}
		plan = Decide(o.facts)
	}
	if !plan.Idle {
		o.memory.idle = time.Time{}
	} else if o.memory.idle.IsZero() {
		o.memory.idle = o.facts.Now
	}
	changed, err := r.apply(ctx, o, plan)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("write the status of RemediationRecord %s: %w", req.NamespacedName, err)
	}
	if changed {
		r.report(ctx, o, plan)
	}
	return again(o, plan), nil
}

// How long a record waits for its next reconcile if no event comes. MachineSets are watched, so that a record that waits for one needs few.
// Control planes and hosts are not watched, and each reconcile of a record that waits for them reads them from the API server.
const (
	soonest      = 5 * time.Second
	soonestAsked = 30 * time.Second
	latest       = 10 * time.Minute
)

// again returns when the record is reconciled if no event comes: the older the record, the later.
func again(o *observed, plan Plan) ctrl.Result {
	if !plan.Status.Ended.IsZero() {
		return ctrl.Result{}
	}
	age := o.now.Sub(o.facts.Decided)
	in := max(age/20, soonest)
	if o.story != nil {
		in = max(age/5, soonestAsked)
		if owner := o.story.Owner.Kind; !o.facts.Target.leaving() && (owner == "MachineSet" || owner == "MachineDeployment") {
			in = latest
		}
	}
	at := o.now.Add(min(in, latest))
	if plan.Again.After(o.now) && plan.Again.Before(at) { // a moment that has passed would requeue at once, for ever
		at = plan.Again
	}
	return enqueue.At(at, o.now)
}

// report exports metrics of what was written. If the record was closed, report also sends events and deletes old records.
func (r *Reconciler) report(ctx context.Context, o *observed, plan Plan) {
	measure(o, &plan.Status)
	if plan.Status.Ended.IsZero() {
		return
	}
	r.memories.Delete(client.ObjectKeyFromObject(o.record))
	r.sendEnd(o, &plan.Status)
	log.FromContext(ctx).Info("Closed a record", "RemediationRecord", klog.KObj(o.record), "outcome", plan.Status.Outcome)
	if err := r.retire(ctx, o.record); err != nil {
		log.FromContext(ctx).Error(err, "Deleting old records failed, retrying when another one is closed")
	}
}
