package machinehealthcheck

import (
	"context"
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
// that wrote it did not know, and to look at the whole check once more because of it would double the work of every change. Nothing is
// lost: the patch fails unless it was made on the version that the reconcile had read. An event that comes before the answer to the write
// is looked at.
type ownWrites struct {
	mu sync.Mutex
	// written are the versions whose events are still to come.
	written map[types.UID]string
	// saved are the versions that the caches may not show yet.
	saved consistency.Writes
}

// note says that machine was written as it is now.
func (o *ownWrites) note(machine client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written == nil {
		o.written = map[types.UID]string{}
	}
	o.saved.Note(machine)
	o.written[machine.GetUID()] = machine.GetResourceVersion()
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

// own reports whether the event of machine is that of an own write.
func (o *ownWrites) own(machine client.Object) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.written[machine.GetUID()] != machine.GetResourceVersion() {
		return false
	}
	delete(o.written, machine.GetUID())
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

// standsStill is how many reconciles in a row find the cache to be stale until the API server is asked. With nothing but their
// waits in between that is two and a half seconds.
const standsStill = 7

// stale reports whether the cache does not show yet what the reconcile before has written. Decided on that, a remediation that was
// begun would not count. It is no failure, and the check is reconciled again in a moment.
func (r *Reconciler) stale(ctx context.Context, state *observed) bool {
	for name, lost := range state.before.wrote {
		if target := find(name, state.Targets, state.Skipped); target != nil && r.awaited(ctx, state, target.Machine, lost) {
			return true
		}
	}
	return state.lagging
}

// awaited reports whether the cache has machine in an older version than was written. The API server is asked if the answer to that write
// was lost, and if the wait is long: one that was restored from a backup never shows the write. If it cannot be asked about a lost answer,
// it may be so for some seconds: one machine must not hold up the others of its check for ever.
func (r *Reconciler) awaited(ctx context.Context, state *observed, machine *clusterv1.Machine, lost bool) bool {
	switch {
	case lost:
	case !r.written.stale(machine):
		return false
	case state.before.stale < standsStill:
		return true
	}
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(machine), stored)
	behind := stored.UID == machine.UID && consistency.Older(machine.ResourceVersion, stored.ResourceVersion)
	unread := client.IgnoreNotFound(err) != nil
	if lost && unread && state.before.stale >= standsStill {
		return false
	}
	if behind || unread {
		log.FromContext(ctx).Info("The check waits for the cache, which does not show yet what was written",
			"Machine", klog.KObj(machine), "stale", state.before.stale, "error", err)
		return true
	}
	r.written.saved.Forget(client.ObjectKeyFromObject(machine))
	return false
}
