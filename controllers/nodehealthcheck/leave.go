package nodehealthcheck

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const leavingMessage = "kubemend is being removed: nobody acts on this check, its remediations are deleted and its leases given back"

// leave ends what the check called name has begun, as if it were deleted, and has the check say that nobody acts on it any more. A request
// without its check would be waited for by nobody, and its remediator would go on for ever. (docs/adr/0023-leaving-is-a-mode.md)
func (r *Reconciler) leave(ctx context.Context, name string, now time.Time) (ctrl.Result, error) {
	check := &nhcv1.NodeHealthCheck{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, check)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read NodeHealthCheck %s: %w", name, err)
	}
	if err == nil {
		ready, readErr := r.readListed(ctx, check)
		if readErr != nil || !ready {
			return ctrl.Result{RequeueAfter: enqueue.MergeWindow}, readErr
		}
		r.memory.leave(check)
	}
	result, releaseErr := r.release(ctx, name, now)
	if err != nil || releaseErr != nil {
		return result, releaseErr
	}
	w := &observed{check: check, facts: factsOf(check, now)}
	open, _ := r.searching()
	err = r.record(ctx, w, left(w, open == "" && !r.memory.remembersLeft(name)))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	was := conditionOf(check, nhcv1.DisabledCondition)
	if err == nil && (was == nil || was.Reason != nhcv1.LeavingReason) {
		r.send(ctx, w, []recorder.Event{{Kind: corev1.EventTypeWarning, Reason: nhcv1.EventDisabled, Action: "Leave", Text: leavingMessage}})
	}
	return result, err
}

// readListed watches the kinds of the requests that the status of check lists, and reports whether they can be read: those whose mark was taken
// off are found by no search. Kinds that are gone, or may not be listed, hold nothing of ours.
func (r *Reconciler) readListed(ctx context.Context, check *nhcv1.NodeHealthCheck) (bool, error) {
	all := true
	for _, is := range statusByUID(check) {
		ready, err := r.Kinds.Ready(ctx, is.remediation.Resource.GroupVersionKind())
		if remediationrequest.Missing(err) || apierrors.IsForbidden(err) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("read the requests of NodeHealthCheck %s: %w", check.Name, err)
		}
		all = all && ready
	}
	return all, nil
}

// left is what a check says that nobody acts on any more. Its nodes are listed until their requests are gone: the list may be all that says
// whose these are.
func left(w *observed, gone bool) *nhcv1.NodeHealthCheck {
	next := w.check.DeepCopy()
	if gone {
		next.Status.UnhealthyNodes, next.Status.InFlightRemediations = nil, nil
	}
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: nhcv1.LeavingReason, Message: leavingMessage,
		LastTransitionTime: metav1.NewTime(w.facts.Now.Truncate(time.Second)),
	})
	next.Status.Phase, next.Status.Reason = explain.NodePhase(next.Status.Conditions, next.Spec.PauseRequests, -1)
	return next
}

// leave remembers the requests that the status of check tells of: they need not say themselves whose they are.
func (m *memory) leave(check *nhcv1.NodeHealthCheck) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, is := range statusByUID(check) {
		if m.left == nil {
			m.left = map[string]map[types.UID]ongoing{}
		}
		if m.left[check.Name] == nil {
			m.left[check.Name] = map[types.UID]ongoing{}
		}
		m.left[check.Name][uid] = ongoing{node: is.node}
	}
}

// remembersLeft reports whether there are requests of a check that is not looked after any more.
func (m *memory) remembersLeft(check string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.left[check]) > 0
}
