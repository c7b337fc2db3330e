package nodehealthcheck

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// memory is what reconciles remember of each other besides what goes into their decisions: until the caches have caught up, and for events and metrics.
type memory struct {
	written consistency.Kinds // requests
	stale   consistency.Waits // by check, also of those that are gone

	mu     sync.Mutex
	began  time.Time // when the first reconcile was made, or could have been
	checks map[string]*remembered
	// orphans are the requests of checks that are gone, by check.
	orphans map[string]map[types.UID]ongoing
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
		m.checks, m.orphans = map[string]*remembered{}, map[string]map[types.UID]ongoing{}
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

// forget drops what is remembered of a check but for its requests, and returns these.
func (m *memory) forget(check string) map[types.UID]ongoing {
	defer m.lock()()
	last := m.checks[check]
	delete(m.checks, check)
	if last == nil {
		return nil
	}
	if len(last.begun) > 0 {
		m.orphans[check] = last.begun
	}
	return last.begun
}

// orphan remembers the requests that the status of a check lists: they need not say themselves which check made them.
func (m *memory) orphan(check string, requests map[types.UID]*listed) {
	defer m.lock()()
	orphans := maps.Clone(m.orphans[check])
	for uid, request := range requests {
		if orphans == nil {
			orphans = map[types.UID]ongoing{}
		}
		orphans[uid] = ongoing{node: request.node}
	}
	if len(orphans) > 0 {
		m.orphans[check] = orphans
	}
}

// orphanOf returns what is remembered of a request of a check that is gone.
func (m *memory) orphanOf(check string, request types.UID) (orphan ongoing, known bool) {
	defer m.lock()()
	orphan, known = m.orphans[check][request]
	return orphan, known
}

// hasOrphans reports whether requests of a check are remembered that is gone.
func (m *memory) hasOrphans(check string) bool {
	defer m.lock()()
	return len(m.orphans[check]) > 0
}

// released forgets also the requests of a check: they are gone.
func (m *memory) released(check string) {
	defer m.lock()()
	delete(m.orphans, check)
}

// remembers adds what became of a plan to what it remembers.
func remembers(state *observed, plan *nodes.Plan, outcomes []outcome) nodes.Memory {
	memory := plan.Memory
	for k := range outcomes {
		o := &outcomes[k]
		for _, j := range o.flagged {
			memory.Flagged[o.n.Requests[j].ID] = true
		}
		for _, j := range o.unpatchable {
			memory.Unpatchable[o.n.Requests[j].ID] = true
		}
		if o.refused != nil {
			memory.Refused[o.n.Name] = state.facts.Now
		}
	}
	return memory
}

// upToDate returns consistency.ErrStale if list, which is all requests of a kind, does not show what this process has written. Decided on
// that, everything would be done once more.
func (r *Reconciler) upToDate(ctx context.Context, kind schema.GroupVersionKind, list []unstructured.Unstructured) error {
	writes := r.memory.written.Of(kind.GroupKind())
	for i := range list {
		if writes.Stale(&list[i]) {
			return consistency.ErrStale
		}
	}
	return writes.Unseen(ctx, r.Live, kind, "")
}
