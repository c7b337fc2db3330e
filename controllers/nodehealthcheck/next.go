package nodehealthcheck

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// next says when to look again: at the first moment at which time alone changes something, and sooner if something failed. What failed is
// logged here and not returned, so that it holds up the deadlines of no other node.
func (r *Reconciler) next(ctx context.Context, w *observed, s plan, outcomes []outcome, recordErr error) (ctrl.Result, error) {
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
		at = health.Earliest(at, w.now.Add(enqueue.Backoff(tries)))
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Reconcile failed, retrying")
	}
	return enqueue.At(at, r.Clock.Now()), nil
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
