// Package leftovers removes what kubemend wrote on objects and nothing else will remove. While kubemend runs, Hosts and Nodes remove
// what remediations of hosts have left that do not exist any more. Teardown removes everything, so that kubemend can be uninstalled.
//
// It begins nothing, and never touches what a remediation that exists may still need: a power cycle ends in its own order.
package leftovers

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

var exhausted = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_host_exhausted",
	Help: "1 for a BareMetalHost that is marked as unhealthy, by kubemend or by hand: CAPM3 puts no machine on it.",
}, []string{"namespace", "name"})

func init() { metrics.Registry.MustRegister(exhausted) }

// Metrics returns what this package exports.
func Metrics() []prometheus.Collector { return []prometheus.Collector{exhausted} }

// Unfencer unfences nodes; fence.Nodes does it.
type Unfencer interface {
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
}

// recheck is how soon to check annotations again whose remediation exists, should no event say that it is gone.
const recheck = 10 * time.Minute

// Sweep is what Hosts and Nodes need to find annotations whose remediation does not exist.
type Sweep struct {
	// Installed has also kinds that kubemend does not act on: any may have written on a host or a node.
	Installed remediation.Installed
	// Client reads from caches and writes, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long an annotation stays whose remediation cannot be found: a backup that is being restored, or clusterctl, may
	// create the host before the remediation.
	Grace time.Duration

	// Teardown says that kubemend is being removed: a remediation that neither remembers nor keeps anything releases nothing then.
	Teardown bool

	mu    sync.Mutex
	since map[orphan]time.Time
}

// orphan is what a remediation that cannot be found has left on a host or node.
type orphan struct{ on, by types.UID }

// orphaned are those of remediations, which have written on an object of the namespace, that have not existed for longer than the grace
// period. They are looked for past the cache before they count. next is when to check again; zero if not before something changes.
func (s *Sweep) orphaned(ctx context.Context, namespace string, on types.UID, by []types.UID) (gone []types.UID, next time.Time, err error) {
	now := s.Clock.Now()
	var missing []types.UID
	if len(by) > 0 {
		if missing, err = s.missing(ctx, s.Client, namespace, by); err != nil {
			return nil, time.Time{}, err
		}
		next = now.Add(recheck)
	}
	s.mu.Lock()
	if s.since == nil {
		s.since = map[orphan]time.Time{}
	}
	maps.DeleteFunc(s.since, func(o orphan, _ time.Time) bool { return o.on == on && !slices.Contains(missing, o.by) })
	for _, uid := range missing {
		o := orphan{on, uid}
		if _, known := s.since[o]; !known {
			s.since[o] = now
		}
		if due := s.since[o].Add(s.Grace); now.Before(due) {
			next = earlier(next, due)
		} else {
			gone = append(gone, uid)
		}
	}
	s.mu.Unlock()
	if len(gone) > 0 {
		gone, err = s.missing(ctx, s.Live, namespace, gone)
	}
	return gone, next, err
}

// missing are those of remediations that do not exist, or need nothing any more.
func (s *Sweep) missing(ctx context.Context, reader client.Reader, namespace string, by []types.UID) ([]types.UID, error) {
	existing, err := s.Installed.In(ctx, reader, namespace)
	if err != nil {
		return nil, err
	}
	needed := map[types.UID]bool{}
	for _, rem := range existing.All {
		if _, remembers := rem.GetAnnotations()[mendv1.PowerCycleAnnotation]; !s.Teardown || remembers || len(rem.GetFinalizers()) > 0 {
			needed[rem.GetUID()], needed[existing.Former(rem)] = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(by), func(uid types.UID) bool { return needed[uid] }), nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// watchDeletions makes b reconcile the object of the name in the record of a remediation, of any kind, that is deleted: when it goes
// without having cleaned up, its host and its node do not change.
func (s *Sweep) watchDeletions(b *builder.Builder, name func(remediation.Record) string) error {
	kinds, err := s.Installed()
	if err != nil {
		return err
	}
	deletions := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false }, UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
	for _, kind := range kinds {
		b.Watches(kind.Watched(), handler.EnqueueRequestsFromMapFunc(func(_ context.Context, rem client.Object) []reconcile.Request {
			key := client.ObjectKey{Namespace: rem.GetNamespace(), Name: name(remediation.Remembered(rem))}
			if key.Name == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: key}}
		}), builder.WithPredicates(deletions))
	}
	return nil
}
