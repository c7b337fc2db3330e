package machinehealthcheck

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// next says when to look again: at the first moment at which time alone changes something, and sooner if something failed.
//
// What failed is logged here and not returned. An error that is returned makes the queue drop every other moment, and
// one machine that cannot be written would hold up the deadlines of all others.
func (r *Reconciler) next(ctx context.Context, w *observed, p plan, done applied) (ctrl.Result, error) {
	errs, retry := append([]error(nil), w.trouble...), false
	for _, err := range append(errorsOf(done.outcomes), done.err) {
		if apierrors.IsConflict(err) {
			retry = true
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	for _, o := range done.outcomes {
		retry = retry || o.again
	}
	at := health.Earliest(w.recheck, p.VerdictsUntil)
	if w.mode == acting {
		at = health.Earliest(at, p.Recheck)
	}
	at = health.Earliest(at, done.statusDue)
	if r.Resync > 0 {
		at = health.Earliest(at, w.now.Add(r.Resync))
	}
	tries := r.memory.tries(client.ObjectKeyFromObject(w.check), len(errs) > 0 || retry)
	if tries > 0 {
		at = health.Earliest(at, w.now.Add(enqueue.Backoff(tries)))
	}
	if err := errors.Join(errs...); err != nil {
		log.FromContext(ctx).Error(err, "Reconcile failed, retrying", "tries", tries)
	}
	return enqueue.At(at, r.Clock.Now()), nil
}

func errorsOf(outcomes []outcome) []error {
	errs := make([]error, 0, len(outcomes)+1)
	for _, o := range outcomes {
		errs = append(errs, o.err)
	}
	return errs
}
