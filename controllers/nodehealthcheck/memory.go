package nodehealthcheck

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// memory is what reconciles remember of each other besides what goes into their decisions: until the caches have caught up, and for
// events and metrics.
type memory struct {
	written written
	slot    slot

	mu     sync.Mutex
	began  time.Time // when the first reconcile was made, or could have been
	checks map[string]*remembered
	// stale are the reconciles in a row that have read what was older than what was written, by check, also of those that are gone.
	stale map[string]int
}

// remembered is what the reconciles of one check remember. There is one of them at a time.
type remembered struct {
	decided  nodes.Memory
	failed   int                 // reconciles in a row that did not get through
	reported map[string]reported // what goes on, to what was reported of it last
	blocker  reported            // the reason that blocks all nodes, as reported last
	begun    map[types.UID]ongoing
	unread   time.Time // since when a kind is not read yet; zero if all are
}

// lock locks m, whose zero value is ready for use, and returns what unlocks it.
func (m *memory) lock() (unlock func()) {
	m.mu.Lock()
	if m.checks == nil {
		m.checks, m.stale = map[string]*remembered{}, map[string]int{}
	}
	return m.mu.Unlock
}

// begin notes that reconciles are made from now on, unless they were before.
func (m *memory) begin(now time.Time) {
	defer m.lock()()
	if m.began.IsZero() {
		m.began = now
	}
}

// pause notes that no reconciles are made.
func (m *memory) pause() {
	defer m.lock()()
	m.began = time.Time{}
}

// recall returns what the decisions about a check have remembered, and since when reconciles are made.
func (m *memory) recall(check string, now time.Time) (decided nodes.Memory, since time.Time) {
	defer m.lock()()
	if last := m.checks[check]; last != nil {
		decided = last.decided
	}
	if m.began.IsZero() {
		return decided, now
	}
	return decided, m.began
}

// of returns what is remembered of a check.
func (m *memory) of(check string) *remembered {
	defer m.lock()()
	if m.checks[check] == nil {
		m.checks[check] = &remembered{reported: map[string]reported{}}
	}
	return m.checks[check]
}

// miss notes that a reconcile did not get to judge the nodes of the check.
func (last *remembered) miss() { last.decided.Judged = time.Time{} }

// forget drops what is remembered of a check but for its requests, and returns these: they need not say themselves which check made them.
func (m *memory) forget(check string) map[types.UID]ongoing {
	defer m.lock()()
	last := m.checks[check]
	delete(m.checks, check)
	if last == nil || len(last.begun) == 0 {
		return nil
	}
	m.checks[check] = &remembered{reported: map[string]reported{}, begun: last.begun}
	return last.begun
}

// released forgets also the requests of a check: they are gone.
func (m *memory) released(check string) {
	defer m.lock()()
	delete(m.checks, check)
}

// lag is how long the cache is waited for that a reconcile of the check has found to be stale, in a row.
func (m *memory) lag(check string) time.Duration {
	defer m.lock()()
	m.stale[check]++
	return consistency.Wait(m.stale[check])
}

// caughtUp notes that a reconcile of the check has read no less than what was written.
func (m *memory) caughtUp(check string) {
	defer m.lock()()
	delete(m.stale, check)
}

// remembers adds what became of a plan to what it remembers.
func remembers(state *observed, plan *nodes.Plan, outcomes []outcome) nodes.Memory {
	memory := plan.Memory
	for k := range outcomes {
		o := &outcomes[k]
		for _, j := range o.flagged {
			memory.Flagged[o.n.Requests[j].ID()] = true
		}
		for _, j := range o.unpatchable {
			memory.Unpatchable[o.n.Requests[j].ID()] = true
		}
		if o.refused != nil {
			memory.Refused[o.n.Name] = state.facts.Now
		}
	}
	return memory
}

// slot is taken by the one node of the control plane for which a request is being made. Reconciles of several checks run at the same time,
// and neither sees in what it has read what the other is about to do.
type slot struct {
	mu   sync.Mutex
	node string
	// held says that a request is being made, until is when the last one was, or when it will have been if it is not known what has become
	// of it.
	held  bool
	until time.Time
}

// unsure is how long a request may still appear whose creation was answered by nothing, or by an error that does not say that it was
// refused.
const unsure = 30 * time.Second

// take takes the slot for node, for a reconcile that observed at the given moment, and returns zero. It is refused while it is held, even
// for the same node, and to a reconcile that has begun to read before the last one that took it was done: from then on none reads less
// than that has written. Then it returns when to try again.
func (s *slot) take(node string, observed, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held || s.node != "" && s.node != node && observed.Before(s.until) {
		if next := now.Add(consistency.Lag); next.After(s.until) {
			return next
		}
		return s.until
	}
	s.node, s.held = node, true
	return time.Time{}
}

// leave gives the slot up. made says that the request was made, or may have been, and sure that it is known; if nothing came of it the
// slot is free at once.
func (s *slot) leave(now time.Time, made, sure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	switch {
	case made && !sure:
		s.until = now.Add(unsure)
	case made:
		s.until = now
	case !now.Before(s.until): // else one that was asked for before may appear
		s.node, s.until = "", now
	}
}

// written are the requests that this process wrote, by kind. A cache that lags behind shows a request as it was, or not at all, and a
// reconcile that believed it would do everything once more: take a second control-plane node down, for one.
type written struct {
	kinds sync.Map // of schema.GroupKind to *consistency.Writes
}

func (w *written) of(kind schema.GroupKind) *consistency.Writes {
	writes, _ := w.kinds.LoadOrStore(kind, &consistency.Writes{})
	return writes.(*consistency.Writes)
}

func (w *written) note(obj *unstructured.Unstructured) {
	w.of(obj.GroupVersionKind().GroupKind()).Note(obj)
}

// upToDate returns consistency.ErrStale if list, which is all requests of a kind, does not show what this process has written. Of what it
// does not show at all the API server knows whether it is new, or gone.
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
