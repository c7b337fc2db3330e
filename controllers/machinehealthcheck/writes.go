package machinehealthcheck

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/kubemend/kubemend/controllers/consistency"
)

// ownWrites tells the events of machines that this process has just written from all others. Such an event tells nothing that the reconcile
// that wrote it did not know, and to look at the whole check once more because of it would double the work of every change. Why that
// loses nothing is in ADR 13.
type ownWrites struct {
	mu sync.Mutex
	// written are the versions whose events are still to come.
	written map[types.UID]string
	// held are the versions whose events came while a write was under way, of which it is not known yet whose they are.
	held map[types.UID][]string
	// saved are the versions that the caches may not show yet.
	saved consistency.Writes
}

// begin says that machine is being written. Its events are held until end.
func (o *ownWrites) begin(machine client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.held == nil {
		o.held, o.written = map[types.UID][]string{}, map[types.UID]string{}
	}
	if _, writing := o.held[machine.GetUID()]; !writing {
		o.held[machine.GetUID()] = nil
	}
	delete(o.written, machine.GetUID())
}

// end says that machine was written as it is now, or that it could not be. It reports whether somebody else's event was held meanwhile,
// after which the check has to be looked at again.
func (o *ownWrites) end(machine client.Object, saved bool) (missed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid, version := machine.GetUID(), machine.GetResourceVersion()
	held := o.held[uid]
	delete(o.held, uid)
	if saved {
		o.saved.Note(machine)
	}
	if saved && !slices.Contains(held, version) {
		o.written[uid] = version
	}
	return slices.ContainsFunc(held, func(v string) bool { return !saved || v != version })
}

// ignored drops the events of own writes.
func (o *ownWrites) ignored() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return !o.own(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool {
			o.forget(e.Object)
			return true
		},
	}
}

// own reports whether the event of machine is that of an own write, or may be and is held.
func (o *ownWrites) own(machine client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	uid, version := machine.GetUID(), machine.GetResourceVersion()
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

// stale reports whether machine is older than it was written. Then a reconcile waits for the cache to show the write, and the event of it
// enqueues the check.
func (o *ownWrites) stale(machine client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.saved.Stale(machine) {
		return false
	}
	delete(o.written, machine.GetUID())
	return true
}

func (o *ownWrites) forget(machine client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.written, machine.GetUID())
	o.saved.Forget(client.ObjectKeyFromObject(machine))
}

// stale reports whether the cache does not show yet what the reconcile before has written. Decided on that, a remediation that was
// requested of an owner would not count. It is no failure, and the check is reconciled again in a moment.
// (docs/adr/0058-read-your-own-writes.md)
func (r *Reconciler) stale(ctx context.Context, state *observed) bool {
	return slices.ContainsFunc(state.before.wrote, func(name string) bool {
		target := find(name, state.Targets, state.Skipped)
		return target != nil && r.written.stale(target.Machine) && !r.undone(ctx, state, target.Machine)
	}) || r.Live != nil && slices.ContainsFunc(state.before.unsure, func(name string) bool {
		target := find(name, state.Targets, state.Skipped)
		return target != nil && r.behind(ctx, state, target.Machine)
	})
}

// standsStill is how many reconciles in a row find the cache to be stale until the API server is asked. With nothing but their
// waits in between that is two and a half seconds.
const standsStill = 7

// undone reports whether the API server has machine in no newer version than the cache, which waits for a write that is gone: the API
// server was restored from a backup. It is asked when the wait is long. No other wait ends here, and the log says that the check waits.
func (r *Reconciler) undone(ctx context.Context, state *observed, machine *clusterv1.Machine) bool {
	if state.before.stale < standsStill || r.Live == nil {
		return false
	}
	stored, err := r.live(ctx, machine)
	if err != nil || stored.UID != machine.UID || consistency.Older(machine.ResourceVersion, stored.ResourceVersion) {
		log.FromContext(ctx).Info("The check waits for the cache, which does not show yet what was written",
			"Machine", klog.KObj(machine), "stale", state.before.stale, "error", err)
		return false
	}
	log.FromContext(ctx).Info("What was written of a machine is gone: the API server has an older version", "Machine", klog.KObj(machine))
	r.written.saved.Forget(client.ObjectKeyFromObject(machine))
	return true
}

// behind reports whether the API server has machine in a newer version than the cache: its owner may have been asked to remediate it, and
// the answer to that write was lost. If the API server cannot be asked, it may be so for some seconds.
func (r *Reconciler) behind(ctx context.Context, state *observed, machine *clusterv1.Machine) bool {
	stored, err := r.live(ctx, machine)
	if err != nil {
		return client.IgnoreNotFound(err) != nil && state.before.stale < standsStill
	}
	return stored.UID == machine.UID && consistency.Older(machine.ResourceVersion, stored.ResourceVersion)
}

// live reads the identity and the version of machine past the cache.
func (r *Reconciler) live(ctx context.Context, machine *clusterv1.Machine) (*metav1.PartialObjectMetadata, error) {
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	return stored, r.Live.Get(ctx, client.ObjectKeyFromObject(machine), stored)
}
