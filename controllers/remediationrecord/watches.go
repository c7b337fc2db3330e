package remediationrecord

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
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

// The names of two indexes: of records by keysOf, and of notable Machines by makerOf.
const (
	recordIndex  = "kubemend.record"
	notableIndex = "kubemend.notableMachine"
)

// keysOf returns the keys that find a record in the cache: its Cluster, check and subjects (by names, which survive clusterctl move and a
// new registration of a host), its Machine, the replacement, and what creates the replacement.
func keysOf(obj client.Object) []string {
	record := obj.(*mendv1.RemediationRecord)
	target := &record.Spec.Target
	keys := []string{clusterKey(target.ClusterName)}
	if check := record.Spec.Requester.Check; check != nil {
		keys = append(keys, checkKey(check.Kind, check.Namespace, check.Name))
	}
	for _, subject := range repeats.SubjectsOf(record) {
		keys = append(keys, subjectKey(subject))
	}
	if target.Machine != nil {
		keys = append(keys, machineKey(target.Machine.Name), makerKey(makerOf(SubjectOf(record))))
		if by := replacementOf(record); by != "" && by != target.Machine.Name {
			keys = append(keys, machineKey(by))
		}
	}
	return keys
}

func clusterKey(name string) string { return "cluster " + name }
func checkKey(kind, namespace, name string) string {
	return "check " + kind + "/" + namespace + "/" + name
}
func subjectKey(subject string) string { return "subject " + subject }
func machineKey(name string) string    { return "machine " + name }
func makerKey(maker string) string     { return "maker " + maker }

func notableOf(o client.Object) []string {
	if machine := o.(*clusterv1.Machine); capacity.Notable(machine) {
		return []string{makerOf(capacity.Of(machine))}
	}
	return nil
}

// AddIndex adds the indexes of records and of Machines.
func AddIndex(ctx context.Context, indexer client.FieldIndexer) error {
	err := errors.Join(
		indexer.IndexField(ctx, &clusterv1.Machine{}, notableIndex, notableOf),
		indexer.IndexField(ctx, &mendv1.RemediationRecord{}, recordIndex, keysOf))
	if err != nil {
		return fmt.Errorf("index RemediationRecords and Machines: %w", err)
	}
	return nil
}

const (
	reconcileTimeout = time.Minute
	// neighbours is how long after a change of another Machine a record is reconciled. It is longer than remembered, to read fresh lists.
	neighbours = 5 * time.Second
	// collected is how long changes of requests and of records are merged. Most changes of records are the controller's own, and each
	// reconcile may patch.
	collected = time.Second
)

// SetupWithManager adds r to mgr, and gives Records the cache's sync state. Other controllers pass on what they watch (Hears, Changed).
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
		Watches(&mendv1.RemediationRecord{}, r.onRecords()).
		Watches(&clusterv1.Machine{}, r.onMachines()).
		Watches(&clusterv1.MachineSet{}, r.onOwners()).
		Watches(&clusterv1.MachineDeployment{}, r.onOwners()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.recordsOf), changes).
		Watches(&clusterv1.Cluster{}, handler.Funcs{DeleteFunc: clusterGone}).
		Watches(&clusterv1.MachineHealthCheck{}, handler.EnqueueRequestsFromMapFunc(r.recordsOf), changes).
		WatchesRawSource(r.changes.Into(r.follows))
	for _, kind := range kinds {
		follower.Watches(kind.Watched(), Hears[client.Object](r.Records))
	}
	if err := follower.Complete(r); err != nil {
		return fmt.Errorf("set up the controller that follows remediations: %w", err)
	}
	open, err := mgr.GetCache().GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache RemediationRecords: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced = open.HasSynced
	return nil
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Hears returns an event handler that passes the requests that a controller watches to Reconciler.
func Hears[T client.Object](r *Records) handler.TypedEventHandler[T, reconcile.Request] {
	return enqueue.Merged[T](func(_ context.Context, obj client.Object) []reconcile.Request {
		r.Changed(obj)
		return nil
	})
}

// Changed passes a request or a NodeHealthCheck that has changed to Reconciler.
func (r *Records) Changed(obj client.Object) {
	if r != nil {
		r.changes.Send(obj)
	}
}

// onRecords enqueues a record that has changed, and sends its check to Missing if the reason why capacity is missing has changed.
func (r *Records) onRecords() handler.EventHandler {
	changed := func(before, after client.Object, q queue) {
		record := cmp.Or(after, before).(*mendv1.RemediationRecord)
		q.AddAfter(requestOf(record), collected)
		check := record.Spec.Requester.Check
		if check != nil && check.Kind == machineCheckKind && missingReason(before) != missingReason(after) {
			r.Missing.Send(types.NamespacedName{Namespace: check.Namespace, Name: check.Name})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { changed(nil, e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { changed(e.ObjectOld, e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { changed(e.Object, nil, q) },
	}
}

// missingReason returns why capacity is missing, as the check reports it; empty if none is, or if there is no record.
func missingReason(record client.Object) string {
	if record == nil {
		return ""
	}
	return ptr.Deref(missingOfCheck(record.(*mendv1.RemediationRecord)), Missing{}).Reason
}

// onMachines enqueues the records of a Machine that has changed, and a while later the records whose target the Machine replaces. If the
// Machine was created or deleted, it also enqueues the records whose target the same owner has to replace: which Machine replaces which
// depends on all of them.
func (r *Reconciler) onMachines() handler.EventHandler {
	changed := func(ctx context.Context, machine client.Object, cameOrWent bool, q queue) {
		for _, record := range r.mustOpenOf(ctx, machine.GetNamespace(), machineKey(machine.GetName())) {
			in := neighbours
			if record.Spec.Target.Machine.Name == machine.GetName() {
				in = enqueue.MergeWindow
			}
			q.AddAfter(requestOf(record), in)
		}
		if cameOrWent {
			maker := makerOf(capacity.Of(machine.(*clusterv1.Machine)))
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
			for _, record := range r.mustOpenOf(ctx, e.Object.GetNamespace(), machineKey(e.Object.GetName())) {
				target := record.Spec.Target.Machine
				if target.Name == e.Object.GetName() && (target.UID == string(e.Object.GetUID()) || Moved(record)) {
					r.memoryOf(client.ObjectKeyFromObject(record)).went.Store(new(r.Clock.Now()))
				}
			}
			changed(ctx, e.Object, true, q)
		},
	}
}

// onOwners enqueues, a while after a MachineSet or MachineDeployment has changed, the records whose target it has to replace.
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

// awaiting enqueues, a while later, the open records whose target maker has to replace (see makerOf) and that have one of the steps. It
// skips records with a replacement: changes of other Machines do not concern them, and in a large rollout there is a change each second.
func (r *Reconciler) awaiting(ctx context.Context, namespace, maker string, q queue, steps ...string) {
	if maker == "" {
		return
	}
	for _, record := range r.mustOpenOf(ctx, namespace, makerKey(maker)) {
		if record.Status.Replacement == nil && last(&record.Status, steps...) != nil {
			q.AddAfter(requestOf(record), neighbours)
		}
	}
}

// clusterGone drops the metrics of a Cluster that was deleted. Records that are closed later have an empty cluster label (see measure).
func clusterGone(_ context.Context, e event.DeleteEvent, _ queue) {
	closed.DeletePartialMatch(prometheus.Labels{"namespace": e.Object.GetNamespace(), "cluster": e.Object.GetName()})
}

// follows enqueues the records of a request or a NodeHealthCheck that has changed. A record without a RemediatorActs step is enqueued soon,
// since its request may be deleted a moment later; for others the changes within a second are merged.
func (r *Reconciler) follows(ctx context.Context, obj client.Object, q queue) {
	for _, req := range r.recordsOf(ctx, obj) {
		in, record := collected, &mendv1.RemediationRecord{}
		_ = r.Client.Get(ctx, req.NamespacedName, record, client.UnsafeDisableDeepCopy) // a record that is not cached yet has no steps
		if last(&record.Status, RemediatorActs) == nil {
			in = enqueue.MergeWindow
		}
		q.AddAfter(req, in)
	}
}

// recordsOf maps a Cluster or a check to its open records, and a request to the record that it carries.
func (r *Reconciler) recordsOf(ctx context.Context, obj client.Object) (requests []reconcile.Request) {
	var key string
	switch obj.(type) {
	case *clusterv1.Cluster:
		key = clusterKey(obj.GetName())
	case *clusterv1.MachineHealthCheck:
		key = checkKey(machineCheckKind, obj.GetNamespace(), obj.GetName())
	case *nhcv1.NodeHealthCheck:
		key = checkKey(nodeCheckKind, "", obj.GetName())
	default:
		if record, _ := CarriedBy(obj); record.Name != "" {
			requests = []reconcile.Request{{NamespacedName: record}}
		}
		return requests
	}
	for _, record := range r.mustOpenOf(ctx, obj.GetNamespace(), key) {
		requests = append(requests, requestOf(record))
	}
	return requests
}

func requestOf(record client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(record)}
}

// mustOpenOf returns the open records with a key; if they cannot be listed, it logs that and returns none.
func (r *Reconciler) mustOpenOf(ctx context.Context, namespace, key string) []*mendv1.RemediationRecord {
	open, err := r.openOf(ctx, namespace, key)
	if err != nil {
		log.FromContext(ctx).Error(err, "Records are reconciled later, as those that have changed could not be listed", "key", key)
	}
	return open
}

// openOf returns the open records with a key in a namespace, or in all if namespace is empty. They are shared with the cache: read only.
func (r *Records) openOf(ctx context.Context, namespace, key string) ([]*mendv1.RemediationRecord, error) {
	list, having := &mendv1.RemediationRecordList{}, client.MatchingFields{recordIndex: key}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), having, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the open records of %s: %w", key, err)
	}
	open := make([]*mendv1.RemediationRecord, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].Open() {
			open = append(open, &list.Items[i])
		}
	}
	return open, nil
}
