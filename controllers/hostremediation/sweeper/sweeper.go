// Package sweeper removes what remediations of hosts have left on hosts and nodes and that no remediation exists for any more: power holds, reboots,
// fences, and requests for owner remediation of machines that are healthy after all.
//
// It begins nothing, and never touches what a remediation that exists may still need.
package sweeper

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/baremetal/remediation"
)

// recheck is how soon to check annotations again whose remediation exists, should no event say that it is gone.
const recheck = 10 * time.Minute

// orphans are annotations whose remediation cannot be found, with the time since when. They are removed only after a grace period: a backup that is being
// restored, or clusterctl, may create the host before the remediation.
type orphans[K comparable] struct {
	mu    sync.Mutex
	since map[K]time.Time
}

// first is when key was first found without its remediation.
func (o *orphans[K]) first(key K, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since == nil {
		o.since = map[K]time.Time{}
	}
	if _, seen := o.since[key]; !seen {
		o.since[key] = now
	}
	return o.since[key]
}

func (o *orphans[K]) forget(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.since, key)
}

// watchDeletions makes b reconcile the object of the name in the record of a remediation, of any kind, that is deleted: when it goes without having cleaned
// up, its host and its node do not change.
func watchDeletions(b *builder.Builder, installed remediation.Installed, name func(remediation.Record) string) error {
	kinds, err := installed()
	if err != nil {
		return err
	}
	deletions := predicate.Funcs{CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false }}
	for _, kind := range kinds {
		b.Watches(kind.Watched(), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, rem client.Object) []reconcile.Request {
			of := name(remediation.Remembered(rem))
			if of == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: rem.GetNamespace(), Name: of}}}
		}), builder.WithPredicates(deletions))
	}
	return nil
}
