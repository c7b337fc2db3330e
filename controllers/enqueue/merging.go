package enqueue

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Merging decides when the checks that events concern are reconciled: the first event of a check that was quiet for a merge window at once,
// and what follows together, a window after that. So a single change waits for nothing, and a burst is one reconcile for each window. The
// zero value is ready for use.
type Merging struct {
	mu    sync.Mutex
	due   map[reconcile.Request]time.Time // the last one that was decided, which may be still to come
	swept time.Time
}

// wait is how long after an event at now the check is to be reconciled.
func (m *Merging) wait(check reconcile.Request, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	last, known := m.due[check]
	if known && now.Before(last) {
		return last.Sub(now) // that reconcile sees this as well
	}
	at := now
	if known && now.Before(last.Add(MergeWindow)) {
		at = last.Add(MergeWindow)
	}
	m.due[check] = at
	return at.Sub(now)
}

// sweep forgets the checks that are quiet, once in a while: those that are gone would be remembered for ever.
func (m *Merging) sweep(now time.Time) {
	if m.due != nil && now.Before(m.swept.Add(time.Minute)) {
		return
	}
	if m.due == nil {
		m.due = map[reconcile.Request]time.Time{}
	}
	maps.DeleteFunc(m.due, func(_ reconcile.Request, at time.Time) bool { return !now.Before(at.Add(MergeWindow)) })
	m.swept = now
}
