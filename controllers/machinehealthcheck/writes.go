package machinehealthcheck

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kubemend/kubemend/controllers/consistency"
)

// ownWrites tells the events of machines that this process has just written from all others. Such an event tells nothing that the reconcile
// that wrote it did not know, and to look at the whole check once more because of it would double the work of every change. Why that
// loses nothing is in docs/adr/0013-own-writes-wake-nobody.md.
type ownWrites struct {
	mu sync.Mutex
	// written are the versions whose events are still to come.
	written map[types.UID]string
	// held are the versions whose events came while a write was under way, of which it is not known yet whose they are.
	held map[types.UID][]string
	// saved are the versions that the caches may not show yet.
	saved consistency.Writes
}

// begin says that m is being written. Events of m are held until end.
func (o *ownWrites) begin(m client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil {
		o.held, o.written = map[types.UID][]string{}, map[types.UID]string{}
	}
	if _, writing := o.held[m.GetUID()]; !writing {
		o.held[m.GetUID()] = nil
	}
	delete(o.written, m.GetUID())
}

// end says that m was written as it is now, or that it could not be. It reports whether somebody else's event was held meanwhile, after
// which the check has to be looked at again.
func (o *ownWrites) end(m client.Object, saved bool) (missed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid, version := m.GetUID(), m.GetResourceVersion()
	held := o.held[uid]
	delete(o.held, uid)
	if saved {
		o.saved.Note(m)
	}
	if saved && !slices.Contains(held, version) {
		o.written[uid] = version
	}
	return slices.ContainsFunc(held, func(v string) bool { return !saved || v != version })
}

// ignored drops the events of own writes.
func (o *ownWrites) ignored() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return !o.is(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			o.forget(e.Object)
			return true
		},
	}
}

// is reports whether the event of m is that of an own write, or may be and is held.
func (o *ownWrites) is(m client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid, version := m.GetUID(), m.GetResourceVersion()
	if held, writing := o.held[uid]; writing {
		o.held[uid] = append(held, version)
		return true
	}
	if o.written[uid] != version {
		return false
	}
	delete(o.written, uid)
	return true
}

// stale reports whether m is older than it was written. Then a reconcile waits for the cache to show the write, and the event of it wakes the check.
func (o *ownWrites) stale(m client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.saved.Stale(m) {
		return false
	}
	delete(o.written, m.GetUID())
	return true
}

func (o *ownWrites) forget(m client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.written, m.GetUID())
	o.saved.Forget(client.ObjectKeyFromObject(m))
}
