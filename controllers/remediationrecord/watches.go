package remediationrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/decide/repeats"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// The indexes of the cache of records: by the name of the Cluster; by the check that asked (checkKey); by the owner, host or node that they
// count for, whose names are the same after clusterctl move, and of a host that is registered anew; by the names of the target, if that is
// a Machine, and of the one that replaces it; and by what makes that one (makerOf). And the one of notable Machines, by what makes those.
const (
	clusterIndex = "kubemend.recordCluster"
	checkIndex   = "kubemend.recordCheck"
	subjectIndex = "kubemend.recordSubject"
	machineIndex = "kubemend.recordMachine"
	makerIndex   = "kubemend.recordMaker"
	notableIndex = "kubemend.notableMachine"
)

var indexes = map[string]func(*mendv1.RemediationRecord) []string{
	clusterIndex: func(record *mendv1.RemediationRecord) []string { return []string{record.Spec.Target.ClusterName} },
	checkIndex: func(record *mendv1.RemediationRecord) []string {
		if check := record.Spec.Requester.Check; check != nil {
			return []string{checkKey(check.Kind, check.Namespace, check.Name)}
		}
		return nil
	},
	subjectIndex: repeats.SubjectsOf,
	machineIndex: func(record *mendv1.RemediationRecord) []string {
		if target := record.Spec.Target.Machine; target != nil {
			return slices.Compact([]string{target.Name, cmp.Or(replacementOf(record), target.Name)})
		}
		return nil
	},
	makerIndex: func(record *mendv1.RemediationRecord) []string {
		if record.Spec.Target.Machine == nil {
			return nil
		}
		return []string{makerOf(SubjectOf(record))}
	},
}

func checkKey(kind, namespace, name string) string { return kind + "/" + namespace + "/" + name }

func notableOf(o client.Object) []string {
	if machine := o.(*clusterv1.Machine); capacity.Notable(machine) {
		return []string{makerOf(capacity.Of(machine, time.Time{}))}
	}
	return nil
}

// AddIndex adds the indexes by which records, and what they wait for, are listed.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &clusterv1.Machine{}, notableIndex, notableOf)
	for field, values := range indexes {
		err = errors.Join(err, indexer.IndexField(ctx, &mendv1.RemediationRecord{}, field, func(o client.Object) []string {
			return values(o.(*mendv1.RemediationRecord))
		}))
	}
	if err != nil {
		return fmt.Errorf("index RemediationRecords and Machines: %w", err)
	}
	return nil
}

const (
	// reconcileTimeout bounds a reconcile.
	reconcileTimeout = time.Minute
	// neighbours is how long after a change of another Machine a record is looked at: longer than what was read of the others counts.
	// (remembered)
	neighbours = 5 * time.Second
	// collected is how long the changes of requests, and of records, which are nearly all their own, are collected: each may be a patch.
	collected = time.Second
)

// SetupWithManager makes r a controller of mgr, and lets its Records know when the cache has all open ones, and what changes in it. What
// other controllers watch, they tell these. (Hears)
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if err := AddIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if err := metrics.Registry.Register(&capacityMissing{r.Client, r.Clock}); err != nil {
		return fmt.Errorf("export what capacity waits for: %w", err)
	}
	kinds, err := remediation.InstalledKinds(r.Mapper)
	if err != nil {
		return fmt.Errorf("find the kinds of power cycles: %w", err)
	}
	options.ReconciliationTimeout, options.RateLimiter = reconcileTimeout, enqueue.Retries(enqueue.MergeWindow)
	changes := builder.WithPredicates(predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))
	follower := ctrl.NewControllerManagedBy(mgr).
		Named("remediationrecord").
		WithOptions(options).
		Watches(&mendv1.RemediationRecord{}, on(func(_ context.Context, record client.Object, q queue) {
			q.AddAfter(requestOf(record), collected)
		})).
		Watches(&clusterv1.Machine{}, r.onMachines()).
		Watches(&clusterv1.MachineSet{}, r.onOwners()).
		Watches(&clusterv1.MachineDeployment{}, r.onOwners()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.recordsOf), changes).
		Watches(&clusterv1.Cluster{}, handler.Funcs{DeleteFunc: clusterGone}).
		Watches(&clusterv1.MachineHealthCheck{}, handler.EnqueueRequestsFromMapFunc(r.recordsOf), changes).
		WatchesRawSource(r.changes.Into(r.follows))
	for _, kind := range kinds {
		follower.Watches(kind.Watched(), on(r.follows))
	}
	if err := follower.Complete(r); err != nil {
		return fmt.Errorf("set up the controller that follows remediations: %w", err)
	}
	open, err := mgr.GetCache().GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache RemediationRecords: %w", err)
	}
	if _, err := open.AddEventHandler(r.missingChanges()); err != nil {
		return fmt.Errorf("watch RemediationRecords for their checks: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = open.HasSynced
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// on calls do with each object that comes, changes or goes.
func on(do func(context.Context, client.Object, queue)) handler.Funcs {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { do(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { do(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { do(ctx, e.Object, q) },
	}
}

// Hears passes to the follower of records what happens to the requests that another controller watches.
func Hears[T client.Object](r *Records) handler.TypedEventHandler[T, reconcile.Request] {
	return handler.TypedFuncs[T, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[T], _ queue) { r.Changed(e.Object) },
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[T], _ queue) { r.Changed(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[T], _ queue) { r.Changed(e.Object) },
	}
}

// Changed passes to the follower of records that a request, or a NodeHealthCheck, has changed.
func (r *Records) Changed(obj client.Object) {
	if r != nil {
		r.changes.Send(obj)
	}
}

// missingChanges tells r what changes in the cache.
func (r *Records) missingChanges() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { r.changed(nil, o.(*mendv1.RemediationRecord)) },
		UpdateFunc: func(before, after any) {
			r.changed(before.(*mendv1.RemediationRecord), after.(*mendv1.RemediationRecord))
		},
		DeleteFunc: func(o any) {
			if late, is := o.(toolscache.DeletedFinalStateUnknown); is {
				o = late.Obj
			}
			if record, is := o.(*mendv1.RemediationRecord); is {
				r.changed(record, nil)
			}
		},
	}
}

// onMachines enqueues the records of a Machine that has changed and, a while later, those whose target it replaces and, when it comes or
// goes, all whose target its owner has to replace: which Machine replaces which depends on all of them.
func (r *Reconciler) onMachines() handler.EventHandler {
	changed := func(ctx context.Context, machine client.Object, cameOrWent bool, q queue) {
		for _, record := range r.mustOpenOf(ctx, machine.GetNamespace(), machineIndex, machine.GetName()) {
			in := neighbours
			if record.Spec.Target.Machine.Name == machine.GetName() {
				in = enqueue.MergeWindow
			}
			q.AddAfter(requestOf(record), in)
		}
		if cameOrWent {
			maker := makerOf(capacity.Of(machine.(*clusterv1.Machine), time.Time{}))
			r.awaiting(ctx, machine.GetNamespace(), maker, q, TargetDeleting, TargetGone)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList {
				changed(ctx, e.Object, true, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			goes := e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
			changed(ctx, e.ObjectNew, goes, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			for _, record := range r.mustOpenOf(ctx, e.Object.GetNamespace(), machineIndex, e.Object.GetName()) {
				target := record.Spec.Target.Machine
				if target.Name == e.Object.GetName() && (target.UID == string(e.Object.GetUID()) || Moved(record)) {
					r.went.Store(client.ObjectKeyFromObject(record), r.Clock.Now())
				}
			}
			changed(ctx, e.Object, true, q)
		},
	}
}

// onOwners enqueues the records whose target a MachineSet or a MachineDeployment was asked to replace, or has to, a while after it says
// another thing.
func (r *Reconciler) onOwners() handler.EventHandler {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			maker := capacity.Subject{Owner: capacity.Owner{Kind: "MachineSet", Name: e.ObjectNew.GetName()}}
			maker.Deployment = e.ObjectNew.GetLabels()[clusterv1.MachineDeploymentNameLabel]
			if _, deployment := e.ObjectNew.(*clusterv1.MachineDeployment); deployment {
				maker.Deployment = e.ObjectNew.GetName()
			}
			r.awaiting(ctx, e.ObjectNew.GetNamespace(), makerOf(maker), q, OwnerRequested, TargetDeleting, TargetGone)
		},
	}
}

// awaiting enqueues, a while later, the open records whose target maker is to replace (makerOf), that have one of the steps, and for which
// no other Machine was found: what another one does then says nothing of them, and in a large rollout there is one each second.
func (r *Reconciler) awaiting(ctx context.Context, namespace, maker string, q queue, steps ...string) {
	if maker == "" {
		return
	}
	for _, record := range r.mustOpenOf(ctx, namespace, makerIndex, maker) {
		if record.Status.Replacement == nil && last(&record.Status, steps...) != nil {
			q.AddAfter(requestOf(record), neighbours)
		}
	}
}

// clusterGone drops what is exported of a Cluster that is gone. What is closed later counts as of none. (measure)
func clusterGone(_ context.Context, e event.DeleteEvent, _ queue) {
	closed.DeletePartialMatch(prometheus.Labels{"namespace": e.Object.GetNamespace(), "cluster": e.Object.GetName()})
}

// follows enqueues the records of a request or a NodeHealthCheck that has changed: soon a record that does not say yet that a remediator
// acts, as the request may be gone a moment later. To others, what follows within a second is one change.
func (r *Reconciler) follows(ctx context.Context, obj client.Object, q queue) {
	for _, req := range r.recordsOf(ctx, obj) {
		in, record := collected, &mendv1.RemediationRecord{}
		_ = r.Client.Get(ctx, req.NamespacedName, record, client.UnsafeDisableDeepCopy) // one that the cache does not have yet says nothing yet
		if last(&record.Status, RemediatorActs) == nil {
			in = enqueue.MergeWindow
		}
		q.AddAfter(req, in)
	}
}

// recordsOf maps a Cluster or a check to its open records, and a request to the record that it carries.
func (r *Reconciler) recordsOf(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
	var value string
	index := checkIndex
	switch obj.(type) {
	case *clusterv1.Cluster:
		index, value = clusterIndex, obj.GetName()
	case *clusterv1.MachineHealthCheck:
		value = checkKey(machineCheckKind, obj.GetNamespace(), obj.GetName())
	case *nhcv1.NodeHealthCheck:
		value = checkKey(nodeCheckKind, "", obj.GetName())
	default:
		if record, _ := CarriedBy(obj); record.Name != "" {
			requests = []reconcile.Request{{NamespacedName: record}}
		}
		return requests
	}
	for _, record := range r.mustOpenOf(ctx, obj.GetNamespace(), index, value) {
		requests = append(requests, requestOf(record))
	}
	return requests
}

func requestOf(record client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(record)}
}

// mustOpenOf are the open records that an index finds; none, with a log line, if they cannot be listed.
func (r *Reconciler) mustOpenOf(ctx context.Context, namespace, index, value string) []*mendv1.RemediationRecord {
	open, err := r.openOf(ctx, namespace, index, value)
	if err != nil {
		log.FromContext(ctx).Error(err, "Records are reconciled later, as those that have changed could not be listed", "index", index, "value", value)
	}
	return open
}

// openOf are the open records that an index finds in a namespace, or in all if that is empty, shared with the cache: read only.
func (r *Reconciler) openOf(ctx context.Context, namespace, index, value string) ([]*mendv1.RemediationRecord, error) {
	list := &mendv1.RemediationRecordList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: value}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the open records of %s: %w", value, err)
	}
	open := make([]*mendv1.RemediationRecord, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].Open() {
			open = append(open, &list.Items[i])
		}
	}
	return open, nil
}
