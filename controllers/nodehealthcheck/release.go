package nodehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/enqueue"
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
