package nodehealthcheck

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/health"
)

const (
	// conflicted is how long to wait for the cache after somebody else wrote first.
	conflicted = 200 * time.Millisecond
	// retryAtMost is the longest time between two tries of what goes on failing.
	retryAtMost = time.Minute
)

// next says when to look again: at the first moment at which time alone changes something, and sooner if something failed. What failed is
// logged here and not returned, so that it holds up the deadlines of no other node.
func (r *Reconciler) next(ctx context.Context, w *world, s summary, outcomes []outcome, recordErr error) (ctrl.Result, error) {
	errs, retry := append([]error(nil), w.trouble...), apierrors.IsConflict(recordErr)
	if recordErr != nil && !retry {
		errs = append(errs, recordErr)
	}
	at := health.Earliest(w.recheck, s.storm.Recheck)
	for i := range outcomes {
		o := &outcomes[i]
		if o.err != nil {
			errs = append(errs, o.err)
		}
		retry = retry || o.again
		at = health.Earliest(at, o.recheck)
	}
	if r.Resync > 0 {
		at = health.Earliest(at, w.now.Add(r.Resync))
	}
	if tries := r.memory.tries(w.check.Name, len(errs) > 0 || retry); tries > 0 {
		at = health.Earliest(at, w.now.Add(min(conflicted<<min(tries-1, 16), retryAtMost)))
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "A pass did not get through; it is repeated")
	}
	if at.IsZero() {
		return ctrl.Result{}, nil
	}
	// The priority is that of an event: without it a check that was queued by the first list would stay behind all others for ever.
	return ctrl.Result{RequeueAfter: max(at.Sub(r.Clock.Now()), time.Millisecond), Priority: ptr.To(0)}, nil
}

// tries counts the passes in a row that did not get through, with this one.
func (m *memory) tries(check string, failed bool) int {
	is := m.of(check)
	if !failed {
		is.failed = 0
		return 0
	}
	is.failed++
	return is.failed
}
