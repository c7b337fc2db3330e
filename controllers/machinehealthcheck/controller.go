// Package machinehealthcheck judges the machines that MachineHealthChecks select, and hands the bad ones to their owner
// or to an external remediation provider.
//
// A reconcile of one check observes, decides, applies and tells. What is decided is decided in between by the pure packages below controllers/decide.
package machinehealthcheck

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// RBAC of this controller in the management cluster, besides that of package request. Nothing is ever deleted but remediation requests.
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
	Recorder events.EventRecorder
	Clock    clock.PassiveClock

	// Unclaimed says what to do with checks that are not claimed for kubemend.
	Unclaimed Unclaimed
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that a check must have; empty for all.
	WatchFilterValue string
	// Installed reports whether there is a CustomResourceDefinition of that name, from a cache. Without it the API server is asked for kinds that are
	// not installed, again and again while a machine on a host is unhealthy.
	Installed func(ctx context.Context, crd string) (bool, error)
	// CountByStatus says that Client does not have all machines of a check: its status counts them. It is for explanations alone.
	CountByStatus bool
	// Resync is after how long a check is looked at although nothing happened.
	Resync time.Duration

	memory     memory
	machines   toolscache.Indexer // nil: they are listed through Client
	written    ownWrites
	away       away
	merging    enqueue.Merging
	controller controller.Controller
}

// Clusters are the workload clusters. (package workload)
type Clusters interface {
	Doubt(cluster client.ObjectKey, now time.Time)
	View(ctx context.Context, cluster client.ObjectKey, now time.Time, watches ...clustercache.Watcher) (workload.View, error)
	NodesExist(ctx context.Context, cluster client.ObjectKey, names []string) (map[string]bool, error)
}

// Kinds are the kinds of templates and requests that are in use. (package request)
type Kinds interface {
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	Named(ctx context.Context, check types.NamespacedName, kinds ...schema.GroupVersionKind) error
	InUse() []schema.GroupVersionKind
	Notify(w remediationrequest.Watcher, h handler.TypedEventHandler[*remediationrequest.Metadata, reconcile.Request])
}

// Reconcile makes what there is of the check called req agree with the plan for it. Users are told what was saved, after it was.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	w, err := r.observe(ctx, req.NamespacedName, r.Clock.Now(), r.memory.recall)
	if err == nil && w != nil && w.mode > paused && w.initialized && r.away.back(req.NamespacedName) {
		r.Clusters.Doubt(client.ObjectKeyFromObject(w.cluster), w.now)
		w, err = r.observe(ctx, req.NamespacedName, w.now, r.memory.recall)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if w == nil || w.mode <= paused {
		return r.leaveAlone(ctx, req.NamespacedName, w)
	}
	if r.stale(ctx, w) {
		return ctrl.Result{RequeueAfter: r.memory.lag(req.NamespacedName)}, nil
	}
	p := r.decide(ctx, w, func(d *machines.Decision) bool { return d.Tried })
	done := r.apply(ctx, w, p)
	return r.tell(ctx, w, p, done)
}

// stale reports whether the cache does not show yet what the reconcile before has written. Decided on that, a remediation that was requested of an
// owner would not count. It is no failure, and the check is reconciled again in a moment. (docs/adr/0058-read-your-own-writes.md)
func (r *Reconciler) stale(ctx context.Context, w *observed) bool {
	return slices.ContainsFunc(w.wrote, func(name string) bool {
		m := w.sighting.machine(name)
		return m != nil && r.written.stale(m) && !r.undone(ctx, w, m)
	}) || r.Live != nil && slices.ContainsFunc(w.unsure, func(name string) bool {
		m := w.sighting.machine(name)
		return m != nil && r.behind(ctx, w, m)
	})
}

// standsStill is how many reconciles in a row find the cache to be stale until the API server is asked. With nothing but their waits in between that is
// two and a half seconds.
const standsStill = 7

// undone reports whether the API server has m in no newer version than the cache, which waits for a write that is gone: the API server was restored
// from a backup. It is asked when the wait is long. No other wait ends here, and the log says that the check waits.
func (r *Reconciler) undone(ctx context.Context, w *observed, m *clusterv1.Machine) bool {
	if w.stale < standsStill || r.Live == nil {
		return false
	}
	is, err := r.live(ctx, m)
	if err != nil || is.UID != m.UID || consistency.Older(m.ResourceVersion, is.ResourceVersion) {
		log.FromContext(ctx).Info("The check waits for the cache, which does not show yet what was written",
			"Machine", klog.KObj(m), "stale", w.stale, "error", err)
		return false
	}
	log.FromContext(ctx).Info("What was written of a machine is gone: the API server has an older version", "Machine", klog.KObj(m))
	r.written.saved.Forget(client.ObjectKeyFromObject(m))
	return true
}

// behind reports whether the API server has m in a newer version than the cache: the owner of m may have been asked to remediate it, and the answer to
// that write was lost. If the API server cannot be asked, it may be so for some seconds.
func (r *Reconciler) behind(ctx context.Context, w *observed, m *clusterv1.Machine) bool {
	is, err := r.live(ctx, m)
	if err != nil {
		return client.IgnoreNotFound(err) != nil && w.stale < standsStill
	}
	return is.UID == m.UID && consistency.Older(m.ResourceVersion, is.ResourceVersion)
}

// live reads the identity and the version of m past the cache.
func (r *Reconciler) live(ctx context.Context, m *clusterv1.Machine) (*metav1.PartialObjectMetadata, error) {
	is := &metav1.PartialObjectMetadata{}
	is.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return is, r.Live.Get(ctx, client.ObjectKeyFromObject(m), is)
}

// decide decides what w comes to. What matters only now and then is read if the decision so far depends on it: power cycles, if a machine on a host is
// not healthy, and the template, if a request may be made from it, which wanted says.
func (r *Reconciler) decide(ctx context.Context, w *observed, wanted func(*machines.Decision) bool) plan {
	p := w.decide()
	if p.any(mayWaitForCycle) {
		r.observeCycles(ctx, w)
		p = w.decide()
	}
	if w.remediation.external && w.remediation.known && w.remediation.missing == "" && p.any(wanted) {
		_ = r.readTemplate(ctx, w) // that it is of no use blocks the machines
		w.tryTemplate(p)
		p = w.decide()
	}
	return p
}

// leaveAlone leaves a check alone that is gone, ignored or paused, or whose Cluster does not exist. The check says why, if it
// is ours to write. Whatever ends that state is watched.
func (r *Reconciler) leaveAlone(ctx context.Context, key types.NamespacedName, w *observed) (ctrl.Result, error) {
	r.forget(key)
	if w == nil {
		r.away.back(key)
		return ctrl.Result{}, r.Kinds.Named(ctx, key)
	}
	r.away.leave(key)
	err := r.recordStatus(ctx, w, r.aside(w))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	return ctrl.Result{}, err
}

// aside returns the check with what it says while it is left alone: as it is, if it is not ours to write.
func (r *Reconciler) aside(w *observed) *clusterv1.MachineHealthCheck {
	switch {
	case w.mode == orphaned && (claimed(w.check) || r.Unclaimed == Act):
		return orphanedStatus(w)
	case w.mode == paused && !claimed(w.check) && r.Unclaimed == Act:
		return pausedStatus(w)
	}
	return w.check
}
