package hostremediation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/workload"
)

const (
	timeout = time.Minute
	// concernsIndex indexes remediations by machine, host and node.
	concernsIndex = "kubemend.concerns"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(
	ctx context.Context, mgr ctrl.Manager, cc clustercache.ClusterCache, options controller.Options,
) error {
	options.ReconciliationTimeout = timeout
	options.RateLimiter = enqueue.Retries(enqueue.Conflicted)
	m3m, err := host.Metal3MachineKind(mgr.GetRESTMapper())
	if err != nil {
		return err
	}
	if err := r.addIndex(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	c, err := ctrl.NewControllerManagedBy(mgr).
		Named(r.Kind.ControllerName()).
		WithOptions(options).
		For(r.Kind.New().Unwrapped(), builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, metadataChanged()))).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(r.ofMachine), builder.WithPredicates(machineChanges())).
		Watches(host.Watched(), handler.EnqueueRequestsFromMapFunc(r.ofHost), builder.WithPredicates(host.Changes())).
		WatchesMetadata(m3m, handler.EnqueueRequestsFromMapFunc(r.ofMetal3Machine),
			builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(r.ofCluster)).
		WatchesRawSource(cc.GetClusterSource(r.Kind.ControllerName(), r.ofCluster, clustercache.WatchForProbeFailure(time.Minute))).
		WatchesRawSource(source.Func(func(ctx context.Context, q queue) error {
			r.Ledger.SetUp(r.Kind.Kind, func() []reconcile.Request { return r.requests(ctx) }, q.AddAfter)
			return nil
		})).
		WatchesRawSource(r.switched.Source(func(ctx context.Context, _ struct{}) []reconcile.Request { return r.requests(ctx) })).
		Build(r)
	if err != nil {
		return fmt.Errorf("set up the %s controller: %w", r.Kind.Kind, err)
	}
	r.controller.Store(&c)
	return nil
}

func (r *Reconciler) addIndex(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, r.Kind.New().Unwrapped(), concernsIndex, concernsOf); err != nil {
		return fmt.Errorf("index %s: %w", r.Kind.Kind, err)
	}
	return nil
}

func concernsOf(rem client.Object) []string {
	record := remediation.Remembered(rem)
	concerns := []string{"host/" + record.Host, "node/" + record.Node}
	if owner := remediation.OwnerOf(rem); owner != nil {
		concerns = append(concerns, "machine/"+owner.Name)
	}
	return concerns
}

// concerned returns requests for the remediations in a namespace that have this value in concernsIndex.
func (r *Reconciler) concerned(ctx context.Context, namespace, by string) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(namespace), client.MatchingFields{concernsIndex: by})
}

func (r *Reconciler) ofMachine(ctx context.Context, o client.Object) []reconcile.Request {
	return r.concerned(ctx, o.GetNamespace(), "machine/"+o.GetName())
}

func (r *Reconciler) ofHost(ctx context.Context, o client.Object) []reconcile.Request {
	return r.concerned(ctx, o.GetNamespace(), "host/"+o.GetName())
}

func (r *Reconciler) ofMetal3Machine(ctx context.Context, o client.Object) []reconcile.Request {
	for _, owner := range o.GetOwnerReferences() {
		if owner.Kind == "Machine" {
			return r.concerned(ctx, o.GetNamespace(), "machine/"+owner.Name)
		}
	}
	return nil
}

// ofCluster maps a Cluster to all remediations of its namespace, because one that a user made need not name its Cluster.
func (r *Reconciler) ofCluster(ctx context.Context, o client.Object) []reconcile.Request {
	return r.requests(ctx, client.InNamespace(o.GetNamespace()))
}

// Cached returns the remediations of either kind in a namespace from the cache. It returns false if r is not started, because a read would
// start an informer. The objects are shared: read only.
func (r *Reconciler) Cached(
	ctx context.Context, kind schema.GroupVersionKind, namespace string,
) (objects []client.Object, has bool, err error) {
	if r.controller.Load() == nil {
		return nil, false, nil
	}
	kinds, err := r.Installed()
	if err != nil {
		return nil, false, err
	}
	index := slices.IndexFunc(kinds, func(k remediation.Kind) bool { return k.GroupVersionKind == kind })
	if index < 0 {
		return nil, false, nil
	}
	existing, err := remediation.List(ctx, r.Client, kinds[index:index+1], namespace)
	for _, rem := range existing.All {
		objects = append(objects, rem)
	}
	return objects, err == nil, err
}

func (r *Reconciler) requests(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	list := r.Kind.List()
	if err := r.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache is shutting down
	}
	var requests []reconcile.Request
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
		return nil
	})
	return requests
}

// nodeWatch is the watch on the nodes of a workload cluster. It ignores heartbeats.
func (r *Reconciler) nodeWatch(cluster client.ObjectKey) clustercache.Watcher {
	return workload.NodeWatch{
		ID:         r.Kind.ControllerName() + "-nodes",
		Controller: *r.controller.Load(),
		Hears: handler.TypedEnqueueRequestsFromMapFunc(func(ctx context.Context, node *corev1.Node) []reconcile.Request {
			return r.ofNode(ctx, cluster.Namespace, node)
		}),
		Predicate: nodeChanges(),
	}
}

// ofNode maps a node to the remediations that have stored its name, and to those of the host in its provider ID, because the node may have
// registered with another name. Nodes of other clusters may match too; that only costs a reconcile.
func (r *Reconciler) ofNode(ctx context.Context, namespace string, node *corev1.Node) []reconcile.Request {
	requests := r.concerned(ctx, namespace, "node/"+node.Name)
	if name := host.ProvidedBy(node.Spec.ProviderID); name != "" {
		requests = append(requests, r.concerned(ctx, namespace, "host/"+name)...)
	}
	return requests
}

// metadataChanged lets changes by other clients through, and the removal of the record. Kubemend's own annotations do not count: if a host
// refuses a request, they change in each reconcile, and each change would cause the next reconcile.
func metadataChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		_, remembered := e.ObjectOld.GetAnnotations()[mendv1.PowerCycleAnnotation]
		_, remembers := e.ObjectNew.GetAnnotations()[mendv1.PowerCycleAnnotation]
		return remembered && !remembers ||
			!maps.Equal(withoutMemory(e.ObjectOld.GetAnnotations()), withoutMemory(e.ObjectNew.GetAnnotations())) ||
			!slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers()) ||
			!equality.Semantic.DeepEqual(e.ObjectOld.GetOwnerReferences(), e.ObjectNew.GetOwnerReferences()) ||
			e.ObjectOld.GetDeletionTimestamp().IsZero() != e.ObjectNew.GetDeletionTimestamp().IsZero()
	}}
}

func withoutMemory(marks map[string]string) map[string]string {
	others := maps.Clone(marks)
	delete(others, mendv1.PowerCycleAnnotation)
	delete(others, mendv1.RecordAnnotation)
	delete(others, mendv1.WaitsForAnnotation)
	return others
}

// machineChanges lets changes of a Machine through that a step can depend on.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		decisive := []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition}
		return before.UID != after.UID || annotations.HasPaused(before) != annotations.HasPaused(after) ||
			before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() ||
			before.Status.NodeRef.Name != after.Status.NodeRef.Name ||
			slices.ContainsFunc(decisive, func(cond string) bool {
				return conditions.IsTrue(before, cond) != conditions.IsTrue(after, cond) ||
					conditions.IsFalse(before, cond) != conditions.IsFalse(after, cond)
			})
	}}
}

// nodeChanges lets changes through that show that a node has booted, is Ready, or is fenced. It ignores heartbeats.
func nodeChanges() predicate.TypedPredicate[*corev1.Node] {
	decisive := predicate.TypedFuncs[*corev1.Node]{UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
		before, after := e.ObjectOld, e.ObjectNew
		return before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
			!equality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
	}}
	return predicate.Or(workload.NodeChanges(), decisive)
}
