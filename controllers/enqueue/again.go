package enqueue

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// Conflicted is how long to wait for the cache after a conflict with the write of another client.
	Conflicted = 200 * time.Millisecond
	// RetryAtMost is the longest time between two tries.
	RetryAtMost = time.Minute
)

// Retries returns a rate limiter for reconciles that return an error: it waits for first, then twice as long each time, up to RetryAtMost.
func Retries(first time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, RetryAtMost)
}

// Backoff returns how long to wait after so many failed tries in a row. It doubles with each try, up to RetryAtMost.
func Backoff(tries int) time.Duration {
	return min(Conflicted<<min(tries-1, 16), RetryAtMost)
}

// At returns a result that repeats the reconcile at this time; if it is zero, only an event does. The priority is that of an event, because
// otherwise an object would keep the low priority that it got from the first list.
func At(at, now time.Time) ctrl.Result {
	if at.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(at.Sub(now), time.Millisecond), Priority: ptr.To(0)}
}
