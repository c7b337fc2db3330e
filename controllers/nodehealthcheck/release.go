package nodehealthcheck

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// releaseRetry is how soon what a deleted check has left behind is looked at again.
const releaseRetry = 15 * time.Second

// release ends what a check that is gone has left behind: its requests, of which the garbage collector of Kubernetes leaves those that a
// Machine owns as well, and then its leases. Of requests of kinds that were never read since the manager was started nothing is known.
func (r *Reconciler) release(ctx context.Context, name string, now time.Time) (ctrl.Result, error) {
	left := 0
	var errs []error
	for _, kind := range r.requestKinds() {
		list, err := r.list(ctx, kind)
		if err != nil {
			return ctrl.Result{}, err
		}
		all, _ := r.memory.written.merge(kind, list, now)
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
	leases, err := r.listLeases(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for i := range leases {
		if l := &leases[i]; heldBy(l, nhcv1.LeaseHolderPrefix+name) {
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
