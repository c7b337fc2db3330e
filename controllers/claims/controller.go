// Package claims makes kubemend act on the MachineHealthChecks that a RemediationPolicy with mode Act selects (claims them), and releases
// them when no such policy selects them any more. It decides only by the present state of the objects, so it catches up on changes that
// were made while no manager ran.
package claims

import (
	"cmp"
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
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
	"sigs.k8s.io/controller-runtime/pkg/source"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/rule"
	"github.com/kubemend/kubemend/controllers/decide/undone"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch

// Reconciler claims and releases checks.
type Reconciler struct {
	// Client reads from caches and writes.
	Client client.Client
	// Ledger has the policies.
	Ledger   *policy.Ledger
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// WatchFilterValue limits what is reconciled, as the flag of this name does.
	WatchFilterValue string

	did sync.Map // the last action on each check: client.ObjectKey to undone.Did[deed]
}

// deed is an action on a check. It has the UID because a new check of the same name has no previous action.
type deed struct {
	check types.UID
	done  Action
}

// Action is what the controller does with a check.
type Action string

const (
	// Leave leaves a check as it is.
	Leave Action = "Leave"
	// Refuse leaves a check as it is although a policy asks for a claim, because the check is paused for all controllers.
	Refuse Action = "Refuse"
	// Claim claims a check because a policy asks for a claim.
	Claim Action = "Claim"
	// Release releases a check because no policy asks for a claim any more.
	Release Action = "Release"
)

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	labelChanged := predicate.LabelChangedPredicate{}
	ofCluster := func(ctx context.Context, cluster client.Object) []reconcile.Request {
		return r.checksOf(ctx, client.ObjectKeyFromObject(cluster))
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("claims").
		WithOptions(options).
		For(&clusterv1.MachineHealthCheck{}, builder.WithPredicates(predicate.Or(predicate.AnnotationChangedPredicate{}, labelChanged))).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster), builder.WithPredicates(labelChanged)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.Ledger.OnSet(func() {
				for _, check := range r.checksOf(ctx, client.ObjectKey{}) {
					queue.Add(check)
				}
			})
			return nil
		})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller of claims: %w", err)
	}
	return nil
}

// checksOf returns requests for the checks of a Cluster, or for all checks if the key is empty.
func (r *Reconciler) checksOf(ctx context.Context, cluster client.ObjectKey) []reconcile.Request {
	list := &clusterv1.MachineHealthCheckList{}
	if err := r.Client.List(ctx, list, client.InNamespace(cluster.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if check := &list.Items[i]; cluster.Name == "" || check.Spec.ClusterName == cluster.Name {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(check)})
		}
	}
	return requests
}

// Reconcile makes the claim of a check agree with the policies that select it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	check, cluster := &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, check); apierrors.IsNotFound(err) {
		r.did.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read MachineHealthCheck %s: %w", req.NamespacedName, err)
	}
	check.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("MachineHealthCheck")) // for the event: not every client sets it
	key := client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName}
	if err := r.Client.Get(ctx, key, cluster, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil // policies may select a check by labels of its Cluster, which is missing during clusterctl move
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read Cluster %s: %w", key, err)
	}
	mode, by, known := r.Ledger.ModeOf(check, cluster)
	action, now := Leave, r.Clock.Now()
	if capi.Covers(r.WatchFilterValue, check, cluster) && cluster.DeletionTimestamp.IsZero() {
		action = decide(check, mode, known)
	}
	value, _ := r.did.Load(req.NamespacedName)
	did, _ := value.(undone.Did[deed])
	if wait := did.Until(now).Sub(now); action == Claim && did.Do == (deed{check.UID, Claim}) && wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil // another client has removed the claim that kubemend set
	}
	done, claimed, err := r.apply(ctx, check, action)
	if done != Leave {
		again := did.Again(deed{check.UID, done}, now)
		r.did.Store(req.NamespacedName, again)
		if claimed != nil && again.Times == undone.Tells {
			event := recorder.Warning(mendv1.EventUndone, "Claim", "%s", undone.Text("claim", undone.WritersSince(claimed, "", did.At)))
			event.About = claimed
			recorder.Send(r.Recorder, event)
		}
	}
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil // by then the cache shows the write of the other client
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("%s MachineHealthCheck %s: %w", action, req.NamespacedName, err)
	}
	r.report(ctx, check, by, action, done)
	return ctrl.Result{}, nil
}

// decide returns what to do with a check. mode is the mode that policies give it, empty if none selects it. A claim that a user set on the
// check, without the annotation of policies, stays.
//
// If the policies are not known (not read yet, or one has an invalid selector), the check is not released: a typing error must not give
// checks back to Cluster API core. Nor is a check that is being deleted, because Cluster API core would act on it until it is gone.
func decide(check *clusterv1.MachineHealthCheck, mode mendv1.PolicyMode, known bool) Action {
	pause, paused := check.Annotations[clusterv1.PausedAnnotation]
	_, marked := check.Annotations[mendv1.ClaimedByAnnotation]
	switch acts := mode == mendv1.PolicyActs; {
	case !check.DeletionTimestamp.IsZero():
		return Leave
	case acts && !paused:
		return Claim
	case acts && pause != mendv1.Claim:
		return Refuse
	case acts, mode == "" && !known, !marked:
		return Leave
	}
	return Release
}

// report reports the action on a check in the log and in an event.
func (r *Reconciler) report(ctx context.Context, check *clusterv1.MachineHealthCheck, by rule.Ref, action, done Action) {
	var event recorder.Event
	switch {
	case done == Claim:
		event = recorder.Normal(mendv1.EventCheckClaimed, "Claim",
			"Claimed, since %s has mode Act: kubemend acts on this MachineHealthCheck in place of Cluster API core", by)
	case done == Release:
		why := "no RemediationPolicy with mode Act selects it any more"
		if by.Name != "" {
			why = by.String() + " has mode Observe"
		}
		event = recorder.Normal(mendv1.EventCheckReleased, "Release",
			"Released, since %s: Cluster API core acts on this MachineHealthCheck from now on", why)
	case action == Refuse:
		event = recorder.Warning(mendv1.EventCheckNotClaimed, "Claim",
			"Not claimed, although %s has mode Act: the annotation %s is %q, which pauses the check for all controllers. "+
				"Remove it, and the check is claimed", by, clusterv1.PausedAnnotation, check.Annotations[clusterv1.PausedAnnotation])
	default:
		return
	}
	if done != Leave {
		log.FromContext(ctx).Info("Changed a claim", "action", done, "by", by)
	}
	event.About = check
	recorder.Send(r.Recorder, event)
}

// apply carries out an action and returns what it did; after a release that is Leave if a claim or a pause of another client stays. claimed
// is the check after a claim. It returns a conflict if another client owns the annotation or the check was created anew, and no error if
// the check is gone.
func (r *Reconciler) apply(
	ctx context.Context, check *clusterv1.MachineHealthCheck, action Action,
) (done Action, claimed *unstructured.Unstructured, err error) {
	switch done = action; done {
	case Claim: // never with force, so that a value of another client causes a conflict
		mark := cmp.Or(check.Annotations[mendv1.ClaimedByAnnotation], mendv1.ClaimedByPolicy) // others may own the present value
		claimed, err = r.applied(ctx, check, map[string]any{clusterv1.PausedAnnotation: mendv1.Claim, mendv1.ClaimedByAnnotation: mark})
	case Release:
		done, err = r.release(ctx, check)
	case Leave, Refuse:
		return Leave, nil, nil
	}
	if err != nil {
		return Leave, nil, client.IgnoreNotFound(err)
	}
	return done, claimed, nil
}

// release applies no annotations, so that the API server removes those that only the field manager of claims owns. If claimed-by stays,
// another client owns both annotations, because it copied them from another management cluster or a backup. Then release deletes them.
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

// endOf returns Leave if the check is still paused or claimed after a release, or else Release.
func endOf(annotations map[string]string) Action {
	if _, paused := annotations[clusterv1.PausedAnnotation]; paused {
		return Leave
	}
	return Release
}

// removed removes a claim and the annotation of policies, whoever owns them. It returns a conflict if the check has changed since.
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

// applied applies exactly these annotations as the field manager of claims. With the UID, the request fails if the check is gone; without
// it, the API server would create a check.
func (r *Reconciler) applied(
	ctx context.Context, check *clusterv1.MachineHealthCheck, annotations map[string]any,
) (*unstructured.Unstructured, error) {
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
