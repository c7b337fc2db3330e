package nodehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// slowRead is after how long a kind that cannot be read is an error, and no longer only slow.
const slowRead = 30 * time.Second

// await waits for kinds that were not read yet: their objects would be taken for none. When it takes too long the check says so.
func (r *Reconciler) await(ctx context.Context, w *observed) (ctrl.Result, error) {
	is := r.memory.of(w.check.Name)
	if is.unread.IsZero() {
		is.unread = w.now
	}
	if w.now.Sub(is.unread) <= slowRead {
		return ctrl.Result{RequeueAfter: enqueue.MergeWindow}, nil
	}
	return ctrl.Result{}, errors.Join(fmt.Errorf("decide about NodeHealthCheck %s: %s", w.check.Name, pendingMessage(w)), r.record(ctx, w, awaiting(w)))
}

// awaiting is what a check says that waits for long.
func awaiting(w *observed) *nhcv1.NodeHealthCheck {
	next := w.check.DeepCopy()
	set(w, &next.Status, metav1.Condition{
		Type: nhcv1.RemediationAllowedCondition, Status: metav1.ConditionFalse, Reason: nhcv1.KindUnreadReason, Message: pendingMessage(w),
	})
	return next
}

// pendingMessage says what a check waits for.
func pendingMessage(w *observed) string {
	kinds := make([]string, 0, len(w.pending))
	for _, kind := range w.pending {
		kinds = append(kinds, kind.GroupKind().String())
	}
	slices.Sort(kinds)
	return "Nothing is decided until all objects of these kinds were read, which the API server has not allowed so far: " + strings.Join(kinds, ", ")
}
