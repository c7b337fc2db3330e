package machinehealthcheck

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// away are the checks that are not reconciled for now, as they are paused, not claimed, or without a Cluster. Nobody notices then that
// their workload cluster goes out of reach and comes back, after which a cache may show nodes for half a minute as they were before.
type away struct {
	mu     sync.Mutex
	checks map[types.NamespacedName]bool
}

// leave notes that a check is not reconciled from now on.
func (a *away) leave(check types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.checks == nil {
		a.checks = map[types.NamespacedName]bool{}
	}
	a.checks[check] = true
}

// back reports whether a check was not reconciled until now, and forgets that.
func (a *away) back(check types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.checks[check]
	delete(a.checks, check)
	return was
}
