// Package nodehealthcheck requests the remediation of the unhealthy nodes that NodeHealthChecks select, in the cluster that it runs in, by
// the rules of medik8s' node-healthcheck-operator but where docs/differences.md says otherwise.
//
// The files that decide (decide.go, rules.go, *_decide.go) make a Plan from Facts: they do no I/O and read no clock, and what has to be
// remembered goes in with the facts and comes out with the plan. The others observe, apply and report.
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

// RBAC of this controller, besides that of package remediationrequest. What it may do to templates and requests of others comes by
// aggregation from the remediators that bring them: see config/rbac/ext-remediation.yaml. Nothing is ever deleted but remediation
// requests and leases of ours. Of Cluster API it reads what the others read; clusters and machines it gets where --namespace keeps them
// out of the manager's cache.
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=get;list;watch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks/status,verbs=patch
// +kubebuilder:rbac:groups=core,resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch

// RBAC to store checks anew (controllers/migration).
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions;customresourcedefinitions/status,resourceNames=nodehealthchecks.remediation.medik8s.io,verbs=patch
// +kubebuilder:rbac:groups=remediation.medik8s.io,resources=nodehealthchecks,verbs=list;patch

// Kinds are the kinds of templates and requests, and those of OpenShift, whose objects Client reads.
type Kinds interface {
	// Readable reports whether objects of a kind can be read. The error is Missing if the kind is not there, IsForbidden if it may not be
	// read.
	Readable(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	// InUse are the kinds, but those of templates, that can be read and are watched or polled.
	InUse() []schema.GroupVersionKind
	// Unread are those, but for templates, that are watched and cannot be read yet.
	Unread() []schema.GroupVersionKind
	// Polled reports whether a kind that is readable is in no cache, and has to be read live again and again.
	Polled(kind schema.GroupVersionKind) bool
}

// Watches are Kinds as a manager has them: changes of their objects enqueue checks.
type Watches interface {
	// Source makes a controller hear of changes to the objects of all kinds.
	Source(hears handler.TypedEventHandler[*unstructured.Unstructured, reconcile.Request]) source.Source
	Watch(ctx context.Context, kind schema.GroupVersionKind) error
	// Discover watches those kinds in lists of which there are requests with one of the marks.
	Discover(ctx context.Context, lists []*metav1.APIResourceList, marks ...client.ListOption) error
}

// Reconciler makes reconciles of NodeHealthChecks.
type Reconciler struct {
	// Client reads checks, nodes, leases, templates and requests from a cache of their own, which sees all namespaces, and writes.
	Client client.Client
	// Management reads what is Cluster API's, from the manager's cache.
	Management client.Reader
	Live       client.Reader
	Mapper     meta.RESTMapper
	Kinds      Kinds
	Requests   *remediationrequest.Requests
	// Records are written before a remediation begins; nil writes none.
	Records *records.Records
	// Watches are Kinds, and Discovery finds those of orphaned requests; nil without a manager, where all kinds are known from the start.
	Watches   Watches
	Discovery discovery.ServerResourcesInterface
	// Installed reports whether there is a CustomResourceDefinition of that name.
	Installed func(ctx context.Context, name string) (bool, error)
	// Gate lets one node of the control plane begin at a time, of all checks.
	Gate *begin.Gate
	// Ledger gives places to remediations by RemediationPolicies, which see the Machines that are Cached; both may be nil.
	Ledger   *policy.Ledger
	Cached   client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Log is for lines that documents of others quote, without what controller-runtime adds to those of a reconcile.
	Log logr.Logger

	// Contact may be nil. Grace is how long kubelets have to report after an outage, and after the start: the node-monitor grace period.
	Contact *Contact
	Grace   time.Duration

	// LeaseNamespace is where the leases on nodes are. If it is empty they are looked for in all namespaces, and none can be taken.
	LeaseNamespace string
	// Resync is after how long a check is reconciled although nothing happened.
	Resync time.Duration
	// Teardown says that kubemend is being uninstalled: nothing is begun, and what was begun is ended.
	Teardown bool

	memory memory
	search atomic.Int32 // searchState of the search for orphaned requests
	idle   atomic.Bool
	// started is closed when the controller has started. From then on enqueueAll makes all checks be reconciled, and those that are gone
	// and have left something behind.
	started    chan struct{}
	enqueueAll func()
}

// Serve makes r make its reconciles, or none: when another controller acts on the kind, the two would contradict each other.
func (r *Reconciler) Serve(does bool) {
	if idle := r.idle.Swap(!does); idle && does {
		r.memory.began.Store(nil)
		select {
		case <-r.started:
			go r.enqueueAll() // it reads caches, which may not be filled yet
		default: // the search for orphaned requests enqueues all checks
		}
	}
}

// Reconcile makes one reconcile of the check called req: observe, decide, apply.
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
		return r.release(ctx, name, now)
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

// facts are what is known before anything is read: the check, the memory of reconciles, and the life of the process.
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
	// missed is how long nodes may not be judged without a healthy one being missed: events are merged for a part of that as it is.
	missed = time.Second
	// slowRead is after how long a kind that cannot be read is an error, and no longer only slow.
	slowRead = 30 * time.Second
	// staleFor is how soon a cache is read again that did not show yet what was written, should no event have shown that before.
	staleFor = time.Second
)

// wait ends a reconcile whose caches do not show yet what was written, as stale says, or have not read all kinds: their objects would be
// taken for none. These kinds are watched from now on. When it takes too long the check says so.
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

// apply carries out what is decided about all nodes, writes the status of the check, exports metrics, remembers what was decided and done,
// and sends events about what was saved; it says when to reconcile again.
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
	r.memory.keepExhausted(state, plan) // before a record that hears of the status asks for it
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

// next says when to reconcile again. What failed is logged and not returned, so that it delays the deadlines of no other node.
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

// memory is what reconciles remember of each other besides what goes into their decisions.
type memory struct {
	written consistency.Kinds         // requests
	began   atomic.Pointer[time.Time] // when the first reconcile was made, or could have been; nil if none was
	checks  sync.Map                  // by name, to *remembered
	// exhausted has by the name of a check the nodes, by theirs, for which it has no step left.
	exhausted sync.Map
}

// keepExhausted remembers for which nodes no step is left once what is planned has begun.
func (m *memory) keepExhausted(state *observed, plan *Plan) {
	exhausted := map[string]bool{}
	for i := range plan.Decisions {
		if plan.Decisions[i].Would < 0 {
			exhausted[state.facts.Nodes[i].Name] = true
		}
	}
	m.exhausted.Store(state.check.Name, exhausted)
}

// StepLeft reports whether a check has a step left for a node, whatever holds that up; true while that is not known, as after a start.
func (r *Reconciler) StepLeft(check, node string) bool {
	exhausted, known := r.memory.exhausted.Load(check)
	return !known || !exhausted.(map[string]bool)[node]
}

// remembered is what the reconciles of one check remember. There is one of them at a time.
type remembered struct {
	decided  Memory
	failed   int                 // reconciles in a row that did not get through
	reported map[string]reported // what goes on, to what was reported of it last
	begun    map[types.UID]ongoing
	orphans  map[types.UID]ongoing    // of a check of the name that is gone: they need not say themselves which check made them
	unread   time.Time                // since when a kind is not read yet; zero if all are
	places   map[string]*place.Target // what the ledger of policies has of the nodes
}

func (m *memory) of(check string) *remembered {
	last, _ := m.checks.LoadOrStore(check, &remembered{})
	return last.(*remembered)
}

// miss notes that a reconcile did not get to judge the nodes of the check.
func (last *remembered) miss() { last.decided.Judged = time.Time{} }

func remembers(state *observed, plan *Plan, outcomes []outcome) Memory {
	memory := plan.Memory
	for k := range outcomes {
		o := &outcomes[k]
		for j := range o.n.Requests {
			id := o.n.Requests[j].ID()
			known := memory.Requests[id]
			known.Flagged = known.Flagged || o.flagged(j)
			known.Unpatchable = known.Unpatchable || slices.Contains(o.unpatchable, j)
			memory.Requests[id] = known
		}
		if o.refused != nil {
			unanswered := begin.Lost(o.refused) || errors.Is(o.refused, begin.ErrUnasked)
			memory.Refusals[o.n.Name] = memory.Refusals[o.n.Name].Again(o.Start, o.tried, unanswered, state.facts.Now)
		}
	}
	return memory
}
