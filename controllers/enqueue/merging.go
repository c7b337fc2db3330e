package enqueue

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Merging decides when a check is reconciled after an event. If the check had no event for a merge window, it is reconciled at once. The
// events that follow are reconciled together at the end of the window. So a single event does not wait, and a burst causes one reconcile
// for each window. The zero value is ready for use.
type Merging struct {
	mu    sync.Mutex
	due   map[reconcile.Request]time.Time // when the last reconcile was or will be
	swept time.Time
}

// wait returns how long after an event at now to reconcile the check.
func (m *Merging) wait(check reconcile.Request, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	last, known := m.due[check]
	if known && now.Before(last) {
		return last.Sub(now) // the reconcile that is due sees this event too
	}
	at := now
	if known && now.Before(last.Add(MergeWindow)) {
		at = last.Add(MergeWindow)
	}
	m.due[check] = at
	return at.Sub(now)
}

// sweep deletes the checks without recent events, once a minute, so that checks that are gone do not use memory.
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
