package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Requests and leases are orphaned when their check is deleted, also while no manager ran, and when kubemend is uninstalled. A request
// without its check is waited for by no controller, and its remediator would go on for ever.

const (
	// releaseRetry is how soon orphaned requests are read again whose remediator has removed the mark of the check: nothing tells their
	// end.
	releaseRetry = time.Minute
	searchRetry  = 15 * time.Second
)

// release ends what the check called name began, which is gone.
func (r *Reconciler) release(ctx context.Context, name string, now time.Time) (ctrl.Result, error) {
	r.forget(name)
	result, _, err := r.endOrphans(ctx, name, nil, now)
	return result, err
}

// endOrphans ends the requests of the check called name, and when the last one for a node is gone its lease: a remediator that keeps its
// request may be at work. Listed is what the status of the check says, if that is there. It returns whether requests are left.
func (r *Reconciler) endOrphans(ctx context.Context, name string, listed map[types.UID]*listed, now time.Time) (ctrl.Result, bool, error) {
	state, err := r.observeOrphans(ctx, name, listed, now)
	if errors.Is(err, consistency.ErrStale) {
		return ctrl.Result{RequeueAfter: staleFor}, true, nil
	}
	if err != nil {
		return ctrl.Result{}, true, err
	}
	if state == nil {
		return ctrl.Result{}, false, nil
	}
	plan, left := Release(state.facts, r.Teardown), slices.ContainsFunc(state.facts.Nodes, func(n Node) bool { return len(n.Requests) > 0 })
	at := plan.Recheck
	if left {
		at = health.Earliest(at, now.Add(releaseRetry))
	} else {
		r.memory.checks.Delete(name)
	}
	var errs []error
	for _, o := range r.carryOut(ctx, state, &plan) {
		errs = append(errs, o.err)
		if o.again {
			at = health.Earliest(at, now.Add(enqueue.Conflicted))
		}
		for _, j := range o.ended {
			log.FromContext(ctx).Info("Reported an event", "reason", nhcv1.EventRemediationRemoved, "note",
				fmt.Sprintf("Deleted %s: no controller acts on the check that made it", o.n.Requests[j].Ref()))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, left, fmt.Errorf("release the orphaned requests of NodeHealthCheck %s: %w", name, err)
	}
	return enqueue.At(at, r.Clock.Now()), left, nil
}

// observeOrphans reads the requests and leases of the check called name. It returns nil if there is such a check after all: the cache of
// checks may lag behind that of requests.
func (r *Reconciler) observeOrphans(ctx context.Context, name string, listed map[types.UID]*listed, now time.Time) (*observed, error) {
	if gone, err := r.gone(ctx, name); !gone || err != nil {
		return nil, err // the cache will show it, and that enqueues it
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	state := newObserved(check, FactsOf(check, now))
	state.released = true
	orphans := r.memory.of(name).orphans
	err := r.listAll(ctx, state, func(obj *unstructured.Unstructured) {
		maker, known := makerOf(obj), orphans[obj.GetUID()].node
		if entry := listed[obj.GetUID()]; entry != nil {
			known = entry.node
		}
		if maker.Name == name || maker.Name == "" && known != "" {
			n := state.node(cmp.Or(nodeOf(obj), known, obj.GetName()))
			n.Requests = append(n.Requests, Request{Object: obj, Step: -1})
		}
	})
	if err != nil {
		return nil, err
	}
	if err := r.observeLeases(ctx, state); err != nil {
		return nil, err
	}
	return state, r.observeUnfinished(ctx, state)
}

// gone reports whether there is no check called name, or none that counts any more: a teardown acts on none.
func (r *Reconciler) gone(ctx context.Context, name string) (bool, error) {
	if r.Teardown {
		return true, nil
	}
	check := &nhcv1.NodeHealthCheck{}
	err := r.Live.Get(ctx, client.ObjectKey{Name: name}, check)
	switch {
	case remediationrequest.Missing(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("make sure that NodeHealthCheck %s is gone: %w", name, err)
	}
	return !check.DeletionTimestamp.IsZero(), nil
}

// tearDown ends what the check called name has begun, as if it were deleted, and has the check say that kubemend acts on it no more.
func (r *Reconciler) tearDown(ctx context.Context, name string, check *nhcv1.NodeHealthCheck, now time.Time) (ctrl.Result, error) {
	state := &observed{check: check}
	var listed map[types.UID]*listed
	if check != nil {
		listed, state.facts = statusByUID(check), FactsOf(check, now)
		for _, remediation := range remediations(check) { // no search finds a request that has lost its mark
			kind := remediation.Resource.GroupVersionKind()
			if err := r.await(ctx, state, kind); err != nil && !apierrors.IsForbidden(err) {
				return ctrl.Result{}, fmt.Errorf("read the %s of NodeHealthCheck %s: %w", kind.Kind, name, err)
			}
		}
		if len(state.facts.Awaited) > 0 {
			return ctrl.Result{RequeueAfter: enqueue.MergeWindow}, r.watch(ctx, state.facts.Awaited)
		}
	}
	result, left, err := r.endOrphans(ctx, name, listed, now)
	if err != nil || check == nil {
		return result, err
	}
	err = r.record(ctx, state, state.dropped(r.searchedFor() == searched && !left))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	if cond := conditionOf(check, nhcv1.DisabledCondition); err == nil && (cond == nil || cond.Reason != nhcv1.TeardownReason) {
		r.send(ctx, state, []recorder.Event{{Kind: corev1.EventTypeWarning, Reason: nhcv1.EventDisabled, Action: "Teardown",
			Text: TeardownMessage}})
	}
	return result, err
}

// dropped is what a check says on which kubemend acts no more. The list of its nodes may be all that says which check made their requests.
func (state *observed) dropped(gone bool) *nhcv1.NodeHealthCheck {
	next := state.check.DeepCopy()
	if gone {
		next.Status.UnhealthyNodes, next.Status.InFlightRemediations = nil, nil
	}
	meta.SetStatusCondition(&next.Status.Conditions, metav1.Condition{
		Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: nhcv1.TeardownReason, Message: TeardownMessage,
		LastTransitionTime: metav1.NewTime(state.facts.Now.Truncate(time.Second)),
	})
	next.Status.Phase, next.Status.Reason = Phase(next.Status.Conditions, next.Spec.PauseRequests, -1)
	return next
}

// searchState is how far the search for kinds of requests is that no check names any more, as their check was deleted while no manager ran.
type searchState int32

const (
	searching    searchState = iota // it was not tried yet, which takes no more than a moment
	searchFailed                    // and is repeated
	searched
)

// searchedFor is searched without a manager: then there are no orphans to be found.
func (r *Reconciler) searchedFor() searchState {
	if r.Discovery == nil {
		return searched
	}
	return searchState(r.search.Load())
}

// searchOrphans searches until it could look everywhere.
func (r *Reconciler) searchOrphans(ctx context.Context) error {
	now := r.Clock.Now()
	r.memory.began.CompareAndSwap(nil, &now) // the first check may come much later
	select {
	case <-r.started:
	case <-ctx.Done():
		return nil
	}
	// It ends with success or with the manager; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, searchRetry, true, func(ctx context.Context) (bool, error) {
		err := r.searchOnce(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot search everywhere for orphaned requests of NodeHealthChecks")
		}
		r.enqueueAll()
		return err == nil, nil
	})
	return nil
}

// searchOnce watches all kinds of which there are requests that a NodeHealthCheck made. Groups that are not served now do not keep the
// search open: other API servers serve them, such as a metrics server on the very node that is unhealthy.
func (r *Reconciler) searchOnce(ctx context.Context) error {
	lists, err := r.Discovery.ServerPreferredResources()
	_, others := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil {
		err = fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	failed := r.Watches.Discover(ctx, lists, remediationrequest.NodeChecksMarks()...)
	if failed == nil && (err == nil || others) {
		r.search.Store(int32(searched))
	} else {
		r.search.CompareAndSwap(int32(searching), int32(searchFailed))
	}
	return errors.Join(err, failed)
}
