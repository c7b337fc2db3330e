package nodehealthcheck

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// written are the requests that this process wrote, by kind. A cache that lags behind shows a request as it was, or not at all, and a reconcile
// that believed it would do everything once more: take a second control-plane node down, for one.
type written struct {
	mu    sync.Mutex
	kinds map[schema.GroupKind]*consistency.Writes
}

func (o *written) of(kind schema.GroupKind) *consistency.Writes {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kinds == nil {
		o.kinds = map[schema.GroupKind]*consistency.Writes{}
	}
	if o.kinds[kind] == nil {
		o.kinds[kind] = &consistency.Writes{}
	}
	return o.kinds[kind]
}

func (o *written) note(obj *unstructured.Unstructured) {
	o.of(obj.GroupVersionKind().GroupKind()).Note(obj)
}

// upToDate returns consistency.ErrStale if list, which is all requests of a kind, does not show what this process has written. Of what it does not show at
// all the API server knows whether it is new, or gone.
func (r *Reconciler) upToDate(ctx context.Context, kind schema.GroupVersionKind, list []unstructured.Unstructured) error {
	writes := r.memory.written.of(kind.GroupKind())
	for i := range list {
		if writes.Stale(&list[i]) {
			return consistency.ErrStale
		}
	}
	for _, key := range writes.Pending() {
		obj := &metav1.PartialObjectMetadata{}
		obj.SetGroupVersionKind(kind)
		err := r.Live.Get(ctx, key, obj)
		switch {
		case remediationrequest.Missing(err):
			writes.Forget(key)
		case err != nil:
			return fmt.Errorf("read %s %s: %w", kind.Kind, key, err)
		default:
			return consistency.ErrStale
		}
	}
	return nil
}

// lag is how long the cache is waited for that a reconcile of the check has found to be stale, in a row.
func (m *memory) lag(check string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stale == nil {
		m.stale = map[string]int{}
	}
	m.stale[check]++
	return consistency.Wait(m.stale[check])
}

// caughtUp notes that a reconcile of the check has read no less than what was written.
func (m *memory) caughtUp(check string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.stale, check)
}
