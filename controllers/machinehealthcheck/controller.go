// Package machinehealthcheck judges the machines that MachineHealthChecks select, and has unhealthy machines remediated by their owner or
// by an external remediation provider.
//
// Each reconcile of a check observes, decides, applies and reports. The decisions are in rules.go, decide.go and the files *_decide.go.
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

// RBAC of this controller in the management cluster, besides package remediationrequest. It deletes nothing but remediation requests.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks/status,verbs=patch

// Reconciler reconciles MachineHealthChecks.
type Reconciler struct {
	// Client reads from caches and writes to the management cluster.
	Client client.Client
	// Live reads from the API server, past the caches; nil for a reader that writes nothing.
	Live     client.Reader
	Clusters Clusters
	Requests *remediationrequest.Requests
	Kinds    Kinds
	// Hosts watches BareMetalHosts, for spare hosts and for the labels that policies group by.
	Hosts    HostWatch
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Records writes the record of each remediation before the remediation begins; nil for a reader that writes nothing.
	Records *records.Records
	// Metal finds the hosts of machines.
	Metal records.Metal

	// Verify asks a workload cluster live whether its UID is still the one that the Cluster keeps; nil for a reader that writes nothing.
	Verify func(ctx context.Context, cluster client.ObjectKey) error

	// Unclaimed says what to do with checks that are not claimed for kubemend.
	Unclaimed Unclaimed
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a check, or its Cluster, must have; empty for all.
	WatchFilterValue string
	// Installed reports from a cache whether a CustomResourceDefinition of that name exists. If Installed is nil, each reconcile with an
	// unhealthy machine on a host asks the API server for kinds that are not installed.
	Installed func(ctx context.Context, crd string) (bool, error)
	// Ledger gives remediations the places that RemediationPolicies allow.
	Ledger *policy.Ledger
	// Resync is how long after a reconcile a check is reconciled again although nothing happened.
	Resync time.Duration

	memory     memory
	machines   toolscache.Indexer // nil: Client lists the machines
	written    consistency.Writes // own writes to Machines
	writing    sync.Map           // the Machines that own writes stored, until their events arrive, by ownWrite
	requested  consistency.Kinds  // own requests: created, or perhaps created
	spares     sync.Map           // the keys of the checks with a remediation that waits for a spare host
	placing    sync.Mutex         // held while askPlaces compares observed.given and takes places
	hosts      hostsByMachine
	merging    enqueue.Merging
	controller controller.Controller
	wake       func(check types.NamespacedName, in time.Duration) // enqueues a check
}

// Clusters reads the workload clusters; see package workload.
type Clusters interface {
	Doubt(cluster client.ObjectKey, now time.Time)
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
	NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error)
}

// Kinds knows the kinds of templates and requests in use.
type Kinds interface {
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	InUse() []schema.GroupVersionKind
	Source(h handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request]) source.Source
}

// Reconcile judges the machines of the check that req names and carries out the plan. It sends events only after it saved what they report.
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
	if r.changed(ctx, state, plan) { // the next reconcile finds the Link Down
		r.settlePlaces(state, nil)
		r.memory.Store(req.NamespacedName, state.before)
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	r.memory.tell(req.NamespacedName, plan.Memory.Opinions)
	done := r.apply(ctx, state, plan)
	r.settlePlaces(state, done.outcomes)
	return r.tell(ctx, state, plan, done), nil
}

// decide returns the plan. It reads the facts that the plan asks for and decides again, until the plan needs nothing more.
func (r *Reconciler) decide(ctx context.Context, state *observed) *Plan {
	for {
		state.SpareWait = r.Ledger.SpareWaits(state.Check, state.Cluster)
		plan := state.decide()
		switch {
		case plan.Needs.Cycles:
			r.observeCycles(ctx, state)
		case plan.Needs.Template:
			_ = r.readTemplate(ctx, state) // tryTemplate keeps the error for each machine
			state.tryTemplate(plan)
		case plan.Needs.Hosts:
			r.observeHosts(ctx, state, plan)
		case plan.Needs.Spares:
			r.observeSpares(ctx, state, plan)
		case state.Placeless == nil && !state.Explains:
			if !r.takePlaces(ctx, state, plan) { // another check may have taken the host meanwhile
				r.observeSpares(ctx, state, plan)
			}
		default:
			return plan
		}
	}
}

// wakeOthers enqueues the other checks of the same machines if next has opinions that they do not know yet. They may have waited for an
// announced remediation that did not begin; then they are enqueued only as often as this check retries. Otherwise two checks whose requests
// are refused would try in turn without a pause.
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

// leaveAlone writes the conditions that kubemend may set on a check whose machines are not judged. state is nil if the check is gone.
// Nothing is requeued: every change that ends this state has a watch.
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

// Unclaimed says what to do with checks that are not claimed for kubemend. It is the value of the flag --unclaimed-machine-health-checks.
type Unclaimed string

const (
	// Observe judges, exports metrics and explains, and writes nothing.
	Observe Unclaimed = "observe"
	// Act treats unclaimed checks like claimed ones. It is for clusters in which Cluster API core leaves MachineHealthChecks alone;
	// elsewhere two controllers would act on one check.
	Act Unclaimed = "act"
	// Ignore does not reconcile unclaimed checks.
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

// Validate returns an error for a value that the flag's type accepts but the controller does not.
func (o *Options) Validate() error {
	return flags.Positive("machinehealthcheck-concurrency", o.Concurrency)
}

// SlimMachine is the transform of the machine cache. It drops fields that kubemend does not read: managed fields, the annotation of
// `kubectl apply`, bootstrap data, addresses, node details. It keeps all conditions, in both API versions, because kubemend writes these
// lists as a whole. It keeps failureReason and failureMessage. It interns strings that most machines share.
func SlimMachine(obj any) (any, error) {
	machine, ok := obj.(*clusterv1.Machine)
	if !ok {
		return obj, nil
	}
	machine.ManagedFields = nil
	delete(machine.Annotations, corev1.LastAppliedConfigAnnotation)
	interned := make(map[string]string, len(machine.Labels))
	for key, value := range machine.Labels {
		interned[workload.Interned(key)] = workload.Interned(value)
	}
	machine.Labels = interned
	machine.Spec = clusterv1.MachineSpec{
		ClusterName: workload.Interned(machine.Spec.ClusterName), ProviderID: machine.Spec.ProviderID,
		FailureDomain: machine.Spec.FailureDomain, InfrastructureRef: machine.Spec.InfrastructureRef,
		Deletion: machine.Spec.Deletion, Bootstrap: clusterv1.Bootstrap{ConfigRef: machine.Spec.Bootstrap.ConfigRef},
	}
	machine.Status = clusterv1.MachineStatus{
		NodeRef: machine.Status.NodeRef, FailureDomain: machine.Status.FailureDomain, Initialization: machine.Status.Initialization,
		Deletion: machine.Status.Deletion, Deprecated: machine.Status.Deprecated,
		Conditions: slices.Clone(machine.Status.Conditions), // Clone drops spare capacity
	}
	for i := range machine.Status.Conditions {
		cond := &machine.Status.Conditions[i]
		cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
		cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
	}
	if older := slices.Clone(machine.GetV1Beta1Conditions()); older != nil {
		for i := range older {
			cond := &older[i]
			cond.Type, cond.Status = workload.Interned(cond.Type), workload.Interned(cond.Status)
			cond.Severity = workload.Interned(cond.Severity)
			cond.Reason, cond.Message = workload.Interned(cond.Reason), workload.Interned(cond.Message)
		}
		machine.SetV1Beta1Conditions(older)
	}
	return machine, nil
}

// SlimMetadata is the transform of caches that have no transform of their own. It drops managedFields and last-applied annotations, except
// those of checks, in which the condition Effective finds fields that the API server has dropped.
func SlimMetadata(obj any) (any, error) {
	if o, ok := obj.(metav1.Object); ok {
		o.SetManagedFields(nil)
		if _, check := obj.(*clusterv1.MachineHealthCheck); !check {
			delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
		}
	}
	return obj, nil
}
