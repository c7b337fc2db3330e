package simulator

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// hostWorkers is how many hosts are looked at in parallel.
const hostWorkers = 20

// operator plays the controller of the Bare Metal Operator.
type operator struct {
	*Hosts
	client client.Client
	// live reads past the cache: what we wrote ourselves a moment ago must be seen.
	live   client.Reader
	events events.EventRecorder
}

func (o *operator) setUp(manager ctrl.Manager) error {
	o.events = manager.GetEventRecorder("simulated-baremetal-operator")
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

// outlook is when a host is looked at again if nothing is heard of it. The zero value is never.
type outlook struct {
	again bool
	after time.Duration
}

func (l outlook) result() ctrl.Result {
	if l.again {
		return ctrl.Result{RequeueAfter: time.Nanosecond} // the next pass, and not a back-off
	}
	return ctrl.Result{RequeueAfter: l.after}
}

// Reconcile looks at one BareMetalHost, as BMO does: it follows what is really so, and then does one thing.
func (o *operator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := o.live.Get(ctx, request.NamespacedName, bmh); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, paused := bmh.Annotations[bmov1alpha1.PausedAnnotation]; paused || movedAway(bmh) {
		return ctrl.Result{}, nil
	}
	before := bmh.DeepCopy()
	if kept, has := bmh.Annotations[bmov1alpha1.StatusAnnotation]; has {
		delete(bmh.Annotations, bmov1alpha1.StatusAnnotation)
		if err := restore(bmh, kept); err != nil {
			return ctrl.Result{}, reconcile.TerminalError(fmt.Errorf("restore the status of host %s: %w", request.NamespacedName, err))
		}
	}
	host := o.Host(request.NamespacedName)
	var next outlook
	if bmh.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(bmh, bmov1alpha1.BareMetalHostFinalizer)
		next = host.advance(bmh, time.Now())
	} else {
		next = host.remove(bmh)
	}
	if err := o.save(ctx, bmh, before); err != nil {
		if apierrors.IsConflict(err) {
			return outlook{again: true}.result(), nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	o.tell(bmh, before)
	return next.result(), nil
}

// movedAway tells that clusterctl deletes an object only because it has moved it. All other annotations, that of a pause among them, are gone.
func movedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved
}

// restore gives a host that came from another management cluster the status that it had there: clusterctl moves none. Whoever paused the
// host wrote it down.
func restore(bmh *bmov1alpha1.BareMetalHost, kept string) error {
	if !bmh.Status.LastUpdated.IsZero() {
		return nil // it was paused, and not moved
	}
	return json.Unmarshal([]byte(kept), &bmh.Status)
}

// save takes annotations away before it tells the state in which they are gone.
func (o *operator) save(ctx context.Context, bmh, before *bmov1alpha1.BareMetalHost) error {
	status := bmh.Status.DeepCopy()
	if !equality.Semantic.DeepEqual(bmh.ObjectMeta, before.ObjectMeta) {
		bmh.Status = before.Status
		if err := o.client.Patch(ctx, bmh, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write host %s: %w", client.ObjectKeyFromObject(bmh), err)
		}
	}
	bmh.Status = *status
	if equality.Semantic.DeepEqual(bmh.Status, before.Status) {
		return nil
	}
	now := metav1.Now()
	bmh.Status.LastUpdated = &now
	if err := o.client.Status().Update(ctx, bmh); err != nil {
		return fmt.Errorf("write the status of host %s: %w", client.ObjectKeyFromObject(bmh), err)
	}
	return nil
}

// tell reports an error that is new, after it was saved.
func (o *operator) tell(bmh, before *bmov1alpha1.BareMetalHost) {
	if bmh.Status.ErrorCount <= before.Status.ErrorCount {
		return
	}
	reason := "ProvisioningError"
	if bmh.Status.ErrorType == bmov1alpha1.PowerManagementError {
		reason = "PowerManagementError"
	}
	o.events.Eventf(bmh, nil, corev1.EventTypeWarning, reason, "Manage", "%s", bmh.Status.ErrorMessage)
}
