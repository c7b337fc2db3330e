// Package claims makes kubemend act on the MachineHealthChecks of Clusters and Namespaces whose label asks for it, and releases them when
// no label does.
//
// One reconcile is of all checks of one Cluster. It depends on nothing but what the objects say now: what changed while no manager ran is
// done later. It may claim and release, and nothing else: what a claim means is package machinehealthcheck's.
package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/undone"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// RBAC of this controller. Who may act in one namespace alone reads that Namespace, and may neither list nor watch them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=core,resources=namespaces,verbs=get;list;watch

// Reconciler claims and releases the checks of one Cluster at a time.
type Reconciler struct {
	// Client reads from caches and writes.
	Client client.Client
	// Namespaces reads Namespaces; nil where none may be read. A manager of one Namespace may read that, and not watch it: it reads it
	// live, and again after RereadEvery.
	Namespaces  client.Reader
	RereadEvery time.Duration
	Recorder    events.EventRecorder
	Clock       clock.PassiveClock
	// WatchFilterValue limits what is reconciled, as the flag of this name does.
	WatchFilterValue string

	did sync.Map // what was done last to each check, an undone.Did[Action] by its UID
}

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	labelChanged := builder.WithPredicates(predicate.LabelChangedPredicate{})
	b := ctrl.NewControllerManagedBy(mgr).
		Named("claims").
		WithOptions(options).
		Watches(&clusterv1.MachineHealthCheck{}, handler.EnqueueRequestsFromMapFunc(clusterOf),
			builder.WithPredicates(predicate.Or(predicate.AnnotationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&clusterv1.Cluster{}, &handler.EnqueueRequestForObject{}, labelChanged)
	switch {
	case r.Namespaces == nil:
		mgr.GetLogger().Info("Not watching Namespaces, which needs a right: their labels claim nothing", "label", mendv1.ClaimLabel)
	case r.RereadEvery == 0:
		b = b.WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.clustersIn), labelChanged)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("set up the controller of claims: %w", err)
	}
	return nil
}

func clusterOf(_ context.Context, check client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{
		Namespace: check.GetNamespace(), Name: check.(*clusterv1.MachineHealthCheck).Spec.ClusterName,
	}}}
}

// clustersIn maps a Namespace to the Clusters in it that have checks. The queue drops those that are named twice.
func (r *Reconciler) clustersIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace.GetName()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, clusterOf(ctx, &list.Items[i])...)
	}
	return requests
}

// Reconcile makes the claims of the checks of a Cluster agree with the labels on it and on its Namespace.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	observed, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	if len(observed) > 0 {
		r.reportLabels(observed[0])
		result.RequeueAfter = r.RereadEvery
	}
	var errs []error
	for _, facts := range observed {
		plan, now := Decide(facts), r.Clock.Now()
		value, _ := r.did.Load(facts.Check.UID)
		did, _ := value.(undone.Did[Action])
		if wait := did.Until(now).Sub(now); plan.Action == Claim && did.Do == Claim && wait > 0 {
			result.RequeueAfter = cmp.Or(min(wait, result.RequeueAfter), wait) // another client removes the claim each time
			continue
		}
		done, claimed, err := r.apply(ctx, facts.Check, plan)
		if done != Leave {
			again := did.Again(done, now)
			r.did.Store(facts.Check.UID, again)
			if claimed != nil && again.Times == undone.Tells {
				event := recorder.Warning(mendv1.EventUndone, "Claim", "%s", undone.Text("claim", undone.WritersSince(claimed, "", did.At)))
				event.About = claimed
				recorder.Send(r.Recorder, event)
			}
		}
		switch {
		case apierrors.IsConflict(err):
			result.RequeueAfter = enqueue.Conflicted // by then the cache shows what somebody else has written
		case err != nil:
			errs = append(errs, err)
		default:
			r.report(ctx, facts, plan, done)
		}
	}
	return result, errors.Join(errs...)
}

// observe reads a Cluster, its Namespace and its checks, and returns the facts of each check. The objects are the cache's: read only.
func (r *Reconciler) observe(ctx context.Context, key client.ObjectKey) ([]Facts, error) {
	cluster := &clusterv1.Cluster{}
	err := r.Client.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		cluster = nil
	} else if err != nil {
		return nil, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	labels, known, err := r.namespaceLabels(ctx, key.Namespace)
	if err != nil {
		return nil, fmt.Errorf("read Namespace %s: %w", key.Namespace, err)
	}
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the MachineHealthChecks of Cluster %s: %w", key, err)
	}
	observed := make([]Facts, 0, 1)
	for i := range list.Items {
		if check := &list.Items[i]; check.Spec.ClusterName == key.Name {
			observed = append(observed, Facts{
				Check: check, Cluster: cluster, Namespace: labels, NamespaceKnown: known, NotCovered: !capi.Covers(r.WatchFilterValue, check, cluster),
			})
		}
	}
	return observed, nil
}

// namespaceLabels reads the labels of a Namespace. Those of one that is not there, or that may not be read, are not known.
func (r *Reconciler) namespaceLabels(ctx context.Context, name string) (labels map[string]string, known bool, err error) {
	if r.Namespaces == nil {
		return nil, false, nil
	}
	namespace := &metav1.PartialObjectMetadata{} // all that a cache has of it
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err = r.Namespaces.Get(ctx, client.ObjectKey{Name: name}, namespace)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, false, nil
	}
	return namespace.Labels, err == nil, err
}

// report tells what became of the plan for a check, in the log and in an event on it.
func (r *Reconciler) report(ctx context.Context, facts Facts, plan Plan, done Action) {
	var event recorder.Event
	switch {
	case done == Claim:
		event = recorder.Normal(mendv1.EventCheckClaimed, "Claim",
			"Claimed, since %s has the label %s: kubemend acts on this MachineHealthCheck in place of Cluster API core", facts.object(plan.By), claimLabel)
	case done == Release:
		event = recorder.Normal(mendv1.EventCheckReleased, "Release",
			"Released, since neither %s nor %s has the label %s: Cluster API core acts on this MachineHealthCheck from now on",
			facts.object(byCluster), facts.object(byNamespace), claimLabel)
	case plan.Action == Refuse:
		event = recorder.Warning(mendv1.EventCheckNotClaimed, "Claim",
			"Not claimed, although %s has the label %s: the annotation %s is %q, which pauses the check for all controllers. "+
				"Remove it, and the check is claimed",
			facts.object(plan.By), claimLabel, clusterv1.PausedAnnotation, facts.Check.Annotations[clusterv1.PausedAnnotation])
	default:
		return
	}
	if done != Leave {
		log.FromContext(ctx).Info("Carried out a claim's plan", "action", plan.Action, "MachineHealthCheck", facts.Check.Name, "by", plan.By)
	}
	check := facts.Check.DeepCopy() // the cache's carries no kind
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck"))
	event.About = check
	recorder.Send(r.Recorder, event)
}

// reportLabels reports a label whose value is not defined, in an event on the Cluster: one on a Namespace would be where few users of
// clusters look, and where a manager of one namespace may not write.
func (r *Reconciler) reportLabels(facts Facts) {
	if facts.Cluster == nil {
		return
	}
	cluster := facts.Cluster.DeepCopy()
	cluster.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	for kind, labels := range map[string]map[string]string{byCluster: cluster.Labels, byNamespace: facts.Namespace} {
		if invalid := InvalidLabel(facts.object(kind), labels); invalid != "" {
			event := recorder.Warning(mendv1.EventInvalidClaimLabel, "Claim", "%s", invalid)
			event.About = cluster
			recorder.Send(r.Recorder, event)
		}
	}
}

// apply carries a plan out, and returns what it did: Leave also where the mark of the claim is gone and somebody else's claim, or pause,
// stays. Claimed is the check as a claim has left it. A conflict is an error: somebody else owns the annotation, or the check was made
// anew. That the check is gone is none.
func (r *Reconciler) apply(
	ctx context.Context, check *clusterv1.MachineHealthCheck, plan Plan,
) (done Action, claimed *unstructured.Unstructured, err error) {
	switch done = plan.Action; done {
	case Claim: // never by force: a value that another client has written meanwhile is a conflict
		mark := cmp.Or(check.Annotations[mendv1.ClaimedByAnnotation], plan.By) // one that was copied is not ours to change
		claimed, err = r.applied(ctx, check, map[string]any{clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: mark})
	case Release:
		done, err = r.release(ctx, check)
	case Leave, Refuse:
		return Leave, nil, nil
	}
	if apierrors.IsNotFound(err) {
		return Leave, nil, nil
	}
	if err != nil {
		return Leave, nil, fmt.Errorf("%s MachineHealthCheck %s: %w", plan.Action, client.ObjectKeyFromObject(check), err)
	}
	return done, claimed, nil
}

// release gives up what this field manager owns, so that a claim that somebody else owns as well stays. If the mark stays it was copied,
// with the claim, from another management cluster or a backup, and what copied them owns them: then both are removed.
func (r *Reconciler) release(ctx context.Context, check *clusterv1.MachineHealthCheck) (Action, error) {
	now, err := r.applied(ctx, check, nil)
	if err != nil {
		return Leave, err
	}
	annotations := now.GetAnnotations()
	if _, copied := annotations[mendv1.ClaimedByAnnotation]; copied {
		return r.removed(ctx, now)
	}
	return endOf(annotations), nil
}

// endOf is what became of a check that lost its mark.
func endOf(annotations map[string]string) Action {
	if _, paused := annotations[clusterv1.PausedAnnotation]; paused {
		return Leave
	}
	return Release
}

// removed removes a claim and its mark, also those that another field manager owns, unless the check has changed meanwhile.
func (r *Reconciler) removed(ctx context.Context, check *unstructured.Unstructured) (Action, error) {
	after, annotations := check.DeepCopy(), check.GetAnnotations()
	delete(annotations, mendv1.ClaimedByAnnotation)
	if annotations[clusterv1.PausedAnnotation] == mendv1.Claim {
		delete(annotations, clusterv1.PausedAnnotation)
	}
	after.SetAnnotations(annotations)
	unchanged := client.MergeFromWithOptions(check, client.MergeFromWithOptimisticLock{})
	return endOf(annotations), r.Client.Patch(ctx, after, unchanged, client.FieldOwner(mendv1.ClaimFieldOwner))
}

// applied applies these annotations, and no others, as the field manager of claims. The UID makes it fail where the check is gone, instead
// of making one.
func (r *Reconciler) applied(ctx context.Context, check *clusterv1.MachineHealthCheck, annotations map[string]any) (*unstructured.Unstructured, error) {
	metadata := map[string]any{"namespace": check.Namespace, "name": check.Name, "uid": string(check.UID)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	wanted := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": clusterv1.GroupVersion.String(), "kind": "MachineHealthCheck", "metadata": metadata,
	}}
	err := r.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner(mendv1.ClaimFieldOwner))
	return wanted, err
}
