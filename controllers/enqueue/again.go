package enqueue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Conflicted is how long to wait for the cache after somebody else wrote first.
	Conflicted = 200 * time.Millisecond
	// RetryAtMost is the longest time between two tries of what goes on failing.
	RetryAtMost = time.Minute
)

// Retries is how soon a reconcile is repeated that could not even observe: the first time after the given time, and then ever rarer.
func Retries(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, RetryAtMost)
}

// Backoff is how soon a reconcile is repeated of which something failed, after so many tries in a row; it doubles with each of them.
func Backoff(tries int) time.Duration {
	return min(Conflicted<<min(tries-1, 16), RetryAtMost)
}

// At makes the moment of the next reconcile a result; a zero moment means: only when an event comes. The priority is that of an event:
// without it an object that was queued by the first list would stay behind all others for ever.
func At(at, now time.Time) ctrl.Result {
	if at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(at.Sub(now), time.Millisecond), Priority: ptr.To(0)}
}
