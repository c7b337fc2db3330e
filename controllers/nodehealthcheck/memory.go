package nodehealthcheck

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// memory is what reconciles remember of each other besides what goes into their decisions.
type memory struct {
	written consistency.Kinds // requests
	stale   consistency.Waits // by check, also of those that are gone

	mu     sync.Mutex
	began  time.Time // when the first reconcile was made, or could have been
	checks map[string]*remembered
}

// remembered is what the reconciles of one check remember. There is one of them at a time.
type remembered struct {
	decided  nodes.Memory
	failed   int                 // reconciles in a row that did not get through
	reported map[string]reported // what goes on, to what was reported of it last
	blocker  reported            // the reason that blocks all nodes, as reported last
	begun    map[types.UID]ongoing
	orphans  map[types.UID]ongoing // of a check of the name that is gone
	unread   time.Time             // since when a kind is not read yet; zero if all are
}

// lock locks m, whose zero value is ready for use, and returns what unlocks it.
func (m *memory) lock() (unlock func()) {
	m.mu.Lock()
	if m.checks == nil {
		m.checks = map[string]*remembered{}
	}
	return m.mu.Unlock
}

func (m *memory) begin(now time.Time) {
	defer m.lock()()
	if m.began.IsZero() {
		m.began = now
	}
}

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
	if last == nil {
		return nil
	}
	if len(last.begun) > 0 {
		last.orphans = last.begun
	}
	m.checks[check] = &remembered{reported: map[string]reported{}, orphans: last.orphans}
	return last.begun
}

// released forgets also the requests of a check: they are gone.
func (m *memory) released(check string) {
	defer m.lock()()
	delete(m.checks, check)
}

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
			unanswered := begin.Lost(o.refused) || errors.Is(o.refused, begin.ErrUnasked)
			memory.Refusals[o.n.Name] = memory.Refusals[o.n.Name].Again(o.Start, o.tried, unanswered, state.facts.Now)
		}
	}
	return memory
}

// upToDate returns consistency.ErrStale if list, all requests of a kind, does not show what this process has written.
func (r *Reconciler) upToDate(ctx context.Context, kind schema.GroupVersionKind, list []unstructured.Unstructured) error {
	writes := r.memory.written.Of(kind.GroupKind())
	for i := range list {
		if writes.Stale(&list[i]) {
			return consistency.ErrStale
		}
	}
	return writes.Unseen(ctx, r.Live, kind, "")
}
