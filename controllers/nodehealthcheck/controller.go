// Package nodehealthcheck requests the remediation of the unhealthy nodes that NodeHealthChecks select, in the cluster that it runs in, from the
// templates that the checks name: one, or one after the other until the node is healthy.
//
// A reconcile of one check observes, decides, applies and reports. Only package decide/nodes decides; the others do I/O.
//
// The rules are those of medik8s' node-healthcheck-operator but where docs/differences.md says otherwise.
package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// RBAC of this controller, besides that of package request. What it may do to templates and requests of others comes by aggregation from
// whoever brings them: see config/rbac/ext-remediation.yaml. Nothing is ever deleted but remediation requests and leases of ours. Of Cluster
// API it reads what the others read; clusters and machines it gets where --namespace keeps them out of the manager's cache.
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks/status,verbs=patch
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch

// RBAC to store checks anew (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=nodehealthchecks.remediation.medik8s.io,verbs=patch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list;patch

// Kinds are the kinds of templates and requests, and those of OpenShift, whose objects Client reads.
type Kinds interface {
	// Ready reports whether the objects of a kind can be read. The error satisfies remediationrequest.Missing if the kind is not there, and
	// apierrors.IsForbidden if it may not be read.
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	// InUse are the kinds, but those of templates, that can be read: of which Ready was asked, or of which there are requests of a check.
	InUse() []schema.GroupVersionKind
	// Unread are those, but for templates, of which Ready was asked and that cannot be read yet.
	Unread() []schema.GroupVersionKind
	// Polled reports whether a kind that is ready is in no cache, and has to be read live again and again.
	Polled(kind schema.GroupVersionKind) bool
}

// Watches are Kinds as a manager has them: what happens to their objects enqueues checks.
type Watches interface {
	// Notify makes the controller hear of changes to the objects of all kinds.
	Notify(controller remediationrequest.Watcher, hears handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request])
	// Discover watches those kinds in lists of which there are requests with one of the marks.
	Discover(ctx context.Context, lists []*metav1.APIResourceList, marks ...client.ListOption) error
	// Named notes which kinds a check names, and ends the watches of those that none names any more and of which nothing is left.
	Named(ctx context.Context, check types.NamespacedName, kinds ...schema.GroupVersionKind) error
	// Ended is how many watches were ended so far.
	Ended() int
}

// Reconciler makes reconciles of NodeHealthChecks.
type Reconciler struct {
	// Client reads checks, nodes, leases, templates and requests from a cache of their own, which sees all namespaces, and writes.
	Client client.Client
	// Management reads what is Cluster API's, from the manager's cache.
	Management client.Reader
	// Live reads past the caches.
	Live     client.Reader
	Mapper   meta.RESTMapper
	Kinds    Kinds
	Requests *remediationrequest.Requests
	// Watches are Kinds, and Discovery finds those of requests that are left from before the start. Both are nil without a manager: where
	// Kinds knows all kinds from the start, as it does where everything was read, there is nothing to search for.
	Watches   Watches
	Discovery discovery.ServerResourcesInterface
	// Installed reports whether there is a CustomResourceDefinition of that name; nil if there is none of OpenShift's.
	Installed func(ctx context.Context, name string) (bool, error)
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Log is for the lines that documents of others quote: they are quoted whole, without what controller-runtime adds to those of a reconcile.
	Log logr.Logger

	// Contact knows when the API server was out of reach; nil if nobody does. Grace is how long kubelets have to report after that, and after the start,
	// before anything begins: the node-monitor grace period of the kube-controller-manager.
	Contact *Contact
	Grace   time.Duration

	// LeaseNamespace is where the leases on nodes are. If it is empty they are looked for in all namespaces, and none can be taken.
	LeaseNamespace string
	// Resync is after how long a check is reconciled although nothing happened.
	Resync time.Duration
	// Leaving says that kubemend is being removed: nothing is begun, and what was begun is ended.
	Leaving bool

	memory memory
	search search
	idle   atomic.Bool
	// resumed enqueues all checks when they are ours again, and when orphaned requests were searched for.
	resumed chan event.GenericEvent
}

// Serve makes r make its reconciles, or none: when somebody else's controller has come to act on the kind, two of them would give each other
// orders.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle && does {
		r.memory.pause()
		r.enqueueAll()
	}
}

// Reconcile makes one reconcile of the check called req. What it tells users, it tells after it was saved.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if r.idle.Load() {
		r.forget(req.Name)
		return ctrl.Result{}, nil
	}
	now := r.Clock.Now()
	if r.Leaving {
		return r.leave(ctx, req.Name, now)
	}
	r.memory.begin(now)
	w, err := r.observe(ctx, req.Name, now)
	if errors.Is(err, consistency.ErrStale) {
		return r.lags(ctx, w)
	}
	if err != nil {
		r.memory.miss(req.Name)
		return ctrl.Result{}, err
	}
	if w == nil {
		r.forget(req.Name)
		unnamed := r.nameKinds(ctx, req.Name, nil) // before requests are read: of a kind whose watch ends nobody hears any more
		released, err := r.release(ctx, req.Name, now)
		if err != nil {
			released, err = r.wait(req.Name, err)
		} else {
			r.memory.caughtUp(req.Name)
		}
		return released, errors.Join(err, unnamed)
	}
	if len(w.pending) > 0 {
		r.memory.miss(req.Name)
		return r.await(ctx, w)
	}
	plan := nodes.Decide(w.facts)
	done := r.apply(ctx, w, &plan)
	return r.report(ctx, w, &plan, done)
}

// missed is how long nodes may not be judged without anybody having missed that one was healthy: events are merged for a part of that as it is.
const missed = time.Second

// lags waits for a cache that does not show yet what was written. When it takes too long the check says so.
func (r *Reconciler) lags(ctx context.Context, w *observed) (ctrl.Result, error) {
	unread := r.unread(w)
	if unread > missed {
		r.memory.miss(w.check.Name)
	}
	if unread > slowRead {
		return r.reportUnread(ctx, w, consistency.ErrStale)
	}
	return r.wait(w.check.Name, consistency.ErrStale)
}

// wait waits for a cache that does not show yet what was written. It returns any other error.
func (r *Reconciler) wait(check string, err error) (ctrl.Result, error) {
	if errors.Is(err, consistency.ErrStale) {
		now := r.Clock.Now()
		return enqueue.At(now.Add(r.memory.lag(check)), now), nil
	}
	return ctrl.Result{}, err
}

// applied is what became of a plan.
type applied struct {
	outcomes []outcome
	// status is the check as it was saved; nil if it was not.
	status *nhcv1.NodeHealthCheck
	err    error // of that
}

// apply carries out what is decided about all nodes, and writes the status of the check.
func (r *Reconciler) apply(ctx context.Context, w *observed, p *nodes.Plan) applied {
	done := applied{outcomes: r.carryOut(ctx, w, p)}
	next := statusAfter(w, p, done.outcomes)
	if done.err = r.record(ctx, w, next); done.err == nil {
		done.status = next
	}
	return done
}

// report exports metrics, remembers what was decided and done, and sends events about what was saved; it says when to reconcile again.
func (r *Reconciler) report(ctx context.Context, w *observed, p *nodes.Plan, done applied) (ctrl.Result, error) {
	r.memory.of(w.check.Name).unread = time.Time{}
	r.memory.caughtUp(w.check.Name)
	r.memory.decide(w.check.Name, remembers(w, p, done.outcomes))
	r.measure(w, p, done.outcomes)
	if done.status != nil {
		r.send(ctx, w, unhealthyEvents(w, p))
	}
	r.send(ctx, w, r.nodeEvents(w, p, done.outcomes))
	if done.status != nil {
		r.send(ctx, w, r.checkEvents(w, p, done.status))
	}
	return r.next(ctx, w, p, done)
}

// next says when to reconcile again: at the first moment at which time alone changes something, and sooner if something failed. What failed is
// logged here and not returned, so that it delays the deadlines of no other node.
func (r *Reconciler) next(ctx context.Context, w *observed, p *nodes.Plan, done applied) (ctrl.Result, error) {
	errs, retry := append([]error(nil), w.trouble...), apierrors.IsConflict(done.err)
	if done.err != nil && !retry {
		errs = append(errs, done.err)
	}
	at := p.Recheck
	for k := range done.outcomes {
		o := &done.outcomes[k]
		if o.err != nil {
			errs = append(errs, o.err)
		}
		retry, at = retry || o.again, health.Earliest(at, o.retryAt)
	}
	if r.Resync > 0 {
		at = health.Earliest(at, w.facts.Now.Add(r.Resync))
	}
	if tries := r.memory.tries(w.check.Name, len(errs) > 0 || retry); tries > 0 {
		at = health.Earliest(at, w.facts.Now.Add(enqueue.Backoff(tries)))
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Reconcile failed, retrying")
	}
	return enqueue.At(at, r.Clock.Now()), nil
}

// slowRead is after how long a kind that cannot be read is an error, and no longer only slow.
const slowRead = 30 * time.Second

// await waits for kinds that were not read yet: their objects would be taken for none. When it takes too long the check says so.
func (r *Reconciler) await(ctx context.Context, w *observed) (ctrl.Result, error) {
	if r.unread(w) > slowRead {
		return r.reportUnread(ctx, w, nil)
	}
	return ctrl.Result{RequeueAfter: enqueue.MergeWindow}, nil
}

// unread notes that kinds could not be read, and returns for how long that is so.
func (r *Reconciler) unread(w *observed) time.Duration {
	is := r.memory.of(w.check.Name)
	if is.unread.IsZero() {
		is.unread = w.facts.Now
	}
	return w.facts.Now.Sub(is.unread)
}

// reportUnread has the check say which kinds could not be read.
func (r *Reconciler) reportUnread(ctx context.Context, w *observed, why error) (ctrl.Result, error) {
	next := w.check.DeepCopy()
	next.Status.Conditions = explain.NodeConditions(&w.facts, &nodes.Plan{})
	return ctrl.Result{}, errors.Join(
		fmt.Errorf("decide about NodeHealthCheck %s: %s", w.check.Name, explain.KindsAwaited(&w.facts)), why, r.record(ctx, w, next))
}
