package machinehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/policy"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// reconcileTimeout bounds a reconcile. The next reconcile continues with what was written until then.
const reconcileTimeout = 2 * time.Minute

// probeLost is the time without a successful probe after which ClusterCache enqueues the checks of a cluster: longer than one probe
// interval, so that a successful probe never does.
const probeLost = workload.ProbeInterval + time.Second

// The indexes of the cache of the management cluster.
const (
	// clusterIndex finds machines and checks by the name of their cluster.
	clusterIndex = "kubemend.cluster"
	// nodeIndex finds machines by cluster and node, whose name or lowercase provider ID is the key. Clusters often share node names.
	nodeIndex = "kubemend.node"
)

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(
	ctx context.Context, mgr ctrl.Manager, cc clustercache.ClusterCache, options controller.Options,
) error {
	if err := AddIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	informer, err := mgr.GetCache().GetInformer(ctx, &clusterv1.Machine{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("cache Machines: %w", err)
	}
	if shared, ok := informer.(toolscache.SharedIndexInformer); ok { // the informer of several namespaces has several stores
		r.machines = shared.GetIndexer()
	}
	options.ReconciliationTimeout = reconcileTimeout
	options.RateLimiter = enqueue.Retries(enqueue.MergeWindow)
	controlled := ctrl.NewControllerManagedBy(mgr).
		Named("machinehealthcheck").
		WithOptions(options).
		Watches(&clusterv1.MachineHealthCheck{}, enqueue.FirstAtOnce[client.Object](&r.merging, r.checkAndOthers),
			builder.WithPredicates(checkChanges())).
		Watches(&clusterv1.Machine{}, enqueue.FirstAtOnce[client.Object](&r.merging, r.checksOfMachineOrSpare),
			builder.WithPredicates(r.othersWrites(), machineChanges())).
		Watches(&clusterv1.Cluster{}, enqueue.FirstAtOnce[client.Object](&r.merging, r.checksOfCluster),
			builder.WithPredicates(clusterChanges())).
		WatchesRawSource(cc.GetClusterSource("machinehealthcheck", r.checksOfCluster, clustercache.WatchForProbeFailure(probeLost))).
		WatchesRawSource(source.Func(r.hear)).
		WatchesRawSource(r.Kinds.Source(remediationrequest.Changed(
			enqueue.FirstAtOnce[*remediationrequest.Metadata](&r.merging, r.checksOfRequest)))).
		WatchesRawSource(r.Kinds.Source(records.Hears[*remediationrequest.Metadata](r.Records))).
		WatchesRawSource(r.Hosts.Source(r.hostEvents())).
		WatchesRawSource(r.Records.Missing.Into(r.onMissing))
	if r.controller, err = controlled.Build(r); err != nil {
		return fmt.Errorf("set up the MachineHealthCheck controller: %w", err)
	}
	return nil
}

// hear gives queue to r.wake and to the ledger of policies, so that both can enqueue checks.
func (r *Reconciler) hear(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.wake = func(check types.NamespacedName, in time.Duration) {
		queue.AddAfter(reconcile.Request{NamespacedName: check}, in)
	}
	r.Ledger.SetUp(policy.MachineHealthCheck, func() []reconcile.Request { return r.checks(ctx, anyCheck) }, queue.AddAfter)
	return nil
}

// onMissing enqueues a check whose missing capacity has changed, when its status may be written again.
func (r *Reconciler) onMissing(
	_ context.Context, check types.NamespacedName, queue workqueue.TypedRateLimitingInterface[reconcile.Request],
) {
	before, now := r.memory.of(check), r.Clock.Now()
	due := cmp.Or(before.statusDue, now.Add(numbersWithin(len(before.targets))))
	queue.AddAfter(reconcile.Request{NamespacedName: check}, max(due.Sub(now), enqueue.MergeWindow))
}

// AddIndexes adds the indexes that reconciles list by.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	clusterOf := func(o client.Object) []string {
		if machine, ok := o.(*clusterv1.Machine); ok {
			return []string{machine.Spec.ClusterName}
		}
		return []string{o.(*clusterv1.MachineHealthCheck).Spec.ClusterName}
	}
	nodesOf := func(o client.Object) []string {
		machine := o.(*clusterv1.Machine)
		if machine.Status.NodeRef.Name == "" {
			return nil
		}
		keys := []string{nodeKey(machine.Spec.ClusterName, machine.Status.NodeRef.Name)}
		if id := machine.Spec.ProviderID; id != "" {
			keys = append(keys, nodeKey(machine.Spec.ClusterName, strings.ToLower(id)))
		}
		return keys
	}
	err := errors.Join(
		indexer.IndexField(ctx, &clusterv1.Machine{}, clusterIndex, clusterOf),
		indexer.IndexField(ctx, &clusterv1.MachineHealthCheck{}, clusterIndex, clusterOf),
		indexer.IndexField(ctx, &clusterv1.Machine{}, nodeIndex, nodesOf),
	)
	if err != nil {
		return fmt.Errorf("index machines and checks: %w", err)
	}
	return nil
}

func nodeKey(cluster, node string) string { return cluster + "/" + node }

func (r *Reconciler) nodeWatch(cluster client.ObjectKey) clustercache.Watcher {
	return workload.NodeWatch{
		ID:         "machinehealthcheck-nodes",
		Controller: r.controller,
		Hears: enqueue.FirstAtOnce[*corev1.Node](&r.merging, func(ctx context.Context, node client.Object) []reconcile.Request {
			return r.checksOfNode(ctx, cluster, node.(*corev1.Node))
		}),
		Predicate: workload.NodeChanges(),
	}
}

// checksOfNode maps a node to the checks of its machine in that cluster: the machine that names the node or has its provider ID.
func (r *Reconciler) checksOfNode(ctx context.Context, cluster client.ObjectKey, node *corev1.Node) []reconcile.Request {
	var checks []reconcile.Request
	for _, key := range []string{node.Name, strings.ToLower(node.Spec.ProviderID)} {
		list := &clusterv1.MachineList{}
		if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy,
			client.MatchingFields{nodeIndex: nodeKey(cluster.Name, key)}); err != nil {
			return r.checksIn(ctx, cluster, nil) // a needless reconcile is better than a missed change
		}
		for i := range list.Items {
			checks = append(checks, r.checksOfMachine(ctx, &list.Items[i])...)
		}
		if slices.ContainsFunc(list.Items, func(m clusterv1.Machine) bool { return health.IsNodeOf(&m, node) }) {
			break // no other machine has this node
		}
	}
	return checks
}

func (r *Reconciler) checksOfMachine(ctx context.Context, obj client.Object) []reconcile.Request {
	machine := obj.(*clusterv1.Machine)
	return r.checksIn(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.ClusterName}, labels.Set(machine.Labels))
}

func (r *Reconciler) checksOfCluster(ctx context.Context, cluster client.Object) []reconcile.Request {
	return r.checksIn(ctx, client.ObjectKeyFromObject(cluster), nil)
}

// checkAndOthers maps a check to all checks of its cluster, because their overlaps change with it.
func (r *Reconciler) checkAndOthers(ctx context.Context, obj client.Object) []reconcile.Request {
	check := obj.(*clusterv1.MachineHealthCheck)
	requests := r.checksIn(ctx, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}, nil)
	if self := (reconcile.Request{NamespacedName: client.ObjectKeyFromObject(check)}); !slices.Contains(requests, self) {
		requests = append(requests, self)
	}
	return requests
}

// checksOfRequest maps a remediation request to the checks of its machine and to the check that made it, and a template to the checks that
// name it. Only for a template are all checks searched: a request has a dozen events, a template hardly any.
func (r *Reconciler) checksOfRequest(ctx context.Context, obj client.Object) []reconcile.Request {
	if kind := obj.GetObjectKind().GroupVersionKind(); strings.HasSuffix(kind.Kind, remediationrequest.TemplateSuffix) {
		return r.checks(ctx, func(check *clusterv1.MachineHealthCheck) bool {
			ref := check.Spec.Remediation.TemplateRef
			return ref.IsDefined() && ref.Name == obj.GetName() && remediationrequest.TemplateKind(ref) == kind
		}, client.InNamespace(obj.GetNamespace()))
	}
	var checks []reconcile.Request
	if maker, marked := remediationrequest.MadeBy(obj); marked {
		checks = append(checks, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: maker.Name}})
	}
	for _, name := range append(remediationrequest.MachinesOf(obj), obj.GetName()) {
		machine, key := &clusterv1.Machine{}, client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}
		if err := r.Client.Get(ctx, key, machine, client.UnsafeDisableDeepCopy); err == nil {
			checks = append(checks, r.checksOfMachine(ctx, machine)...)
		}
	}
	return checks
}

// checksIn returns the checks of a cluster that select a machine with these labels, or all if machine is nil.
func (r *Reconciler) checksIn(ctx context.Context, cluster client.ObjectKey, machine labels.Set) []reconcile.Request {
	return r.checks(ctx, func(check *clusterv1.MachineHealthCheck) bool {
		selector, err := selectorOf(check)
		return machine == nil || err == nil && selector.Matches(machine)
	}, client.InNamespace(cluster.Namespace), client.MatchingFields{clusterIndex: cluster.Name})
}

// checks returns the listed checks that are wanted.
func (r *Reconciler) checks(
	ctx context.Context, wanted func(*clusterv1.MachineHealthCheck) bool, options ...client.ListOption,
) []reconcile.Request {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache is shutting down
	}
	var checks []reconcile.Request
	for i := range list.Items {
		if wanted(&list.Items[i]) {
			checks = append(checks, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return checks
}

func anyCheck(*clusterv1.MachineHealthCheck) bool { return true }

// checkChanges drops changes of only the status of a check, which kubemend writes.
func checkChanges() predicate.Predicate {
	return predicate.Or(
		predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{})
}

// ownWrite is a write of this process to the conditions of a Machine. on is the version that was patched.
type ownWrite struct {
	machine types.NamespacedName
	on      string
}

// othersWrites drops the events of this process' own writes to Machines. Such an event shows nothing new, and a reconcile of the whole
// check for each would double the work. An event is that of an own write if it leads from the patched version to the conditions that were
// written: the patch fails on any other version, so no other change is dropped. Most events arrive before save gets its answer.
func (r *Reconciler) othersWrites() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			write := ownWrite{client.ObjectKeyFromObject(e.ObjectNew), e.ObjectOld.GetResourceVersion()}
			written, own := r.writing.LoadAndDelete(write)
			before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			// After a watch was interrupted, one event may contain several writes.
			return !own || !sameConditions(after, written.(*clusterv1.Machine)) || changedBesides(before, after)
		},
		DeleteFunc: func(e event.DeleteEvent) bool {
			key := client.ObjectKeyFromObject(e.Object)
			r.written.Forget(key)
			r.writing.Range(func(write, _ any) bool { // forget writes whose events were missed
				if write.(ownWrite).machine == key {
					r.writing.Delete(write)
				}
				return true
			})
			return true
		},
	}
}

// machineChanges passes changes on which a verdict, a count or a condition may depend.
func machineChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		return changedBesides(before, after) ||
			ptr.Deref(olderAnswer(before), clusterv1.Condition{}) != ptr.Deref(olderAnswer(after), clusterv1.Condition{}) ||
			!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, sameCondition)
	}}
}

// changedBesides reports whether anything else that matters of a Machine has changed than its conditions.
func changedBesides(before, after *clusterv1.Machine) bool {
	return before.UID != after.UID || before.Generation != after.Generation ||
		before.Status.NodeRef.Name != after.Status.NodeRef.Name ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || finalFailure(before) != finalFailure(after) ||
		!maps.Equal(before.Labels, after.Labels) || !maps.Equal(before.Annotations, after.Annotations)
}

// sameCondition ignores messages, on which no decision depends.
func sameCondition(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.LastTransitionTime.Equal(&b.LastTransitionTime)
}

// clusterChanges passes changes of the pause; of the labels, which policies and managers select by; of the UID of the workload cluster that
// is kept; of the conditions that gate judging; and of the condition RollingOut, for which remediations may wait.
func clusterChanges() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
		if ptr.Deref(before.Spec.Paused, false) != ptr.Deref(after.Spec.Paused, false) || before.UID != after.UID ||
			!maps.Equal(before.Labels, after.Labels) || workload.Kept(before) != workload.Kept(after) {
			return true
		}
		for _, gate := range []string{
			clusterv1.ClusterControlPlaneInitializedCondition, clusterv1.ClusterInfrastructureReadyCondition,
			clusterv1.ClusterRollingOutCondition,
		} {
			was, is := ptr.Deref(ConditionOf(before, gate), metav1.Condition{}), ptr.Deref(ConditionOf(after, gate), metav1.Condition{})
			if was.Status != is.Status {
				return true
			}
		}
		return false
	}}
}

// byCluster is clusterIndex as controller-runtime names it in its cache; the key is the namespace and name of the Cluster. Reading the
// index avoids the copy of each machine that a list through the client makes.
const byCluster = "field:" + clusterIndex

// machinesOf returns the machines of a cluster, unordered. They are shared: read only. An unchanged machine is the same pointer.
func (r *Reconciler) machinesOf(ctx context.Context, cluster client.ObjectKey) ([]*clusterv1.Machine, error) {
	if r.machines == nil {
		return listMachines(ctx, r.Client, cluster)
	}
	objs, err := r.machines.ByIndex(byCluster, cluster.String())
	if err != nil {
		return nil, fmt.Errorf("list the machines of cluster %s: %w", cluster, err)
	}
	machines := make([]*clusterv1.Machine, len(objs))
	for i, obj := range objs {
		machines[i] = obj.(*clusterv1.Machine)
	}
	return machines, nil
}
