// Package machinehealthcheck judges the machines that MachineHealthChecks select, and hands the bad ones to their owner
// or to an external remediation provider.
//
// A reconcile of one check observes, decides, applies and tells. What is decided stands in rules.go, decide.go and the files *_decide.go.
package machinehealthcheck

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/flags"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// RBAC of this controller in the management cluster, besides that of package remediationrequest. Nothing is ever deleted but remediation
// requests.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks/status,verbs=patch

// Reconciler makes reconciles of MachineHealthChecks.
type Reconciler struct {
	// Client reads from caches and writes to the management cluster.
	Client client.Client
	// Live reads past the caches; nil for a reader that writes nothing.
	Live     client.Reader
	Clusters Clusters
	Requests *remediationrequest.Requests
	Kinds    Kinds
	// Hosts are those that checks wait for which ask for a spare host; nil for a reconciler that reads none.
	Hosts    HostWatch
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Records writes the records of remediations before they begin; nil for a reader that writes nothing. Metal finds hosts; nil where
	// there are none.
	Records *records.Records
	Metal   records.Metal

	// Verify asks a workload cluster live whether it is still the one that the Cluster keeps; nil for a reader that writes nothing.
	Verify func(ctx context.Context, cluster client.ObjectKey) error

	// Unclaimed says what to do with checks that are not claimed for kubemend.
	Unclaimed Unclaimed
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a check, or its Cluster, must have; empty for all.
	// (package shard)
	WatchFilterValue string
	// Installed reports whether there is a CustomResourceDefinition of that name, from a cache. Without it the API server is asked for
	// kinds that are not installed, again and again while a machine on a host is unhealthy.
	Installed func(ctx context.Context, crd string) (bool, error)
	// Ledger gives places to remediations by RemediationPolicies; nil for a reader that writes nothing.
	Ledger *policy.Ledger
	// Resync is after how long a check is looked at although nothing happened.
	Resync time.Duration

	memory     memory
	machines   toolscache.Indexer // nil: they are listed through Client
	written    consistency.Writes // Machines
	writing    sync.Map           // the Machines that result from own writes whose events are awaited, by ownWrite
	requested  consistency.Kinds  // requests that were created, or may have been
	spares     spares
	placing    sync.Mutex // held from the look at which hosts were counted on until places are taken
	hostLabels labelsOfHosts
	merging    enqueue.Merging
	controller controller.Controller
	wake       func(check types.NamespacedName, in time.Duration) // enqueues a check
}

// Clusters are the workload clusters. (package workload)
type Clusters interface {
	Doubt(cluster client.ObjectKey, now time.Time)
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
	NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error)
}

// Kinds are the kinds of templates and requests that are in use.
type Kinds interface {
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	InUse() []schema.GroupVersionKind
	Source(h handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request]) source.Source
}

// Reconcile makes the observed state of the check called req agree with the plan for it. Events are sent after what they report was saved.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	state, err := r.find(ctx, req.NamespacedName, r.Clock.Now())
	if err != nil {
		return ctrl.Result{}, err
	}
	measureMode(req.NamespacedName, state)
	if state == nil || state.Mode < Observed {
		return r.leaveAlone(ctx, req.NamespacedName, state)
	}
	state.before = r.memory.of(req.NamespacedName)
	if state.before.away {
		r.Clusters.Doubt(client.ObjectKeyFromObject(state.Cluster), state.Now)
	}
	if err := r.observe(ctx, state); err != nil {
		return ctrl.Result{}, err
	}
	if r.stale(ctx, state) {
		state.before.stale++
		r.memory.Store(req.NamespacedName, state.before)
		return ctrl.Result{RequeueAfter: consistency.Wait(state.before.stale)}, nil
	}
	state.Allowed = r.Ledger.Allows(req.NamespacedName, state.Cluster.Name)
	plan := r.decide(ctx, state)
	if r.changed(ctx, state, plan) { // the next view of it is of a cluster that is Down
		r.settlePlaces(state, nil)
		r.memory.Store(req.NamespacedName, state.before)
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	r.memory.tell(req.NamespacedName, plan.Memory.Opinions)
	done := r.apply(ctx, state, plan)
	r.settlePlaces(state, done.outcomes)
	return r.tell(ctx, state, plan, done), nil
}

// decide decides on state, and reads what a plan needs that was not read.
func (r *Reconciler) decide(ctx context.Context, state *observed) *Plan {
	for {
		state.SpareWait = r.Ledger.SpareWaits(state.Check, state.Cluster)
		plan := state.decide()
		switch {
		case plan.Needs.Cycles:
			r.observeCycles(ctx, state)
		case plan.Needs.Template:
			_ = r.readTemplate(ctx, state) // that it is of no use blocks the machines
			state.tryTemplate(plan)
		case plan.Needs.Hosts:
			r.observeHosts(ctx, state, plan)
		case plan.Needs.Spares:
			r.observeSpares(ctx, state, plan)
		case state.Placeless == nil && !state.Explains:
			if !r.takePlaces(ctx, state, plan) { // of two checks that want the same host one reads the hosts again
				r.observeSpares(ctx, state, plan)
			}
		default:
			return plan
		}
	}
}

// wakeOthers has the other checks of the same machines reconciled if the opinions in next are news to them. Where a remediation did not
// begin that they were told of, they may have waited for it. That is as often as this check tries: else two checks whose requests are
// refused would try in turn without a pause.
func (r *Reconciler) wakeOthers(state *observed, plan *Plan, next *remembered) {
	in := enqueue.MergeWindow
	switch {
	case r.wake == nil:
		return
	case !sameOpinions(state.before.decided.Opinions, next.decided.Opinions):
	case !sameOpinions(plan.Memory.Opinions, next.decided.Opinions):
		in = enqueue.Backoff(max(next.failed, 1))
	default:
		return
	}
	for _, other := range state.Overlaps {
		if other.Acting && other.Shared > 0 {
			r.wake(types.NamespacedName{Namespace: state.Check.Namespace, Name: other.Name}, in)
		}
	}
}

// leaveAlone sets the conditions of a check whose machines are not judged, as far as they are kubemend's to set. state is nil if the check
// is gone. All that ends that state is watched.
func (r *Reconciler) leaveAlone(ctx context.Context, key types.NamespacedName, state *observed) (ctrl.Result, error) {
	r.forget(key, state != nil)
	if state == nil {
		return ctrl.Result{}, nil
	}
	err := r.recordStatus(ctx, state, statusAfter(state, state.decide(), nil))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	return ctrl.Result{}, err
}

// Unclaimed says what to do with checks that are not claimed for kubemend. It is the
// value of the flag --unclaimed-machine-health-checks.
type Unclaimed string

const (
	// Observe judges, exports metrics and answers questions, and writes nothing.
	Observe Unclaimed = "observe"
	// Act treats unclaimed checks like claimed ones. It is for clusters in which Cluster API core
	// leaves MachineHealthChecks alone; elsewhere two controllers would act on one check.
	Act Unclaimed = "act"
	// Ignore does not look at unclaimed checks at all.
	Ignore Unclaimed = "ignore"
)

// Options are the settings of the MachineHealthCheck controller.
type Options struct {
	Unclaimed   Unclaimed
	Concurrency int
}

// AddFlags adds the controller's flags to fs and sets their defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.Var(flags.OneOf(&o.Unclaimed, Observe, Act, Ignore), "unclaimed-machine-health-checks",
		"What to do with a MachineHealthCheck that is not claimed by the annotation cluster.x-k8s.io/paused: kubemend. "+
			"observe: judge and export metrics, write nothing. "+
			"act: remediate; only where Cluster API core leaves MachineHealthChecks alone. "+
			"ignore: do not read it.")
	fs.IntVar(&o.Concurrency, "machinehealthcheck-concurrency", 50, "Number of MachineHealthChecks to process at the same time.")
}

// Validate returns what is wrong with the values that the types of the flags let pass.
func (o *Options) Validate() error {
	return flags.Positive("machinehealthcheck-concurrency", o.Concurrency)
}

// SlimMachine is the transform of the machine cache. It drops what is not read here: managed fields, what `kubectl apply` leaves in an
// annotation, bootstrap data, addresses, node details. Conditions are kept whole, in both flavours: they are lists that are written back
// as a whole. So is a failure that is final. Texts that nearly all machines have are in memory once.
func SlimMachine(obj any) (any, error) {
	machine, ok := obj.(*clusterv1.Machine)
	if !ok {
		return obj, nil
	}
	slim := &clusterv1.Machine{TypeMeta: machine.TypeMeta, ObjectMeta: machine.ObjectMeta}
	slim.ManagedFields = nil
	delete(slim.Annotations, corev1.LastAppliedConfigAnnotation)
	slim.Labels = make(map[string]string, len(machine.Labels))
	for key, value := range machine.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	slim.Spec = clusterv1.MachineSpec{
		ClusterName: workload.Interned(machine.Spec.ClusterName), ProviderID: machine.Spec.ProviderID,
		FailureDomain: machine.Spec.FailureDomain, InfrastructureRef: machine.Spec.InfrastructureRef,
		Deletion: machine.Spec.Deletion, Bootstrap: clusterv1.Bootstrap{ConfigRef: machine.Spec.Bootstrap.ConfigRef},
	}
	slim.Status = clusterv1.MachineStatus{
		NodeRef: machine.Status.NodeRef, FailureDomain: machine.Status.FailureDomain, Initialization: machine.Status.Initialization,
		Deletion: machine.Status.Deletion, Conditions: slices.Clone(machine.Status.Conditions), // in no more memory than they need
	}
	for i := range slim.Status.Conditions {
		cond := &slim.Status.Conditions[i]
		cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
		cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
	}
	if machine.Status.Deprecated != nil && machine.Status.Deprecated.V1Beta1 != nil {
		slim.Status.Deprecated = machine.Status.Deprecated
		older := slices.Clone(machine.GetV1Beta1Conditions())
		for i := range older {
			cond := &older[i]
			cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
			cond.Severity = workload.Interned(cond.Severity)
			cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
		}
		slim.SetV1Beta1Conditions(older)
	}
	return slim, nil
}

// SlimMetadata is the transform of caches of metadata and of everything else that is not judged. Of a check it keeps what was applied, by
// which a field is found that the API server has dropped.
func SlimMetadata(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		if _, check := obj.(*clusterv1.MachineHealthCheck); !check {
			delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
		}
	}
	return obj, nil
}
