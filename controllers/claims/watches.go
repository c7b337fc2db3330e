package claims

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// clusterIndex finds checks by the Cluster that they name.
const clusterIndex = "kubemend.claims.cluster"

// SetupWithManager makes r a controller of mgr. Where r may not watch Namespaces, as mayWatch says, the labels of Clusters alone count.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, mayWatch bool, options controller.Options) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).
		Named("claims").
		WithOptions(options).
		Watches(&clusterv1.MachineHealthCheck{}, handler.EnqueueRequestsFromMapFunc(clusterOf), builder.WithPredicates(checkChanges())).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(labelChanges(mendv1.ClaimLabel, clusterv1.WatchLabel)))
	switch {
	case r.Namespace != "":
		own := &ownNamespace{}
		r.namespaces = own
		b = b.WatchesRawSource(r.ownSource(own))
	case mayWatch:
		r.namespaces = cachedNamespaces{mgr.GetClient()}
		b = b.WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, namespace client.Object) []reconcile.Request {
			return r.clustersIn(ctx, namespace.GetName())
		}), builder.WithPredicates(labelChanges(mendv1.ClaimLabel)))
	default:
		r.namespaces = noNamespaces{}
		mgr.GetLogger().Info("Not watching Namespaces, which needs a right: their labels claim nothing", "label", mendv1.ClaimLabel)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up the controller of claims: %w", err)
	}
	return nil
}

// AddIndexes adds the index that reconciles list by.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &clusterv1.MachineHealthCheck{}, clusterIndex, func(o client.Object) []string {
		return []string{o.(*clusterv1.MachineHealthCheck).Spec.ClusterName}
	})
	if err != nil {
		return fmt.Errorf("index MachineHealthChecks by %s: %w", clusterIndex, err)
	}
	return nil
}

// clusterOf maps a check to its Cluster.
func clusterOf(_ context.Context, check client.Object) []reconcile.Request {
	c, is := check.(*clusterv1.MachineHealthCheck)
	if !is {
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: c.Namespace, Name: c.Spec.ClusterName}}}
}

// clustersIn are the Clusters of a namespace that have checks.
func (r *Reconciler) clustersIn(ctx context.Context, namespace string) []reconcile.Request {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	all := sets.New[reconcile.Request]()
	for i := range list.Items {
		all.Insert(clusterOf(ctx, &list.Items[i])...)
	}
	return all.UnsortedList()
}

// ownSource reads the Namespace of a manager of one, again and again, and enqueues the Clusters in it when its label changes.
func (r *Reconciler) ownSource(own *ownNamespace) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		if _, err := own.look(ctx, r.Live, r.Namespace); err != nil {
			return fmt.Errorf("read Namespace %s: %w", r.Namespace, err)
		}
		go r.followOwn(ctx, own, queue)
		return nil
	})
}

// followOwn reads the Namespace until ctx ends.
func (r *Reconciler) followOwn(ctx context.Context, own *ownNamespace, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.Clock.After(ownEvery):
		}
		changed, err := own.look(ctx, r.Live, r.Namespace)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot read the Namespace", "Namespace", r.Namespace)
		}
		if changed {
			for _, cluster := range r.clustersIn(ctx, r.Namespace) {
				queue.Add(cluster)
			}
		}
	}
}

// checkChanges passes what a decision on a check depends on. Of one that is gone nothing is decided.
func checkChanges() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()
			return differ(was, is, clusterv1.PausedAnnotation, mendv1.ClaimedByAnnotation) ||
				differ(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels(), clusterv1.WatchLabel) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// labelChanges passes an object that is new and has one of these labels, and one of which one changes.
func labelChanges(keys ...string) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return differ(nil, e.Object.GetLabels(), keys...) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return differ(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels(), keys...) || e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// differ reports whether one of the keys has another value, or is on one side alone.
func differ(was, is map[string]string, keys ...string) bool {
	for _, key := range keys {
		before, had := was[key]
		after, has := is[key]
		if had != has || before != after {
			return true
		}
	}
	return false
}
