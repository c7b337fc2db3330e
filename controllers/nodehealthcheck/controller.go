// Package nodehealthcheck requests the remediation of unhealthy nodes that NodeHealthChecks select, in the cluster in which the manager
// runs. Its rules are those of medik8s' node-healthcheck-operator, with the exceptions in docs/differences.md.
//
// The files that decide (decide.go, rules.go, *_decide.go) make a Plan from Facts, without I/O and without reading a clock. The memory of
// earlier decisions is part of the facts, and the new memory is part of the plan. The other files observe, apply and report.
package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/place"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// RBAC of this controller, besides that of package remediationrequest. Each remediator brings a ClusterRole for its templates and requests,
// which is aggregated (config/rbac/ext-remediation.yaml). The controller deletes only remediation requests and leases of its own. It gets
// Clusters and Machines from the API server if --namespace keeps them out of the manager's cache.
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks/status,verbs=patch
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch

// RBAC to migrate stored checks to another version (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=nodehealthchecks.remediation.medik8s.io,verbs=patch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list;patch

// Kinds are the kinds of templates and requests, and the kinds of OpenShift, whose objects Client reads.
type Kinds interface {
	// Readable reports whether objects of a kind can be read. If the kind is not installed the error is Missing, if reading is forbidden
	// it is IsForbidden.
	Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	// InUse returns the kinds, without those of templates, that can be read and are watched or polled.
	InUse() []schema.GroupVersionKind
	// Unread returns the kinds, without those of templates, that are watched but cannot be read yet.
	Unread() []schema.GroupVersionKind
	// Polled reports whether a readable kind is in no cache, so that it has to be read from the API server again and again.
	Polled(kind schema.GroupVersionKind) bool
}

// Watches are the Kinds of a manager: changes of their objects enqueue checks.
type Watches interface {
	// Source sends the changes of the objects of all kinds to a controller.
	Source(hears handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]) source.Source
	Watch(ctx context.Context, kind schema.GroupVersionKind) error
	// Discover watches the kinds in lists that have requests with one of the marks.
	Discover(ctx context.Context, lists []*metav1.APIResourceList, marks ...client.ListOption) error
}

// Reconciler reconciles NodeHealthChecks.
type Reconciler struct {
	// Client writes, and reads checks, nodes, leases, templates and requests from a cache of its own for all namespaces.
	Client client.Client
	// Management reads the objects of Cluster API, from the manager's cache.
	Management client.Reader
	Live       client.Reader // reads from the API server, without a cache
	Mapper     meta.RESTMapper
	Kinds      Kinds
	Requests   *remediationrequest.Requests
	// Records are written before a remediation begins; nil writes none.
	Records   *records.Records
	Watches   Watches                            // the same as Kinds; nil without a manager, when all kinds are known from the start
	Discovery discovery.ServerResourcesInterface // finds the kinds of orphaned requests; nil without a manager
	// Installed reports whether a CustomResourceDefinition exists.
	Installed func(ctx context.Context, name string) (bool, error)
	// Gate lets one remediation of a control-plane node begin at a time, for all checks together.
	Gate     *begin.Gate
	Ledger   *policy.Ledger // gives places to remediations by RemediationPolicies; may be nil
	Cached   client.Reader  // reads the Machines that the ledger knows; may be nil
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Log is for lines that documents of medik8s quote, without the values that controller-runtime adds to the lines of a reconcile.
	Log logr.Logger

	Contact *Contact      // knows the outages of the API server; may be nil
	Grace   time.Duration // how long kubelets have to report after the start and after an outage: the node-monitor grace period

	LeaseNamespace string        // has the leases on nodes; if empty, leases are read in all namespaces and none can be taken
	Resync         time.Duration // after how long a check is reconciled although nothing happened
	Teardown       bool          // kubemend is being uninstalled: no remediation begins, and all requests are deleted

	memory     memory
	searched   atomic.Bool   // orphaned requests of all kinds were searched for
	idle       atomic.Bool   // Serve has stopped the reconciles
	started    chan struct{} // closed when the controller has started, and enqueueAll is set
	enqueueAll func()        // enqueues all checks, also deleted checks that have left requests or leases behind
}

// Serve makes r reconcile or stop reconciling. It stops while another controller acts on NodeHealthChecks, because the two would conflict.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle && does {
		r.memory.began.Store(nil)
		select {
		case <-r.started:
			go r.enqueueAll() // reads caches that may not be filled yet
		default: // the search for orphaned requests enqueues all checks
		}
	}
}

// Reconcile reconciles one check: observe, decide, apply.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	name, now := req.Name, r.Clock.Now()
	if r.idle.Load() {
		r.forget(name)
		return ctrl.Result{}, nil
	}
	check, err := r.read(ctx, name)
	switch {
	case err != nil:
		r.memory.of(name).miss()
		return ctrl.Result{}, err
	case r.Teardown:
		return r.tearDown(ctx, name, check, now)
	case check == nil || !check.DeletionTimestamp.IsZero():
		r.forget(name)
		result, _, err := r.endOrphans(ctx, name, nil, now)
		return result, err
	}
	r.memory.began.CompareAndSwap(nil, &now)
	state, err := r.observe(ctx, check, now)
	switch {
	case errors.Is(err, consistency.ErrStale), err == nil && len(state.facts.Awaited) > 0:
		return r.wait(ctx, state, err)
	case err != nil:
		r.memory.of(name).miss()
		return ctrl.Result{}, err
	}
	plan := r.decide(ctx, state)
	return r.apply(ctx, state, &plan), nil
}

func (r *Reconciler) read(ctx context.Context, name string) (*nhcv1.NodeHealthCheck, error) {
	check := &nhcv1.NodeHealthCheck{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: name}, check); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("read NodeHealthCheck %s: %w", name, err)
	}
	return check, nil
}

// facts returns the facts that need no reading: from the check, the memory of earlier reconciles, and the process.
func (r *Reconciler) facts(check *nhcv1.NodeHealthCheck, now time.Time) Facts {
	facts := FactsOf(check, now)
	facts.Resync, facts.Grace = r.Resync, r.Grace
	if r.Contact != nil {
		facts.Outages = r.Contact.past()
		if r.Contact.Ahead != nil {
			facts.ClockAhead = r.Contact.Ahead()
		}
	}
	facts.Memory, facts.Since = r.memory.of(check.Name).decided, now
	if began := r.memory.began.Load(); began != nil {
		facts.Since = *began
	}
	return facts
}

const (
	// missed is how long nodes may go unjudged before one of them may have been healthy unnoticed. It exceeds enqueue.MergeWindow, which
	// delays reconciles anyway.
	missed = time.Second
	// slowRead is after how long a kind that cannot be read yet is an error.
	slowRead = 30 * time.Second
	// staleFor is how soon a stale cache is read again, unless an event enqueues the check earlier.
	staleFor = time.Second
)

// wait ends a reconcile without a decision, because a cache does not show the controller's own writes yet (stale), or because some kinds
// are not read yet: an object that was not read would count as missing. It watches these kinds. After slowRead the check reports the wait.
func (r *Reconciler) wait(ctx context.Context, state *observed, stale error) (ctrl.Result, error) {
	last := r.memory.of(state.check.Name)
	if last.unread.IsZero() {
		last.unread = state.facts.Now
	}
	waited := state.facts.Now.Sub(last.unread)
	if stale == nil || waited > missed {
		last.miss()
	}
	unwatched := r.watch(ctx, state.facts.Awaited)
	if waited > slowRead {
		next := state.check.DeepCopy()
		next.Status.Conditions = Conditions(&state.facts, &Plan{})
		slow := fmt.Errorf("decide about NodeHealthCheck %s: %s", state.check.Name, KindsAwaited(&state.facts))
		return ctrl.Result{}, errors.Join(slow, stale, unwatched, r.record(ctx, state, next))
	}
	if unwatched != nil {
		return ctrl.Result{}, unwatched
	}
	again := ctrl.Result{RequeueAfter: enqueue.MergeWindow}
	if stale != nil {
		again.RequeueAfter = staleFor
	}
	return again, nil
}

// apply carries out the plan, writes the status of the check, exports metrics, remembers the plan and its outcomes, and sends events.
// Events about the status are sent only if it was saved. It returns when to reconcile again.
func (r *Reconciler) apply(ctx context.Context, state *observed, plan *Plan) ctrl.Result {
	outcomes := r.carryOut(ctx, state, plan)
	r.settlePlaces(state, outcomes)
	for _, n := range state.nodes {
		for _, obj := range n.Orphaned {
			if obj.GetDeletionTimestamp() == nil {
				state.facts.Trouble = append(state.facts.Trouble, r.Requests.Delete(ctx, obj))
			}
		}
	}
	next := statusAfter(state, plan, outcomes)
	r.memory.keepExhausted(state, plan) // before the status is written, because that makes the records call StepLeft
	saved := r.record(ctx, state, next)
	last := r.memory.of(state.check.Name)
	last.unread, last.decided = time.Time{}, remembers(state, plan, outcomes)
	r.measure(state, plan, outcomes)
	told := r.nodeEvents(state, plan, outcomes)
	if saved == nil {
		told = slices.Concat(unhealthyEvents(state, outcomes), told,
			r.disabledEvents(state.check, next), ineffectiveEvents(state.check, next), stormEvents(plan.Storm.Turn))
	}
	r.send(ctx, state, told)
	return r.next(ctx, state, plan, outcomes, saved)
}

// next returns when to reconcile again. Errors are logged and not returned, so that a backoff does not delay the deadlines of other nodes.
func (r *Reconciler) next(ctx context.Context, state *observed, plan *Plan, outcomes []outcome, saved error) ctrl.Result {
	errs, retry, at := slices.Clone(state.facts.Trouble), apierrors.IsConflict(saved), plan.Recheck
	if !retry {
		errs = append(errs, saved)
	}
	for k := range outcomes {
		errs, retry = append(errs, outcomes[k].err), retry || outcomes[k].again
	}
	if r.Resync > 0 {
		at = health.Earliest(at, state.facts.Now.Add(r.Resync))
	}
	failed, last := errors.Join(errs...), r.memory.of(state.check.Name)
	if failed == nil && !retry {
		last.failed = 0
		return enqueue.At(at, r.Clock.Now())
	}
	if failed != nil {
		log.FromContext(ctx).Error(failed, "Reconcile failed, retrying")
	}
	last.failed++
	return enqueue.At(health.Earliest(at, state.facts.Now.Add(enqueue.Backoff(last.failed))), r.Clock.Now())
}

// memory is what the reconciler keeps from one reconcile to the next.
type memory struct {
	written consistency.Kinds         // the requests that were written
	began   atomic.Pointer[time.Time] // when the first reconcile began, or could have begun; nil before
	checks  sync.Map                  // *remembered by the name of the check
	// exhausted has the names of the nodes without a step left, as map[string]bool by the name of the check.
	exhausted sync.Map
}

// keepExhausted remembers the nodes for which the check has no step left after this plan.
func (m *memory) keepExhausted(state *observed, plan *Plan) {
	exhausted := map[string]bool{}
	for _, decision := range plan.Decisions {
		if decision.Would < 0 {
			exhausted[decision.Name] = true
		}
	}
	m.exhausted.Store(state.check.Name, exhausted)
}

// StepLeft reports whether a check has an escalation step left for a node, even if the step is blocked; true if not known, as after a
// start.
func (r *Reconciler) StepLeft(check, node string) bool {
	exhausted, known := r.memory.exhausted.Load(check)
	return !known || !exhausted.(map[string]bool)[node]
}

// remembered is what the reconciler keeps of one check, which is never reconciled twice at the same time.
type remembered struct {
	decided  Memory
	failed   int                 // failed reconciles in a row
	reported map[string]reported // the last report about each ongoing situation
	begun    map[types.UID]ongoing
	orphans  map[types.UID]ongoing    // requests of a deleted check of the same name, which may not name their check themselves
	unread   time.Time                // since when a kind is not read yet; zero if all kinds are read
	places   map[string]*place.Target // the nodes as the ledger of policies knows them
}

func (m *memory) of(check string) *remembered {
	last, _ := m.checks.LoadOrStore(check, &remembered{})
	return last.(*remembered)
}

// miss notes that a reconcile did not judge the nodes of the check.
func (last *remembered) miss() { last.decided.Judged = time.Time{} }

func remembers(state *observed, plan *Plan, outcomes []outcome) Memory {
	memory := plan.Memory
	for k := range outcomes {
		o := &outcomes[k]
		for j := range o.Requests {
			r := &o.Requests[j]
			known := memory.Requests[r.ID()]
			known.Flagged, known.Unpatchable = known.Flagged || r.flagged(), known.Unpatchable || r.unpatchable
			memory.Requests[r.ID()] = known
		}
		if o.refused != nil {
			unanswered := begin.Lost(o.refused) || errors.Is(o.refused, begin.ErrUnasked)
			memory.Refusals[o.Name] = memory.Refusals[o.Name].Again(o.Start, o.tried, unanswered, state.facts.Now)
		}
	}
	return memory
}
