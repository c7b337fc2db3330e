package nodehealthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// memory is what passes remember of each other: until the caches have caught up, for events and metrics, and for how long a node's
// conditions have been bad in one way or the other. Losing it delays a remediation at worst.
type memory struct {
	written written
	seat    seat

	mu     sync.Mutex
	began  time.Time // when the first reconcile was made, or could have been
	checks map[string]*remembered
	// left are the requests of checks that are not looked at any more, by check.
	left map[string]map[types.UID]ongoing
}

type remembered struct {
	failed  int             // passes in a row that did not get through
	told    map[string]told // what is held up, to what was told of it last
	hold    told            // the reason that holds all up, as told last
	streaks map[types.UID]streaks
	// counts is since when the time of a request's step does, if not since its creation. delayed is to when outages are in that, looked says that
	// there was a reconcile.
	counts     map[types.UID]time.Time
	delayed    time.Time
	looked     bool
	judged     time.Time // when its nodes were judged last; zero if the last reconcile did not get to that
	begun      map[types.UID]ongoing
	counted    map[types.UID]bool   // requests that were counted as old
	untellable map[types.UID]bool   // requests that may not be told to stop
	recovered  map[types.UID]bool   // requests, to whether they had succeeded when their node was seen well
	refused    map[string]time.Time // nodes, to when a request for them was refused last
	unread     time.Time            // since when a kind is not read yet; zero if all are
}

// begin notes that passes are made from now on, unless they were before, and returns since when.
func (m *memory) begin(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = now
	}
	return m.began
}

// pause notes that no reconciles are made.
func (m *memory) pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = time.Time{}
}

// of returns what is remembered of a check. There is one reconcile at a time over each.
func (m *memory) of(check string) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checks == nil {
		m.checks = map[string]*remembered{}
	}
	is, known := m.checks[check]
	if !known {
		is = &remembered{told: map[string]told{}, streaks: map[types.UID]streaks{}}
		m.checks[check] = is
	}
	return is
}

// forget drops what is remembered of a check, and returns the requests that there were.
func (m *memory) forget(check string) map[types.UID]ongoing {
	m.mu.Lock()
	defer m.mu.Unlock()
	was, known := m.checks[check]
	if !known {
		return nil
	}
	delete(m.checks, check)
	if len(was.begun) > 0 {
		if m.left == nil {
			m.left = map[string]map[types.UID]ongoing{}
		}
		m.left[check] = was.begun
	}
	return was.begun
}

// leftBy returns what is remembered of a request of a check that was forgotten.
func (m *memory) leftBy(check string, req types.UID) (ongoing, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is, known := m.left[check][req]
	return is, known
}

// released forgets also the requests of a check: they are gone.
func (m *memory) released(check string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.left, check)
}

// copyOf returns a memory of its own that remembers the same of a check, for a look that leaves m as it is. It must not be called during a reconcile
// over that check.
func (m *memory) copyOf(check string) *memory {
	m.written.mu.Lock()
	defer m.written.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	own := &memory{began: m.began, written: written{marks: maps.Clone(m.written.marks)}, checks: map[string]*remembered{}}
	if is, known := m.checks[check]; known { // what passes observe with is replaced as a whole, and never changed
		own.checks[check] = &remembered{
			streaks: is.streaks, judged: is.judged, counts: is.counts, delayed: is.delayed, looked: is.looked, counted: is.counted, refused: is.refused,
			recovered: is.recovered, untellable: is.untellable,
		}
	}
	return own
}

// recall gives the requests and targets of w what is remembered of them, and forgets about the others.
func (m *memory) recall(w *observed) {
	is := m.of(w.check.Name)
	counted, untellable, refused := map[types.UID]bool{}, map[types.UID]bool{}, map[string]time.Time{}
	for i := range w.targets {
		t := &w.targets[i]
		for _, f := range t.requests {
			if f.counted = is.counted[f.obj.GetUID()]; f.counted {
				counted[f.obj.GetUID()] = true
			}
			if f.untellable = is.untellable[f.obj.GetUID()]; f.untellable {
				untellable[f.obj.GetUID()] = true
			}
		}
		if at, was := is.refused[t.name]; was && w.now.Before(at.Add(enqueue.RetryAtMost)) {
			t.refused, refused[t.name] = true, at
		}
	}
	is.counted, is.untellable, is.refused = counted, untellable, refused
}

// remember notes what a reconcile did.
func (m *memory) remember(w *observed, outcomes []outcome) {
	is := m.of(w.check.Name)
	for i := range outcomes {
		for _, f := range outcomes[i].flagged {
			is.counted[f.obj.GetUID()] = true
		}
		for _, f := range outcomes[i].untellable {
			is.untellable[f.obj.GetUID()] = true
		}
		if outcomes[i].refused != nil {
			is.refused[outcomes[i].target.name] = w.now
		}
	}
}

// nodeStreaks are the streaks of a check's nodes, as they were and as they are becoming in a reconcile.
type nodeStreaks struct {
	of       *remembered
	was, are map[types.UID]streaks
	now      time.Time
	// blind says that nobody looked for so long that a node may have been well in between.
	blind bool
}

// lastJudged is when the nodes of a check were judged last, and forgets it: it is noted anew when they are.
func (m *memory) lastJudged(check string) time.Time {
	is := m.of(check)
	at := is.judged
	is.judged = time.Time{}
	return at
}

func (m *memory) streaksOf(w *observed) *nodeStreaks {
	is, longest := m.of(w.check.Name), w.resync
	for _, rule := range w.policy.Rules {
		longest = max(longest, rule.For)
	}
	return &nodeStreaks{of: is, was: is.streaks, are: map[types.UID]streaks{}, now: w.now, blind: w.now.Sub(w.judged) > longest+unseenFor}
}

// unseenFor is by how much a reconcile may be late after which each node that is bad is judged again: when a rule's duration is over, or by resync.
const unseenFor = time.Minute

// see returns the streaks of the target's node. While it is being remediated there are none.
func (s *nodeStreaks) see(t *target, rules []health.Rule) streaks {
	if t.remediated() {
		return nil
	}
	is := s.was[t.node.UID].after(t.node, rules, s.blind)
	if is != nil {
		s.are[t.node.UID] = is
	}
	return is
}

func (s *nodeStreaks) keep() { s.of.streaks, s.of.judged = s.are, s.now }

// seat is taken by the one node of the control plane for which a request is being made. Passes over several checks run at the same time,
// and neither sees in the caches what the other is about to do.
type seat struct {
	mu   sync.Mutex
	node string
	// held says that a request is being made, until is when the last one was.
	held  bool
	until time.Time
}

// take takes the seat for node, for a reconcile that observed at the given moment, and returns zero. It is refused to a reconcile that
// could not have seen what the last one that took it did; then it returns from when on one can.
func (s *seat) take(node string, observed, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch free := s.until.Add(cachesLag); {
	case s.node == "" || s.node == node:
	case s.held:
		return now.Add(cachesLag)
	case observed.Before(free):
		return free
	}
	s.node, s.held = node, true
	return time.Time{}
}

// leave gives the seat up. made says that the request was made, or may have been; if nothing came of it the seat is free at once.
func (s *seat) leave(now time.Time, made bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.until = false, now
	if !made {
		s.node = ""
	}
}
