package enqueue

import (
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Merging decides when the checks that events concern are looked at: the first event of a check that was quiet for a merge window at once, and
// what follows together, a window after that. So a change that comes alone waits for nothing, and a burst is a look for each window. The zero
// value is ready for use.
type Merging struct {
	mu    sync.Mutex
	looks map[reconcile.Request]time.Time // the last one that was decided, which may be still to come
	swept time.Time
}

// wait is how long after an event at now the check is to be looked at.
func (m *Merging) wait(check reconcile.Request, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	last, looked := m.looks[check]
	if looked && now.Before(last) {
		return last.Sub(now) // that look sees this as well
	}
	at := now
	if looked && now.Before(last.Add(MergeWindow)) {
		at = last.Add(MergeWindow)
	}
	m.looks[check] = at
	return at.Sub(now)
}

// sweep forgets the checks that are quiet, once in a while: those that are gone would be remembered for ever.
func (m *Merging) sweep(now time.Time) {
	if m.looks != nil && now.Before(m.swept.Add(time.Minute)) {
		return
	}
	if m.looks == nil {
		m.looks = map[reconcile.Request]time.Time{}
	}
	maps.DeleteFunc(m.looks, func(_ reconcile.Request, at time.Time) bool { return !now.Before(at.Add(MergeWindow)) })
	m.swept = now
}
