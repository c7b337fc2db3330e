package hostremediation

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// Claims let only one remediation of a queue begin while the caches do not show yet what this process has let begin. Whose place it is, is
// read from the observed state and decided by package powercycle; a claim closes the gap between the decision of one reconcile and the
// moment at which all others can read what came of it. The zero value has none.
type Claims struct {
	mu sync.Mutex
	by map[string]*claim // by queue: a control plane, or a machine
	// Over has the namespaces in which a remediation, of any kind, is over: others may have waited for it.
	Over enqueue.Broadcast[string]
}

// claim is the right to begin. It ends when the one that has it is seen not to need it, and passes on once others have read what it has written.
type claim struct {
	kind, name string
	key        client.ObjectKey
	uid        types.UID
	// stored is the version in which its record was stored last; empty before the first time. open says that a write is under way, lost that
	// the answer to one was: it may have been made.
	stored     string
	open, lost bool
}

// Begin claims a queue for rem, unless another remediation has claimed it and seen, which is what the decision was made on, does not show what
// that has written. Then the name of that one is returned.
func (c *Claims) Begin(queue string, rem remediation.OfKind, seen []remediation.OfKind) (ahead string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.by[queue]
	if held != nil && held.uid != rem.GetUID() && !held.shownBy(seen) {
		return held.name
	}
	if c.by == nil {
		c.by = map[string]*claim{}
	}
	if held == nil || held.uid != rem.GetUID() {
		held = &claim{kind: rem.Kind.Kind, name: rem.GetName(), key: client.ObjectKeyFromObject(rem), uid: rem.GetUID()}
		c.by[queue] = held
	}
	held.open = true
	return ""
}

// shownBy reports whether seen has the remediation in the version that was stored, or a later one.
func (c *claim) shownBy(seen []remediation.OfKind) bool {
	if c.open || c.lost || c.stored == "" {
		return false
	}
	for _, rem := range seen {
		if rem.GetUID() == c.uid {
			return !consistency.Older(rem.GetResourceVersion(), c.stored)
		}
	}
	return false // it may not be there yet; that it is gone, its own reconcile finds out
}

// Written notes what came of the write of a remediation that has claimed a queue: version is what it is stored as if err is nil.
func (c *Claims) Written(rem client.Object, version string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for queue, held := range c.by {
		if held.uid != rem.GetUID() {
			continue
		}
		held.open = false
		switch {
		case err == nil:
			held.stored, held.lost = version, false
		case !refused(err):
			held.lost = true
		case held.stored == "" && !held.lost:
			delete(c.by, queue) // for sure it has not begun
		}
	}
}

// refused reports whether the API server has answered that it did not write. After all other errors it is unknown.
func refused(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsNotFound(err) || apierrors.IsUnauthorized(err)
}

// Lost reports whether the answer to a write of rem, which has claimed a queue, was lost.
func (c *Claims) Lost(rem client.Object) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, held := range c.by {
		if held.uid == rem.GetUID() {
			return held.lost
		}
	}
	return false
}

// End ends the claims of a remediation of this kind and name, if it has any.
func (c *Claims) End(kind string, key client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for queue, held := range c.by {
		if held.kind == kind && held.key == key {
			delete(c.by, queue)
		}
	}
}
