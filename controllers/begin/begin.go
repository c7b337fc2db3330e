// Package begin is the one gate for what cannot be taken back: a remediation request, a power-off.
//
// A limit that is counted in a cache is exceeded by two reconciles that run before the cache shows the first write. So who begins
// something decides once more, on what the API server has, one at a time for all that share a limit.
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
	// Within is how long a beginning may take, the wait for those before it and its writes included. After that it is decided anew: a
	// webhook that does not answer holds up neither the worker nor what shares a scope with it.
	Within = 10 * time.Second
	// Settles is how long a write may still be carried out whose answer was lost. Until then nothing else begins in its scopes.
	Settles = 30 * time.Second
)

// ErrUnasked says that a beginning failed before its write was asked for: no answer to that can be lost.
var ErrUnasked = errors.New("nothing was asked for yet")

// ErrBusy says that another remediation is about to begin in the same scope, or may have begun. It is decided anew a moment later.
var ErrBusy = errors.New("another remediation is about to begin")

// Gate lets one beginning at a time through for each scope, such as a control plane or the limit of a check. It keeps no more than the
// scopes that are in use, and those in which an answer was lost.
type Gate struct {
	Clock clock.PassiveClock

	mu     sync.Mutex
	scopes map[string]*scope
}

// scope is what of several beginnings only one may have at a time.
type scope struct {
	// taken is full while somebody is inside. It is a channel, since who waits for a mutex cannot give up with its context.
	taken chan struct{}
	users int
	// by is whose answer was lost, and until how long its write may still be carried out; zero if no answer was lost.
	by    string
	until time.Time
}

// Begin takes all scopes, in the same order for everybody, and calls begin, which reads past the caches, decides on that as before, and
// writes only if the decision is the same. It returns ErrBusy if the scopes cannot be taken in time. A beginning whose answer was lost
// may be repeated by the same caller at once, by others after Settles: the write may be carried out after they have read.
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

// take takes a scope, and reports whether it could before ctx was done.
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

// leave gives a scope up that was taken.
func (g *Gate) leave(name string) {
	g.mu.Lock()
	taken := g.scopes[name].taken
	g.mu.Unlock()
	<-taken
	g.drop(name)
}

// drop forgets a scope that nobody uses any more and in which no answer was lost.
func (g *Gate) drop(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	entry := g.scopes[name]
	entry.users--
	if entry.users == 0 && !g.Clock.Now().Before(entry.until) {
		delete(g.scopes, name)
	}
}

// unsettled is the first scope in which somebody else's answer was lost a moment ago; empty if there is none.
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

// doubt notes that the answer of a beginning was lost. No later answer ends that before Settles is over: it says nothing of that write.
func (g *Gate) doubt(by string, names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, name := range names {
		g.scopes[name].by, g.scopes[name].until = by, g.Clock.Now().Add(Settles)
	}
}

// Lost reports whether it is not known after err whether a write was made: the API server has not said that it was not.
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
