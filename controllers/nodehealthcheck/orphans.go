package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
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
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// releaseRetry is how soon the orphaned requests of a deleted check are read again. The end of a request enqueues it sooner, unless its
// remediator took off whose it was.
const releaseRetry = time.Minute

// release ends what a check that is gone has left behind: its requests, and when the last one for a node is gone its lease. Until then the
// lease is kept, as by a check that is there: a remediator that keeps its request may be at work.
func (r *Reconciler) release(ctx context.Context, name string, now time.Time) (ctrl.Result, error) {
	w, err := r.observeLeft(ctx, name, now)
	if w == nil || err != nil {
		return ctrl.Result{}, err
	}
	plan := nodes.Release(w.facts, r.Leaving)
	at := plan.Recheck
	if len(w.requests.ours) > 0 {
		at = health.Earliest(at, now.Add(releaseRetry))
	} else {
		r.memory.released(name)
	}
	var errs []error
	for _, o := range r.carryOut(ctx, w, &plan) {
		errs = append(errs, o.err)
		at = health.Earliest(at, o.retryAt)
		if o.again {
			at = health.Earliest(at, now.Add(enqueue.Conflicted))
		}
		for _, j := range o.ended {
			log.FromContext(ctx).Info("Reported an event", "reason", nhcv1.EventRemediationRemoved,
				"note", fmt.Sprintf("Deleted %s: nobody acts on the check that made it", o.n.Requests[j].Ref))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, fmt.Errorf("release what NodeHealthCheck %s has left behind: %w", name, err)
	}
	return enqueue.At(at, r.Clock.Now()), nil
}

// observeLeft reads what the check called name has left behind. It returns nil if there is such a check after all: the cache of checks may
// lag behind that of requests, and would make one that was made a moment ago nobody's.
func (r *Reconciler) observeLeft(ctx context.Context, name string, now time.Time) (*observed, error) {
	if gone, err := r.gone(ctx, name); !gone || err != nil {
		return nil, err // the cache will show it, and that enqueues it
	}
	check := &nhcv1.NodeHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: name}}
	w := &observed{check: check, facts: factsOf(check, now)}
	w.requests.ours = map[string][]*found{}
	for _, kind := range r.requestKinds() {
		list, _, err := r.listRequests(ctx, kind)
		if err != nil {
			return nil, err
		}
		if err := r.upToDate(ctx, kind, list); err != nil {
			return nil, err
		}
		for i := range list {
			if node, left := r.leftBy(name, &list[i]); left {
				w.requests.ours[node] = append(w.requests.ours[node], &found{obj: &list[i], step: -1})
			}
		}
	}
	if err := r.observeLeases(ctx, w); err != nil {
		return nil, err
	}
	all, err := r.observeUnfinished(ctx, w, nil, map[string]bool{})
	if err != nil {
		return nil, err
	}
	w.attach(all)
	return w, nil
}

// gone reports whether there is no check called name, or none that counts any more: who leaves looks after none.
func (r *Reconciler) gone(ctx context.Context, name string) (bool, error) {
	if r.Leaving {
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

// leftBy reports whether the check called name, of which there is none any more, made obj, and for which node. Of what does not say any more
// who made it, the last reconcile of that check knew.
func (r *Reconciler) leftBy(name string, obj *unstructured.Unstructured) (node string, left bool) {
	by := makerOf(obj)
	was, known := r.memory.leftBy(name, obj.GetUID())
	if by.Name != name && (by.Name != "" || !known) {
		return "", false
	}
	return cmp.Or(nodeOf(obj), was.node, obj.GetName()), true
}

// endOrphaned ends what a check of the same name has left behind. Each of them is deleted once, and gone when its remediator releases it.
func (r *Reconciler) endOrphaned(ctx context.Context, w *observed) []error {
	var errs []error
	for _, left := range w.requests.orphaned {
		for _, obj := range left {
			if obj.GetDeletionTimestamp() != nil {
				continue
			}
			if err := r.Requests.Delete(ctx, metadataOf(obj)); err != nil {
				errs = append(errs, err)
			}
		}
	}
	return errs
}

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
	if err == nil && (was == nil || was.Reason != nhcv1.TeardownReason) {
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
		Type: nhcv1.DisabledCondition, Status: metav1.ConditionTrue, Reason: nhcv1.TeardownReason, Message: leavingMessage,
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

// searchRetry is how soon kinds are searched again that could not be.
const searchRetry = 15 * time.Second

// search is the search, at the start, for kinds of requests that no check names any more: one that was deleted while nobody ran has left
// requests behind, whose remediators may be at work.
type search struct{ tried, done atomic.Bool }

// open is why it is not known whose remediations are under way: the search is not over. It is empty if it is. Until it was tried for the
// first time that is no more than a moment, and nothing to report.
func (s *search) open() (why string, brief bool) {
	if s.done.Load() {
		return "", false
	}
	return "requests that were left behind could not be searched for", !s.tried.Load()
}

// searching is likewise why it is not known: without a manager there is no search, and nothing that it could find.
func (r *Reconciler) searching() (why string, brief bool) {
	if r.Discovery == nil {
		return "", false
	}
	return r.search.open()
}

// searchLeftovers searches until it could look everywhere.
func (r *Reconciler) searchLeftovers(ctx context.Context) error {
	r.memory.begin(r.Clock.Now()) // the first check may come much later
	// It ends with success or with the manager; neither is an error.
	_ = wait.PollUntilContextCancel(ctx, searchRetry, true, func(ctx context.Context) (bool, error) {
		err := r.searchOnce(ctx)
		if err != nil {
			log.FromContext(ctx).Error(err, "Cannot search everywhere for requests that NodeHealthChecks have left behind")
		}
		r.enqueueAll()
		return err == nil, nil
	})
	return nil
}

// searchOnce watches all kinds of which there are requests that a NodeHealthCheck made. Groups of APIs that are not served now are in the
// error, but do not keep the search open: they are those of other API servers, a metrics server for one, which may run on the very node that
// is bad. Requests are of CustomResourceDefinitions, which the API server itself serves.
func (r *Reconciler) searchOnce(ctx context.Context) error {
	lists, err := r.Discovery.ServerPreferredResources()
	_, others := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil {
		err = fmt.Errorf("discover kinds of remediation requests: %w", err)
	}
	failed := r.Watches.Discover(ctx, lists, remediationrequest.NodeChecksMarks()...)
	r.search.tried.Store(true)
	if failed == nil && (err == nil || others) {
		r.search.done.Store(true)
	}
	return errors.Join(err, failed)
}
