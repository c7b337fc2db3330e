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

// Requests and leases are orphaned when their check is deleted, also while no manager runs, and when kubemend is uninstalled. Without this
// file no controller would delete an orphaned request, and its remediator would go on forever.

const (
	// releaseRetry is how soon to read orphaned requests again: if a remediator has removed a request's labels, no watch shows its end.
	releaseRetry = time.Minute
	searchRetry  = 15 * time.Second
)

// endOrphans deletes the requests of the check called name. It deletes the lease on a node after the last request for the node is gone,
// because until then its remediator may work. Listed has the requests in the check's status, if the check still exists. It returns whether
// requests are left.
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
		for j := range o.Requests {
			if o.Requests[j].ended {
				log.FromContext(ctx).Info("Reported an event", "reason", nhcv1.EventRemediationRemoved, "note",
					fmt.Sprintf("Deleted %s: no controller acts on the check that made it", o.Requests[j].ref()))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, left, fmt.Errorf("release the orphaned requests of NodeHealthCheck %s: %w", name, err)
	}
	return enqueue.At(at, r.Clock.Now()), left, nil
}

// observeOrphans reads the requests and leases of the check called name. It returns nil if the check exists after all, because the cache of
// checks may be behind that of requests.
func (r *Reconciler) observeOrphans(ctx context.Context, name string, listed map[types.UID]*listed, now time.Time) (*observed, error) {
	if gone, err := r.gone(ctx, name); !gone || err != nil {
		return nil, err // the check is enqueued when the cache shows it
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

// gone reports whether the check called name does not exist or is being deleted. During a teardown all checks count as gone.
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

// tearDown deletes the requests and leases of the check called name, as if the check were deleted, and writes into its status that kubemend
// does not act on it any more.
func (r *Reconciler) tearDown(ctx context.Context, name string, check *nhcv1.NodeHealthCheck, now time.Time) (ctrl.Result, error) {
	state := &observed{check: check}
	var listed map[types.UID]*listed
	if check != nil {
		listed, state.facts = statusByUID(check), FactsOf(check, now)
		for _, remediation := range remediations(check) { // the search does not find a request that has lost its labels
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
	err = r.record(ctx, state, state.dropped(r.orphansKnown() && !left))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	}
	if cond := conditionOf(check, nhcv1.DisabledCondition); err == nil && (cond == nil || cond.Reason != nhcv1.TeardownReason) {
		r.send(ctx, state, []recorder.Event{{Kind: corev1.EventTypeWarning, Reason: nhcv1.EventDisabled, Action: "Teardown",
			Text: TeardownMessage}})
	}
	return result, err
}

// dropped returns the check with the status for a teardown. The list of nodes is kept until all requests are gone, because it may be the
// only evidence that the check created them.
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

// orphansKnown reports whether the search for requests of kinds that no check names any more is over. Their check was deleted while no
// manager ran. Without a manager there is no search.
func (r *Reconciler) orphansKnown() bool { return r.Discovery == nil || r.searched.Load() }

// searchOrphans repeats searchOnce until it succeeds, and then enqueues all checks.
func (r *Reconciler) searchOrphans(ctx context.Context) error {
	now := r.Clock.Now()
	r.memory.began.CompareAndSwap(nil, &now) // the first check may be created much later
	select {
	case <-r.started:
	case <-ctx.Done():
		return nil
	}
	// The poll ends with success or when the manager stops; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, searchRetry, true, func(ctx context.Context) (bool, error) {
		if err := r.searchOnce(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot search for orphaned requests of NodeHealthChecks")
			return false, nil
		}
		r.enqueueAll()
		return true, nil
	})
	return nil
}

// searchOnce watches all kinds with requests that a NodeHealthCheck created. It ignores API groups whose discovery fails: they belong to
// aggregated API servers, such as a metrics server, which may be down because of the unhealthy node, but requests are objects of CRDs.
func (r *Reconciler) searchOnce(ctx context.Context) error {
	lists, err := r.Discovery.ServerPreferredResources() // returns the readable groups even with an error
	if discovery.IsGroupDiscoveryFailedError(err) {
		log.FromContext(ctx).Info("Searched for orphaned requests, but not in all groups of the API", "reason", err.Error())
		err = nil
	}
	if err = errors.Join(err, r.Watches.Discover(ctx, lists, remediationrequest.NodeChecksMarks()...)); err != nil {
		return fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	r.searched.Store(true)
	return nil
}
