package nodehealthcheck

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/health"
)

// memory is what passes remember of each other: until the caches have caught up, for events and metrics, and for how long a node's
// conditions have been bad in one way or the other. Losing it delays a remediation at worst.
type memory struct {
	written written
	seat    seat

	mu     sync.Mutex
	checks map[string]*remembered
}

type remembered struct {
	failed  int               // passes in a row that did not get through
	told    map[string]string // what is held up, to what was told of it last
	hold    string            // what held all up, as told last
	streaks map[types.UID]streaks
	begun   map[types.UID]ongoing
}

// of returns what is remembered of a check. The caller holds the lock, or is the only pass over that check.
func (m *memory) of(check string) *remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.checks == nil {
		m.checks = map[string]*remembered{}
	}
	is, known := m.checks[check]
	if !known {
		is = &remembered{told: map[string]string{}, streaks: map[types.UID]streaks{}}
		m.checks[check] = is
	}
	return is
}

func (m *memory) forget(check string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.checks[check]
	delete(m.checks, check)
	return known
}

// nodeStreaks are the streaks of a check's nodes, as they were and as they are becoming in a pass.
type nodeStreaks struct {
	of       *remembered
	was, are map[types.UID]streaks
}

func (m *memory) streaksOf(check *nhcv1.NodeHealthCheck) *nodeStreaks {
	is := m.of(check.Name)
	return &nodeStreaks{of: is, was: is.streaks, are: map[types.UID]streaks{}}
}

// see returns the streaks of the target's node. While it is being remediated there are none.
func (s *nodeStreaks) see(t *target, rules []health.Rule) streaks {
	if t.remediated() {
		return nil
	}
	is := s.was[t.node.UID].after(t.node, rules)
	if is != nil {
		s.are[t.node.UID] = is
	}
	return is
}

func (s *nodeStreaks) keep(*world) { s.of.streaks = s.are }

// seat is taken by the one node of the control plane for which a request is being made. Passes over several checks run at the same time,
// and neither sees in the caches what the other is about to do.
type seat struct {
	mu    sync.Mutex
	node  string
	since time.Time
}

// take takes the seat for node, for a pass that observed the world at the given moment, and returns zero. It is refused to a pass that
// could not have seen yet what the last one that took it has done; then it returns from when on one can.
func (s *seat) take(node string, observed time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if free := s.since.Add(cachesLag); s.node != "" && s.node != node && observed.Before(free) {
		return free
	}
	s.node, s.since = node, observed
	return time.Time{}
}

// leave gives the seat back if nothing came of it.
func (s *seat) leave(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == node {
		s.node = ""
	}
}
