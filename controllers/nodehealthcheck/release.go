package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/wake"
)

// slowRead is after how long a kind that cannot be read is an error, and no longer only slow.
const slowRead = 30 * time.Second

// await waits for kinds of requests that were not read yet: they would be taken for none.
func (r *Reconciler) await(check string, now time.Time) (ctrl.Result, error) {
	is := r.memory.of(check)
	if is.unread.IsZero() {
		is.unread = now
	}
	if took := now.Sub(is.unread); took > slowRead {
		return ctrl.Result{}, fmt.Errorf("a kind that NodeHealthCheck %s needs could not be read for %s; nothing is decided until it is",
			check, took.Round(time.Second))
	}
	return ctrl.Result{RequeueAfter: wake.MergeWindow}, nil
}

// releaseRetry is how soon what a deleted check has left behind is looked at again.
const releaseRetry = 15 * time.Second

// release ends what a check that is gone has left behind: its requests, of which the garbage collector of Kubernetes leaves those that a
// Machine owns as well, and then its leases. Of requests of kinds that were never read since the manager was started nothing is known.
func (r *Reconciler) release(ctx context.Context, name string, now time.Time) (ctrl.Result, error) {
	left := 0
	var errs []error
	for _, kind := range r.Kinds.InUse() {
		if !isRequest(kind) {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, fmt.Errorf("list %s: %w", kind.Kind, err)
		}
		all, _ := r.memory.written.merge(kind, list.Items, now)
		for _, obj := range all {
			if !madeBy(obj, name) {
				continue
			}
			left++
			if obj.GetDeletionTimestamp() == nil {
				errs = append(errs, r.Requests.Delete(ctx, metadataOf(obj)))
				r.memory.written.forget(obj.GetUID())
			}
		}
	}
	if left > 0 || errors.Join(errs...) != nil {
		return ctrl.Result{RequeueAfter: releaseRetry}, errors.Join(errs...)
	}
	return ctrl.Result{}, r.giveAllBack(ctx, name)
}

// giveAllBack deletes the leases that a check holds.
func (r *Reconciler) giveAllBack(ctx context.Context, name string) error {
	list := &coordinationv1.LeaseList{}
	if err := r.Client.List(ctx, list, client.InNamespace(r.LeaseNamespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the leases in %s: %w", r.LeaseNamespace, err)
	}
	var errs []error
	for i := range list.Items {
		if l := &list.Items[i]; ptr.Deref(l.Spec.HolderIdentity, "") == nhcv1.LeaseHolderPrefix+name {
			errs = append(errs, r.giveBack(ctx, l))
		}
	}
	return errors.Join(errs...)
}

// madeBy reports whether a check of that name owns obj.
func madeBy(obj metav1.Object, name string) bool {
	for _, o := range obj.GetOwnerReferences() {
		if o.Kind == "NodeHealthCheck" && o.Name == name && o.APIVersion == nhcv1.GroupVersion.String() {
			return true
		}
	}
	return false
}
