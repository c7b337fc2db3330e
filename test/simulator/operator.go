package simulator

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

const (
	// hostWorkers is how many hosts are reconciled at the same time.
	hostWorkers = 20
	// conflicted is the requeue after a conflict: the cache will soon have the other write.
	conflicted = 5 * time.Millisecond
)

// operator simulates the controller of the Bare Metal Operator.
type operator struct{ *Hosts }

func (o *operator) setUp(manager ctrl.Manager) error {
	finalizers := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
	err := ctrl.NewControllerManagedBy(manager).
		Named("baremetalhost").
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, finalizers))).
		WatchesRawSource(source.Channel(o.news, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: hostWorkers}).
		Complete(o)
	if err != nil {
		return fmt.Errorf("set up the simulated bare metal operator: %w", err)
	}
	return nil
}

// Reconcile reconciles one BareMetalHost like BMO: it updates the status from the real state, and then takes one step of the model.
//
// Like BMO it reads from a cache and updates whole objects, so that of two concurrent writers one has a conflict and retries.
func (o *operator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, request.NamespacedName, bmh); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if movedAway(bmh) {
		return ctrl.Result{}, nil
	}
	before := bmh.DeepCopy()
	pass := o.Host(request.NamespacedName).reconcile(bmh)
	if pass.Failed {
		return ctrl.Result{RequeueAfter: pass.After}, nil
	}
	if err := o.save(ctx, pass, bmh, before); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflicted}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pass.Again {
		return ctrl.Result{RequeueAfter: time.Nanosecond}, nil // at once, without a back-off
	}
	return ctrl.Result{RequeueAfter: pass.After}, nil
}

// movedAway reports whether clusterctl has moved an object and is deleting it here. BMO and CAPM3 do not know the annotation. If they
// reconcile the object between these two steps, when it has no finalizer, they add theirs and then deprovision the host. Our tests leave
// this race of clusterctl out.
//
// Until then BMO acts as usual: clusterctl replaces all annotations, which removes the pause and the annotation that keeps the host powered
// off.
func movedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved && (len(object.GetFinalizers()) == 0 || !object.GetDeletionTimestamp().IsZero())
}

// save writes the changes of a reconcile with whole updates, the metadata first.
func (o *operator) save(ctx context.Context, pass bmo.Pass, bmh, before *bmov1alpha1.BareMetalHost) error {
	status := bmh.Status
	if pass.Object {
		bmh.Status = before.Status
		if err := o.client.Update(ctx, bmh); err != nil {
			return fmt.Errorf("write host %s: %w", client.ObjectKeyFromObject(bmh), err)
		}
	}
	if !pass.Status {
		return nil
	}
	bmh.Status = status
	if err := o.client.Status().Update(ctx, bmh); err != nil {
		return fmt.Errorf("write the status of host %s: %w", client.ObjectKeyFromObject(bmh), err)
	}
	return nil
}
