// Package begin guards writes that cannot be taken back: the creation of a remediation request, and the power-off of a host.
//
// If two reconciles run before the cache shows the first write, both may start a remediation, and together exceed a limit. Therefore a
// controller decides again just before such a write, on reads from the API server, and only one reconcile at a time does so for each limit.
package begin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	"github.com/kubemend/kubemend/controllers/consistency"
)

const (
	// Within is the timeout of Begin, including the wait for earlier callers and all writes. Then the controller decides again, so a
	// webhook that does not answer blocks neither the worker nor the other callers that need the same scope.
	Within = 10 * time.Second
	// Settles is how long the API server may still carry out a write whose response was lost. Until then nobody else begins in its scopes.
	Settles = 30 * time.Second
)

// ErrUnasked says that a caller of Begin failed before it sent its write, so no response to the write can be lost.
var ErrUnasked = errors.New("nothing was asked for yet")

// ErrBusy says that another remediation is about to begin in the same scope, or may have begun. The controller tries again a moment later.
var ErrBusy = errors.New("another remediation is about to begin")

// Gate lets one caller at a time begin in each scope, such as a control plane or the limit of a check. It stores only the scopes that are
// in use, and the scopes in which a response was lost.
type Gate struct {
	Clock clock.PassiveClock

	mu     sync.Mutex
	scopes map[string]*scope
}

// scope is a lock that one caller of Begin holds at a time.
type scope struct {
	// taken is full while a caller holds the lock. It is a channel because a wait for a mutex does not end with a context.
	taken chan struct{}
	users int       // how many callers hold the lock or wait for it
	by    string    // the caller whose response was lost
	until time.Time // when the API server can no longer carry out that write; zero if no response was lost
}

// Begin locks all scopes, in sorted order to prevent a deadlock, and calls begin, which reads from the API server, decides again, and
// writes only if the decision is the same. If Begin cannot lock all scopes in time, it returns ErrBusy. After a lost response the same
// caller may begin again at once, but others only after Settles: the API server may carry out the write after they have read.
func (g *Gate) Begin(ctx context.Context, by string, scopes []string, begin func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Within)
	defer cancel()
	names := slices.Compact(slices.Sorted(slices.Values(scopes)))
	taken := 0
	defer func() {
		for _, name := range names[:taken] {
			g.leave(name)
		}
	}()
	for ; taken < len(names); taken++ {
		if !g.take(ctx, names[taken]) {
			return fmt.Errorf("wait for %s: %w", names[taken], ErrBusy)
		}
	}
	if name := g.unsettled(by, names); name != "" {
		return fmt.Errorf("wait for %s: %w", name, ErrBusy)
	}
	err := begin(ctx)
	if Lost(err) {
		g.doubt(by, names)
	}
	return err
}

// take locks a scope. It returns false if ctx ended first.
func (g *Gate) take(ctx context.Context, name string) bool {
	g.mu.Lock()
	if g.scopes == nil {
		g.scopes = map[string]*scope{}
	}
	entry := g.scopes[name]
	if entry == nil {
		entry = &scope{taken: make(chan struct{}, 1)}
		g.scopes[name] = entry
	}
	entry.users++
	g.mu.Unlock()
	select {
	case entry.taken <- struct{}{}:
		return true
	case <-ctx.Done():
		g.drop(name)
		return false
	}
}

func (g *Gate) leave(name string) {
	g.mu.Lock()
	taken := g.scopes[name].taken
	g.mu.Unlock()
	<-taken
	g.drop(name)
}

// drop deletes a scope that has no users any more and in which no response was lost within Settles.
func (g *Gate) drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.scopes[name]
	entry.users--
	if entry.users == 0 && !g.Clock.Now().Before(entry.until) {
		delete(g.scopes, name)
	}
}

// unsettled returns the first scope in which the response to another caller was lost within Settles; empty if there is none.
func (g *Gate) unsettled(by string, names []string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		if entry := g.scopes[name]; entry.by != by && g.Clock.Now().Before(entry.until) {
			return name
		}
	}
	return ""
}

// doubt notes that the response to a write was lost. A later response does not clear the note, because it says nothing about that write.
func (g *Gate) doubt(by string, names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.scopes[name].by, g.scopes[name].until = by, g.Clock.Now().Add(Settles)
	}
}

// Lost reports whether err leaves it open whether the write was made: the write was sent, and the API server has not refused it.
func Lost(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrBusy), errors.Is(err, ErrUnasked), errors.Is(err, consistency.ErrStale):
		return false
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsInvalid(err), apierrors.IsForbidden(err),
		apierrors.IsBadRequest(err), apierrors.IsNotFound(err), apierrors.IsUnauthorized(err):
		return false
	}
	return true
}
