// Package remediationrecord keeps the RemediationRecords: one is written before a remediation begins (Records), says what becomes of it
// (Reconciler), and is closed when its end is known: when capacity is back, or no longer to be expected. Closed records are deleted when
// there are too many, or when they are old.
//
// It remediates nothing. By what it writes, remediations that begin again and again wait. A reconcile of one open record observes, decides,
// applies and reports.
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

// RBAC to follow what becomes of a machine. Rights on requests are those of package remediationrequest; on hosts and nodes of this cluster,
// those of the features that act on them. What is not granted is not known, and changes no record.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinesets;machinedeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups=controlplane.cluster.x-k8s.io,resources=kubeadmcontrolplanes,verbs=get
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get

// Reconciler follows the open ones of Records, whose Client reads Machines and Clusters from caches, too.
type Reconciler struct {
	*Records

	// Recent reads what no cache has.
	Recent *Recent
	Mapper meta.RESTMapper
	// Cached are where requests are read, in this order; of kinds that none of them has, past them.
	Cached []RequestCache
	// Finds is what a MachineHealthCheck finds of a Machine that other checks select too; false if that is not known.
	Finds func(check types.NamespacedName, machine types.UID) (healthy, known bool)
	// StepLeft reports whether a NodeHealthCheck has a step left for an unhealthy node; true while that is not known.
	StepLeft func(check, node string) bool
	// NodeCache has the nodes of this cluster and their checks while kubemend acts on these; nil for none.
	NodeCache client.Reader
	// HostLists lists BareMetalHosts, from a cache where the manager watches them; nil to list them past the caches.
	HostLists client.Reader
	// Namespace is the one that the caches have; empty for all.
	Namespace string
	// Recorder sends events about checks and Machines.
	Recorder events.EventRecorder
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a record, or its Cluster, must have; empty for all.
	// (package shard)
	WatchFilterValue string
	// Nodes reports whether this manager follows records that belong to no Cluster: those of NodeHealthChecks, which have no shard.
	Nodes bool
	// ActsOnUnclaimed reports whether kubemend acts on MachineHealthChecks that nobody has claimed, ActsOnNodes whether on
	// NodeHealthChecks; nil if it does.
	ActsOnUnclaimed bool
	ActsOnNodes     func() bool
	// Retention says which closed records are kept.
	Retention Options

	// memories has a *memory for each open record, retired when the closed records of a Cluster were last listed. (retire)
	memories, retired sync.Map
}

// memory is what this process remembers of an open record: when it was last written, and since when nothing acts on its target, as the
// reconcile of that alone has it; and when the cache showed that its Machine was gone. Without it, words are written sooner.
type memory struct {
	written, idle time.Time
	went          atomic.Pointer[time.Time]
}

func (r *Reconciler) remembers(record types.NamespacedName) *memory {
	kept, _ := r.memories.LoadOrStore(record, &memory{})
	return kept.(*memory)
}

// Reconcile makes the record called req say what has become of its remediation.
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

// The bounds of how often a record is looked at without an event. Of a Machine that waits for a MachineSet all is watched; control planes
// and hosts are not, and each look at a record that waits for them asks the API server.
const (
	soonest      = 5 * time.Second
	soonestAsked = 30 * time.Second
	latest       = 10 * time.Minute
)

// again is when the record is looked at again although no event comes: the older it is, the rarer.
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
	if plan.Again.After(o.now) && plan.Again.Before(at) { // one that has passed would be looked at again at once, for ever
		at = plan.Again
	}
	return enqueue.At(at, o.now)
}

// report exports what was written. When a record is closed, events say how, and old ones are deleted.
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
