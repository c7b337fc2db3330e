package simulator

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// stuckAgain is the interval of reading a volume that must not be detached yet; there is no event when that changes.
const stuckAgain = 100 * time.Millisecond

// Attacher plays the external attacher of every CSI driver in a workload cluster: what kube-controller-manager asks to
// be attached is attached, and what it asks to be detached goes, unless volumes are stuck.
type Attacher struct {
	manager ctrl.Manager
	client  client.Client
	stuck   atomic.Bool
}

// NewAttacher makes an attacher for a workload cluster; Start starts it.
func NewAttacher(workload *rest.Config) (*Attacher, error) {
	manager, err := newManager(workload)
	if err != nil {
		return nil, err
	}
	a := &Attacher{manager: manager, client: manager.GetClient()}
	if err := ctrl.NewControllerManagedBy(manager).Named("attacher").For(&storagev1.VolumeAttachment{}).Complete(a); err != nil {
		return nil, fmt.Errorf("set up the simulated attacher: %w", err)
	}
	return a, nil
}

// Start runs the attacher until the context ends.
func (a *Attacher) Start(ctx context.Context) error {
	if err := a.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the simulated attacher: %w", err)
	}
	return nil
}

// Stick makes it detach nothing more, or go on detaching.
func (a *Attacher) Stick(stuck bool) { a.stuck.Store(stuck) }

// Reconcile attaches or detaches one volume.
func (a *Attacher) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	attachment := &storagev1.VolumeAttachment{}
	if err := a.client.Get(ctx, request.NamespacedName, attachment); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	finalizer := "external-attacher/" + attachment.Spec.Attacher
	before := attachment.DeepCopy()
	if !attachment.DeletionTimestamp.IsZero() {
		if a.stuck.Load() {
			return ctrl.Result{RequeueAfter: stuckAgain}, nil
		}
		if controllerutil.RemoveFinalizer(attachment, finalizer) {
			return ctrl.Result{}, a.written("detach", attachment, a.client.Patch(ctx, attachment, client.MergeFrom(before)))
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(attachment, finalizer) {
		if err := a.client.Patch(ctx, attachment, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, a.written("attach", attachment, err)
		}
	}
	if attachment.Status.Attached {
		return ctrl.Result{}, nil
	}
	before = attachment.DeepCopy()
	attachment.Status.Attached = true
	return ctrl.Result{}, a.written("attach", attachment, a.client.Status().Patch(ctx, attachment, client.MergeFrom(before)))
}

func (a *Attacher) written(what string, attachment *storagev1.VolumeAttachment, err error) error {
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("%s a volume at node %s: %w", what, attachment.Spec.NodeName, err))
	}
	return nil
}
