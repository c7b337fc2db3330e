// Package leftovers removes what kubemend wrote on objects and nothing else will remove. While kubemend runs, Sweep removes
// what remediations of hosts have left that do not exist any more. Teardown removes everything, so that kubemend can be uninstalled.
//
// It begins nothing, and never touches what a remediation that exists may still need: a power cycle ends in its own order.
package leftovers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/recorder"
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

// Sweep looks for hosts that are kept powered off, or were to be rebooted, and for nodes that are fenced, for a remediation
// that does not exist any more: because its finalizer was removed by hand, because its namespace was restored without it, or because CAPM3
// did not remove its annotation. Such a host stays off for ever, also for the next machine that is put on it, and such a node stays empty.
//
// It also withdraws the request for owner remediation of a machine that is healthy after all and whose remediation, which would do
// that, is gone.
type Sweep struct {
	// Installed has also kinds that kubemend does not act on: any may have written on a host or a node.
	Installed remediation.Installed
	// Client reads from caches and writes, Live reads past the caches.
	Client client.Client
	Live   client.Reader
	Hosts  *host.Hosts
	Nodes  interface {
		Unfencer
		Look(ctx context.Context, cluster client.ObjectKey, node string, by fence.Owner) (fence.Seen, error)
	}
	// Fenced returns the nodes that are signed, of clusters that are cached for others, by cluster. It is nil during a teardown, which
	// reads the nodes of all clusters.
	Fenced   func() map[client.ObjectKey][]*corev1.Node
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long an annotation stays whose remediation cannot be found: a backup that is being restored, or clusterctl, may
	// create the host before the remediation.
	Grace time.Duration
	// Teardown says that kubemend is being removed: a remediation that neither remembers nor keeps anything releases nothing then.
	Teardown bool

	since    map[orphan]time.Time // as of the look before
	exported map[client.ObjectKey]bool
}

// orphan is what a remediation that cannot be found has left on a host or node.
type orphan struct{ on, by types.UID }

// stays is for how long after the grace period a fence stays from which the workload has not moved: as long as an attempt lasts.
const stays = infrav1.DefaultTimeoutSeconds * time.Second

// SetupWithManager makes s a controller of mgr with one key: whatever may leave something behind has all that is left looked at.
func (s *Sweep) SetupWithManager(mgr ctrl.Manager) error {
	kinds, err := s.Installed()
	if err != nil {
		return err
	}
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return make([]reconcile.Request, 1) })
	b := ctrl.NewControllerManagedBy(mgr).Named("leftovers").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: time.Minute}).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		})).
		Watches(host.Watched(), all, builder.WithPredicates(marked())).
		Watches(&clusterv1.Machine{}, all, builder.WithPredicates(recoveries()))
	for _, kind := range kinds {
		b.Watches(kind.Watched(), all, builder.WithPredicates(deletions()))
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that releases orphaned hosts and nodes: %w", err)
	}
	return nil
}

// marked lets a host through that has annotations of remediations, or has had some until now.
func marked() predicate.Predicate {
	has := func(o client.Object) bool {
		return len(host.AllMarks(o)) > 0 || host.MarkedFor(o) != "" || host.Unhealthy(o)
	}
	p := predicate.NewPredicateFuncs(has)
	p.UpdateFunc = func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) }
	return p
}

// recoveries lets a machine through that has become healthy.
func recoveries() predicate.Predicate {
	p := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	p.UpdateFunc = func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
		return mayHaveRecovered(after) &&
			(!mayHaveRecovered(before) || remediation.MarkedUnhealthy(before) && !remediation.MarkedUnhealthy(after))
	}
	return p
}

// deletions lets a remediation through that goes: where it did not clean up, its host and its node do not change.
func deletions() predicate.Predicate {
	p := predicate.NewPredicateFuncs(func(client.Object) bool { return false })
	p.DeleteFunc = func(event.DeleteEvent) bool { return true }
	return p
}

// Reconcile looks at all hosts and fenced nodes. What fails is looked at again, with all else.
func (s *Sweep) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	if err := s.sweep(ctx); err != nil {
		log.FromContext(ctx).Error(err, "Cannot release what remediations have left that do not exist any more")
	}
	return ctrl.Result{RequeueAfter: seldom}, nil
}

// sweep looks once. A failure for one object delays no other: all are looked at again.
func (s *Sweep) sweep(ctx context.Context) error {
	hosts, err := host.List(ctx, s.Client, client.UnsafeDisableDeepCopy)
	errs, since := []error{err}, map[orphan]time.Time{}
	if err == nil {
		s.measure(hosts)
	}
	for _, found := range hosts {
		if len(host.AllMarks(found)) > 0 || host.MarkedFor(found) != "" {
			errs = append(errs, s.sweepHost(ctx, found, since))
		}
	}
	if s.Fenced != nil {
		for cluster, nodes := range s.Fenced() {
			for _, node := range nodes {
				errs = append(errs, s.sweepNode(ctx, cluster, node, since))
			}
		}
	}
	s.since = since
	return errors.Join(errs...)
}

// measure exports which hosts are marked as unhealthy.
func (s *Sweep) measure(hosts []*host.Host) {
	marked := map[client.ObjectKey]bool{}
	for _, found := range hosts {
		if host.Unhealthy(found) {
			marked[client.ObjectKey{Namespace: found.Namespace, Name: found.Name}] = true
			exhausted.WithLabelValues(found.Namespace, found.Name).Set(1)
		}
	}
	for key := range s.exported {
		if !marked[key] {
			exhausted.DeleteLabelValues(key.Namespace, key.Name)
		}
	}
	s.exported = marked
}

// sweepHost releases a host, and withdraws the request for owner remediation of its machine, as far as either is due.
func (s *Sweep) sweepHost(ctx context.Context, listed *host.Host, since map[orphan]time.Time) error {
	found, err := s.Hosts.Named(ctx, client.ObjectKey{Namespace: listed.Namespace, Name: listed.Name})
	switch {
	case errors.Is(err, consistency.ErrStale):
		return nil
	case err != nil || found == nil:
		return err
	}
	return errors.Join(s.release(ctx, found, since), s.withdraw(ctx, found))
}

// release removes the annotations that act on the power of found and are orphaned.
func (s *Sweep) release(ctx context.Context, found *host.Host, since map[orphan]time.Time) error {
	marks := host.AllMarks(found)
	gone, err := s.orphaned(ctx, found.Namespace, found.UID, slices.Collect(maps.Values(marks)), since)
	if err != nil || len(gone) == 0 {
		return err
	}
	maps.DeleteFunc(marks, func(_ string, uid types.UID) bool { return !slices.Contains(gone, uid) })
	if err := s.Hosts.RemoveOrphans(ctx, found, marks); err != nil {
		if apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	for key, uid := range marks {
		s.report(host.Reference(found), mendv1.EventOrphanSwept, "Release",
			fmt.Sprintf("Removed annotation %s: remediation %s does not exist any more", key, uid))
	}
	return nil
}

// sweepNode unfences a node whose fence is orphaned, once its workload has moved: on a node that is unfenced before, Kubernetes finishes
// neither its pods nor their volumes while its host is off.
func (s *Sweep) sweepNode(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, since map[orphan]time.Time) error {
	by := types.UID(node.Annotations[fence.FencedByAnnotation])
	gone, err := s.orphaned(ctx, cluster.Namespace, node.UID, []types.UID{by}, since)
	if err != nil || len(gone) == 0 {
		return err
	}
	if until := since[orphan{node.UID, by}].Add(s.Grace + stays); s.Clock.Now().Before(until) && !ready(node) {
		seen, err := s.Nodes.Look(ctx, cluster, node.Name, fence.Owner{UID: by})
		if err != nil || seen.Presence == fence.Unseen || seen.Fenced && !seen.Drained {
			return err
		}
	}
	if err := s.Nodes.Unfence(ctx, cluster, node, fence.Owner{UID: by}); err != nil {
		return err
	}
	s.report(as(clusterKind, metav1.ObjectMeta{Namespace: cluster.Namespace, Name: cluster.Name}), mendv1.EventOrphanSwept, "Unfence",
		fmt.Sprintf("Unfenced node %s: remediation %s, which had fenced it, does not exist any more", node.Name, by))
	return nil
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
		return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
	})
}

// orphaned are those of remediations, which have written on an object of the namespace, that have not existed for longer than the grace
// period. They are looked for past the cache before they count. since is filled with when those that do not exist were first missed.
func (s *Sweep) orphaned(
	ctx context.Context, namespace string, on types.UID, by []types.UID, since map[orphan]time.Time,
) ([]types.UID, error) {
	if len(by) == 0 {
		return nil, nil
	}
	missing, err := s.missing(ctx, s.Client, namespace, by)
	if err != nil {
		return nil, err
	}
	now, gone := s.Clock.Now(), []types.UID(nil)
	for _, uid := range missing {
		o := orphan{on, uid}
		if first, known := s.since[o]; known {
			since[o] = first
		} else {
			since[o] = now
		}
		if !now.Before(since[o].Add(s.Grace)) {
			gone = append(gone, uid)
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	return s.missing(ctx, s.Live, namespace, gone)
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

// withdraw removes the mark of an unhealthy host from found and withdraws the request for owner remediation of its machine, if that is
// healthy and no remediation of it exists.
func (s *Sweep) withdraw(ctx context.Context, found *host.Host) error {
	machine, err := s.markedMachine(ctx, found)
	if err != nil || machine == nil {
		return err
	}
	if healthy, err := s.recovered(ctx, machine); err != nil || !healthy {
		return err
	}
	if existing, err := s.Installed.In(ctx, s.Client, found.Namespace); err != nil || len(existing.Of(machine)) > 0 {
		return err
	}
	if err := remediation.WithdrawFromOwner(ctx, s.Client, machine); err != nil {
		return err
	}
	if err := s.Hosts.MarkHealthy(ctx, found, machine.UID); err != nil {
		return err
	}
	s.report(host.Reference(found), mendv1.EventMarkRemoved, "Release",
		"Machine "+machine.Name+" is healthy after all: the host is no longer marked as unhealthy")
	return nil
}

func (s *Sweep) report(about *metadata, reason, action, text string) {
	recorder.Send(s.Recorder, recorder.Event{About: about, Kind: corev1.EventTypeNormal, Reason: reason, Action: action, Text: text})
}

// markedMachine returns the machine for which found is marked as unhealthy; nil if it is not, or if there is no such machine any more.
func (s *Sweep) markedMachine(ctx context.Context, found *host.Host) (*clusterv1.Machine, error) {
	uid := host.MarkedFor(found)
	if uid == "" {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := s.Client.List(ctx, list, client.InNamespace(found.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the machines in %s: %w", found.Namespace, err)
	}
	i := slices.IndexFunc(list.Items, func(machine clusterv1.Machine) bool {
		return machine.UID == uid && machine.DeletionTimestamp.IsZero()
	})
	if i < 0 {
		return nil, nil
	}
	return &list.Items[i], nil
}

// mayHaveRecovered reports whether a condition shows that a machine is healthy. A health check that still judges it may have another
// verdict.
func mayHaveRecovered(machine *clusterv1.Machine) bool {
	return remediation.ConditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionTrue ||
		remediation.ConditionOf(machine, clusterv1.MachineNodeHealthyCondition) == metav1.ConditionTrue
}

// recovered reports whether a machine whose owner was asked is healthy, by the health check that judges it, or else by its node.
func (s *Sweep) recovered(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	if !mayHaveRecovered(machine) {
		return false, nil
	}
	if !remediation.MarkedUnhealthy(machine) {
		return true, nil
	}
	judged, err := remediation.Judged(ctx, s.Client, machine)
	return !judged && err == nil, err
}
