package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

func (r *Reconciler) watch(ctx context.Context, kinds []schema.GroupVersionKind) error {
	var errs []error
	for _, kind := range kinds {
		if r.Watches != nil {
			errs = append(errs, r.Watches.Watch(ctx, kind))
		}
	}
	return errors.Join(errs...)
}

// everybody returns all checks, and deleted checks that have left requests or leases behind.
func (r *Reconciler) everybody(ctx context.Context) []reconcile.Request {
	names := map[reconcile.Request]bool{}
	for _, check := range r.everyCheck(ctx, nil) {
		names[check] = true
	}
	for _, kind := range r.requestKinds() {
		list, err := r.list(ctx, kind)
		if err != nil {
			continue // the cache is shutting down
		}
		for i := range list {
			if maker := makerOf(&list[i]); maker.Name != "" {
				names[requestFor(maker.Name)] = true
			}
		}
	}
	leases, _ := r.listLeases(ctx) // an error means that the cache is shutting down
	for i := range leases {
		if name, ours := strings.CutPrefix(ptr.Deref(leases[i].Spec.HolderIdentity, ""), nhcv1.LeaseHolderPrefix); ours {
			names[requestFor(name)] = true
		}
	}
	return slices.Collect(maps.Keys(names))
}

// reconcileTimeout limits a reconcile. The next reconcile goes on from what was written until then.
const reconcileTimeout = 2 * time.Minute

// SetupWithManager makes r a controller of mgr. It watches checks, nodes and leases in c, a cache of its own.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, c cache.Cache, options controller.Options) error {
	options.ReconciliationTimeout = reconcileTimeout
	options.RateLimiter = enqueue.Retries(enqueue.MergeWindow)
	r.started = make(chan struct{})
	everyCheck := enqueue.Merged[client.Object](r.everyCheck)
	itself := func(_ context.Context, check client.Object) []reconcile.Request {
		return []reconcile.Request{requestFor(check.GetName())}
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("nodehealthcheck").
		WithOptions(options).
		WatchesRawSource(source.TypedKind(c, &nhcv1.NodeHealthCheck{}, enqueue.Merged[*nhcv1.NodeHealthCheck](itself),
			predicate.TypedGenerationChangedPredicate[*nhcv1.NodeHealthCheck]{})).
		WatchesRawSource(source.TypedKind(c, &corev1.Node{}, enqueue.Merged[*corev1.Node](r.checksOfNode), nodeChanges())).
		WatchesRawSource(source.TypedKind(c, &coordinationv1.Lease{}, enqueue.Merged[*coordinationv1.Lease](r.everyCheck), leaseChanges())).
		Watches(&clusterv1.MachineHealthCheck{}, everyCheck, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		Watches(&clusterv1.Cluster{}, everyCheck, builder.WithPredicates(clusterChanges())).
		Watches(&clusterv1.Machine{}, enqueue.Merged[client.Object](r.checksOfMachine)).
		WatchesRawSource(source.Func(r.start)).
		WatchesRawSource(r.Watches.Source(enqueue.Merged[*unstructured.Unstructured](r.checksOfRequest))).
		WatchesRawSource(r.Watches.Source(records.Hears[*unstructured.Unstructured](r.Records))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the NodeHealthCheck controller: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(r.searchOrphans)); err != nil {
		return fmt.Errorf("set up the search for orphaned requests: %w", err)
	}
	return nil
}

// start connects enqueueAll with the queue.
func (r *Reconciler) start(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.enqueueAll = func() {
		for _, check := range r.everybody(ctx) {
			queue.Add(check)
		}
	}
	r.Ledger.SetUp(policy.NodeHealthCheck, func() []reconcile.Request { return r.everyCheck(ctx, nil) }, queue.AddAfter)
	close(r.started)
	return nil
}

func requestFor(check string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Name: check}}
}

// checks returns the checks for which concerns is true.
func (r *Reconciler) checks(ctx context.Context, concerns func(*nhcv1.NodeHealthCheck) bool) []reconcile.Request {
	list := &nhcv1.NodeHealthCheckList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	var found []reconcile.Request
	for i := range list.Items {
		if concerns(&list.Items[i]) {
			found = append(found, requestFor(list.Items[i].Name))
		}
	}
	return found
}

func (r *Reconciler) everyCheck(ctx context.Context, _ client.Object) []reconcile.Request {
	return r.checks(ctx, func(*nhcv1.NodeHealthCheck) bool { return true })
}

// checksOfNode maps a node to the checks that select it, and to the checks with the node in their status, because its labels may have
// changed during its remediation. A control-plane node concerns all checks, because other nodes may wait for it.
func (r *Reconciler) checksOfNode(ctx context.Context, obj client.Object) []reconcile.Request {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return nil
	}
	if controlplane.IsMember(node) {
		return r.everyCheck(ctx, node)
	}
	return r.checks(ctx, func(check *nhcv1.NodeHealthCheck) bool {
		return selectsNode(check, node.GetLabels()) || speaksOf(check, node.GetName())
	})
}

// checksOfMachine maps a Machine to the checks with its node in their status. Other decisions do not depend on the Machine.
func (r *Reconciler) checksOfMachine(ctx context.Context, obj client.Object) []reconcile.Request {
	m, ok := obj.(*clusterv1.Machine)
	if !ok || m.Status.NodeRef.Name == "" {
		return nil
	}
	return r.checks(ctx, func(check *nhcv1.NodeHealthCheck) bool { return speaksOf(check, m.Status.NodeRef.Name) })
}

// checksOfRequest maps a request to the check that created it, even if that is deleted, and to the checks with its node in their status. It
// maps requests for control-plane nodes, and objects that are no requests, to all checks.
func (r *Reconciler) checksOfRequest(ctx context.Context, obj client.Object) []reconcile.Request {
	if u, ok := obj.(*unstructured.Unstructured); ok && !isRequest(u.GroupVersionKind()) {
		return r.everyCheck(ctx, obj)
	}
	_, ofControlPlane := obj.GetLabels()[nhcv1.ControlPlaneLabel]
	maker, about := makerOf(obj), nodeOfObject(obj)
	found := r.checks(ctx, func(check *nhcv1.NodeHealthCheck) bool {
		return ofControlPlane || maker.UID == check.UID || maker.Name == check.Name || speaksOf(check, about)
	})
	if maker.Name != "" && !slices.Contains(found, requestFor(maker.Name)) {
		found = append(found, requestFor(maker.Name))
	}
	return found
}

func nodeOfObject(obj client.Object) string {
	return cmp.Or(obj.GetAnnotations()[nhcv1.NodeNameAnnotation], obj.GetName())
}

func selectsNode(check *nhcv1.NodeHealthCheck, node labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	return err == nil && selector.Matches(node)
}

func speaksOf(check *nhcv1.NodeHealthCheck, node string) bool {
	return slices.ContainsFunc(check.Status.UnhealthyNodes, func(n nhcv1.UnhealthyNode) bool { return n.Name == node })
}

// nodeChanges selects the changes of a node on which a verdict or a step can depend. Heartbeats are not among them.
func nodeChanges() predicate.TypedPredicate[*corev1.Node] {
	judged := workload.NodeChanges()
	return predicate.TypedFuncs[*corev1.Node]{
		UpdateFunc: func(e event.TypedUpdateEvent[*corev1.Node]) bool {
			before, after := e.ObjectOld, e.ObjectNew
			return judged.Update(e) || !maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations) ||
				before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero()
		},
		GenericFunc: func(event.TypedGenericEvent[*corev1.Node]) bool { return false },
	}
}

// leaseChanges selects changes of a lease's holder and deletions. The renewal of a lease does not concern other checks.
func leaseChanges() predicate.TypedPredicate[*coordinationv1.Lease] {
	return predicate.TypedFuncs[*coordinationv1.Lease]{
		CreateFunc: func(event.TypedCreateEvent[*coordinationv1.Lease]) bool { return false },
		UpdateFunc: func(e event.TypedUpdateEvent[*coordinationv1.Lease]) bool {
			return ptr.Deref(e.ObjectOld.Spec.HolderIdentity, "") != ptr.Deref(e.ObjectNew.Spec.HolderIdentity, "")
		},
		GenericFunc: func(event.TypedGenericEvent[*coordinationv1.Lease]) bool { return false },
	}
}

// clusterChanges selects the beginning and the end of a Cluster's rollout or pause.
func clusterChanges() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
			return RollingOut(before) != RollingOut(after) || ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false)
		},
	}
}

// nodeAnnotations are the annotations that the controller reads. A node has many more.
var nodeAnnotations = []string{
	nhcv1.ConfirmedHealthyAnnotation, clusterv1.MachineAnnotation, clusterv1.ClusterNamespaceAnnotation, clusterv1.ClusterNameAnnotation,
	OpenShiftDesiredConfig, OpenShiftCurrentConfig, nhcv1.OpenShiftMachineAnnotation,
}

// SlimNode is the transform of the node cache. It keeps what package workload keeps, all labels, and nodeAnnotations.
func SlimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	slimmed, err := workload.SlimNode(obj)
	slim, ok := slimmed.(*corev1.Node)
	if err != nil || !ok {
		return slimmed, err
	}
	slim.Labels = make(map[string]string, len(node.Labels))
	for key, value := range node.Labels {
		slim.Labels[workload.Interned(key)] = workload.Interned(value)
	}
	for _, key := range nodeAnnotations {
		if value, has := node.Annotations[key]; has {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, key, value)
		}
	}
	return slim, nil
}

// Slim is the transform of other cached objects. It keeps metadata and conditions, and the spec of templates and of OpenShift's objects.
func Slim(obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		if o, isObject := obj.(metav1.Object); isObject {
			o.SetManagedFields(nil)
		}
		return obj, nil
	}
	kept := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "metadata": u.Object["metadata"]}
	if kind := u.GroupVersionKind(); !isRequest(kind) {
		kept["spec"] = u.Object["spec"]
	}
	if conditions, found, err := unstructured.NestedFieldNoCopy(u.Object, "status", "conditions"); err == nil && found {
		kept["status"] = map[string]any{"conditions": conditions}
	}
	slim := &unstructured.Unstructured{Object: kept}
	slim.SetManagedFields(nil)
	unstructured.RemoveNestedField(slim.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	return slim, nil
}
