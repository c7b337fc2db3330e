package remediationrecord

import (
	"context"
	"fmt"
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
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// clusterIndex finds open records by the name of their Cluster.
const clusterIndex = "kubemend.recordCluster"

// reconcileTimeout bounds a reconcile.
const reconcileTimeout = time.Minute

// neighbours is how long after a change of another Machine of the Cluster a record is looked at: it may be what comes in place of the
// target.
const neighbours = 5 * time.Second

// SetupWithManager makes r a controller of mgr, and lets kept know when the cache has all open records, and what changes in it.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, kept *Records, options controller.Options) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, &mendv1.RemediationRecord{}, clusterIndex, func(o client.Object) []string {
		return []string{o.(*mendv1.RemediationRecord).Spec.Target.ClusterName}
	}); err != nil {
		return fmt.Errorf("index RemediationRecords by cluster: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &mendv1.RemediationRecord{}, checkIndex, checksOf); err != nil {
		return fmt.Errorf("index RemediationRecords by check: %w", err)
	}
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
	follower := ctrl.NewControllerManagedBy(mgr).
		Named("remediationrecord").
		WithOptions(options).
		For(&mendv1.RemediationRecord{}).
		Watches(&clusterv1.Machine{}, r.onMachines()).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster), builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&clusterv1.Cluster{}, onClusterDeletions())
	for _, kind := range kinds {
		follower.Watches(kind.Watched(), handler.EnqueueRequestsFromMapFunc(ofRequest))
	}
	if err := follower.Complete(r); err != nil {
		return fmt.Errorf("set up the controller that follows remediations: %w", err)
	}
	open, err := mgr.GetCache().GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache RemediationRecords: %w", err)
	}
	if _, err := open.AddEventHandler(kept.changes()); err != nil {
		return fmt.Errorf("watch RemediationRecords for their checks: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		select {
		case <-ctx.Done():
		case <-open.HasSyncedChecker().Done():
			kept.followedAll()
		}
		return nil
	})); err != nil {
		return fmt.Errorf("wait for the cache of RemediationRecords: %w", err)
	}
	return nil
}

// changes tells r what changes in the cache.
func (r *Records) changes() toolscache.ResourceEventHandler {
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

// onMachines enqueues the records of a Machine that has changed, and those that another one may come in place of, a while later.
func (r *Reconciler) onMachines() handler.EventHandler {
	enqueueOf := func(ctx context.Context, machine client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		cluster := client.ObjectKey{Namespace: machine.GetNamespace(), Name: machine.(*clusterv1.Machine).Spec.ClusterName}
		for _, record := range r.mustOpenOf(ctx, cluster) {
			request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(record)}
			switch target := record.Spec.Target.Machine; {
			case target == nil:
			case target.Name == machine.GetName():
				q.AddAfter(request, enqueue.MergeWindow)
			case machine.GetCreationTimestamp().After(record.Spec.Decided.Add(-time.Minute)):
				q.AddAfter(request, neighbours)
			}
		}
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueueOf(ctx, e.ObjectNew, q)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueueOf(ctx, e.Object, q)
		},
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !e.IsInInitialList {
				enqueueOf(ctx, e.Object, q)
			}
		},
	}
}

// onClusterDeletions drops what is exported of a Cluster that is gone. What is closed later counts as of none. (clusterOf)
func onClusterDeletions() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			closed.DeletePartialMatch(prometheus.Labels{"namespace": e.Object.GetNamespace(), "cluster": e.Object.GetName()})
		},
	}
}

// ofRequest maps a request to the record that it carries.
func ofRequest(_ context.Context, req client.Object) []reconcile.Request {
	record, _ := CarriedBy(req)
	if record.Name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: record}}
}

// ofCluster maps a Cluster to its open records.
func (r *Reconciler) ofCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	open := r.mustOpenOf(ctx, client.ObjectKeyFromObject(cluster))
	requests := make([]reconcile.Request, 0, len(open))
	for _, record := range open {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(record)})
	}
	return requests
}

// mustOpenOf are the open records of a Cluster; none, with a log line, if they cannot be listed.
func (r *Reconciler) mustOpenOf(ctx context.Context, cluster client.ObjectKey) []*mendv1.RemediationRecord {
	open, err := r.openOf(ctx, cluster)
	if err != nil {
		log.FromContext(ctx).Error(err, "A change wakes no records", "Cluster", cluster)
	}
	return open
}

// openOf are the open records of a Cluster. They are shared: read only.
func (r *Reconciler) openOf(ctx context.Context, cluster client.ObjectKey) ([]*mendv1.RemediationRecord, error) {
	list := &mendv1.RemediationRecordList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.MatchingFields{clusterIndex: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the open records of Cluster %s: %w", cluster, err)
	}
	var open []*mendv1.RemediationRecord
	for i := range list.Items {
		if record := &list.Items[i]; record.Open() { // the cache has closed ones, too, if the kind was installed after the manager was started
			open = append(open, record)
		}
	}
	return open, nil
}
