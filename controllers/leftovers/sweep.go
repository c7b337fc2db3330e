package leftovers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

var exhausted = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_host_exhausted",
	Help: "1 for a BareMetalHost that is marked as unhealthy, by kubemend or by hand: CAPM3 puts no machine on it.",
}, []string{"namespace", "name"})

func init() { metrics.Registry.MustRegister(exhausted) }

// Metrics returns what this package exports.
func Metrics() []prometheus.Collector { return []prometheus.Collector{exhausted} }

// Sweep looks for hosts that are kept powered off, or were to be rebooted, and for nodes that are fenced, for a remediation
// that does not exist any more: because its finalizer was removed by hand, because its namespace was restored without it, or because CAPM3
// did not remove its annotation. Such a host stays off for ever, also for the next machine that is put on it, and such a node stays empty.
//
// It also withdraws the request for owner remediation of a machine that is healthy after all and whose remediation, which would do
// that, is gone.
type Sweep struct {
	Remover
	// Installed has also kinds that kubemend does not act on: any may have written on a host or a node.
	Installed remediation.Installed
	// Fenced returns the nodes that are signed, of clusters that are cached for others, by cluster. It is nil during a teardown, which
	// reads the nodes of all clusters.
	Fenced func() map[client.ObjectKey][]*corev1.Node
	Clock  clock.PassiveClock
	// Grace is how long an annotation stays whose remediation cannot be found: a backup that is being restored, or clusterctl, may
	// create the host before the remediation.
	Grace time.Duration
	// Teardown says that kubemend is being removed: a remediation that neither remembers nor keeps anything releases nothing then.
	Teardown bool

	exported map[client.ObjectKey]bool
	mu       sync.Mutex // the nodes of several clusters are looked at side by side
	// since is when a remediation was first missed. A look that does not get to a host or node says nothing of it: only that the
	// remediation exists ends a grace period.
	since map[orphan]time.Time
}

// orphan is what a remediation that cannot be found has left on a host or node.
type orphan struct{ on, by types.UID }

// stays is for how long after the grace period a fence stays from which the workload has not moved: as long as an attempt lasts.
const stays = infrav1.DefaultTimeoutSeconds * time.Second

// sweepEvery is how soon a sweep follows the last one: all that it looks at is in caches.
const sweepEvery = 10 * time.Second

// Start sweeps until ctx ends. What fails is looked at again, with all else.
func (s *Sweep) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("leftovers"))
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		if err := s.sweep(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot release what remediations have left that do not exist any more")
		}
	}, sweepEvery)
	return nil
}

// sweep looks once. A failure for one object delays no other, and a cluster that does not answer delays no other cluster.
func (s *Sweep) sweep(ctx context.Context) error {
	if s.since == nil {
		s.since = map[orphan]time.Time{}
	}
	hosts, err := host.List(ctx, s.Client, client.UnsafeDisableDeepCopy)
	errs := []error{err}
	if err == nil {
		s.measure(hosts)
	}
	for _, listed := range hosts {
		if len(host.AllMarks(listed)) > 0 || host.MarkedFor(listed) != "" {
			errs = append(errs, s.sweepHost(ctx, listed))
		}
	}
	if s.Fenced == nil {
		return errors.Join(errs...)
	}
	var clusters sync.WaitGroup
	for cluster, nodes := range s.Fenced() {
		clusters.Go(func() {
			ctx, end := context.WithTimeout(ctx, answerWithin)
			defer end()
			for _, node := range nodes {
				if err := s.sweepNode(ctx, cluster, node); err != nil {
					s.mu.Lock()
					errs = append(errs, err)
					s.mu.Unlock()
				}
			}
		})
	}
	clusters.Wait()
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

// sweepHost removes the annotations that act on the power of a host and are orphaned, and its mark as unhealthy if its machine has
// recovered.
func (s *Sweep) sweepHost(ctx context.Context, listed *host.Host) error {
	found, err := s.Hosts.Named(ctx, client.ObjectKey{Namespace: listed.Namespace, Name: listed.Name})
	switch {
	case errors.Is(err, consistency.ErrStale):
		return nil
	case err != nil || found == nil:
		return err
	}
	on, marks := as(host.Kind, found.ObjectMeta), host.AllMarks(found)
	gone, errGone := s.orphaned(ctx, found.Namespace, found.UID, slices.Collect(maps.Values(marks)))
	maps.DeleteFunc(marks, func(_ string, uid types.UID) bool { return !slices.Contains(gone, uid) })
	var errFree, errWithdraw error
	if len(marks) > 0 {
		errFree = s.remove(ctx, &leftover{
			on: on, do: free, marks: slices.Sorted(maps.Keys(marks)), why: fmt.Sprintf("remediation %s does not exist any more", gone),
		})
	}
	machine, errMachine := s.recovered(ctx, found)
	if machine != nil {
		errWithdraw = s.remove(ctx, &leftover{
			on: on, do: withdraw, machine: machine, why: "Machine " + machine.Name + " is healthy after all",
		})
	}
	return errors.Join(errGone, errFree, errMachine, errWithdraw)
}

// sweepNode unfences a node whose fence is orphaned, once its workload has moved: on a node that is unfenced before, Kubernetes finishes
// neither its pods nor their volumes while its host is off.
func (s *Sweep) sweepNode(ctx context.Context, cluster client.ObjectKey, node *corev1.Node) error {
	by := types.UID(node.Annotations[fence.FencedByAnnotation])
	gone, err := s.orphaned(ctx, cluster.Namespace, node.UID, []types.UID{by})
	if err != nil || len(gone) == 0 {
		return err
	}
	s.mu.Lock()
	until := s.since[orphan{node.UID, by}].Add(s.Grace + stays)
	s.mu.Unlock()
	if s.Clock.Now().Before(until) && !health.Ready(node) {
		seen, err := s.Nodes.Look(ctx, cluster, node.Name, fence.Owner{UID: by})
		if err != nil || seen.Fenced && !seen.Drained {
			return err
		}
	}
	return s.remove(ctx, &leftover{
		on: as(nodeKind, node.ObjectMeta), cluster: cluster, do: unfence,
		why: fmt.Sprintf("remediation %s, which had fenced it, does not exist any more", by),
	})
}

// orphaned are those of remediations, which have written on an object of the namespace, that have not existed for longer than the grace
// period. They are looked for past the cache before they count.
func (s *Sweep) orphaned(ctx context.Context, namespace string, on types.UID, by []types.UID) ([]types.UID, error) {
	missing, err := s.missing(ctx, s.Client, namespace, by)
	if err != nil {
		return nil, err
	}
	now, gone := s.Clock.Now(), []types.UID(nil)
	s.mu.Lock()
	for _, uid := range by {
		mark := orphan{on, uid}
		if _, known := s.since[mark]; !known {
			s.since[mark] = now
		}
		switch {
		case !slices.Contains(missing, uid):
			delete(s.since, mark)
		case !now.Before(s.since[mark].Add(s.Grace)):
			gone = append(gone, uid)
		}
	}
	s.mu.Unlock()
	return s.missing(ctx, s.Live, namespace, gone)
}

// missing are those of remediations that do not exist, or need nothing any more.
func (s *Sweep) missing(ctx context.Context, reader client.Reader, namespace string, by []types.UID) ([]types.UID, error) {
	if len(by) == 0 {
		return nil, nil
	}
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

// recovered returns the machine for which a host is marked as unhealthy if that is healthy, by the health check that judges it or else by
// its node, and no remediation of it exists; else nil.
func (s *Sweep) recovered(ctx context.Context, found *host.Host) (*clusterv1.Machine, error) {
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
	if i < 0 || !mayHaveRecovered(&list.Items[i]) {
		return nil, nil
	}
	machine := &list.Items[i]
	if remediation.MarkedUnhealthy(machine) {
		if judged, err := remediation.Judged(ctx, s.Client, machine); err != nil || judged {
			return nil, err
		}
	}
	if existing, err := s.Installed.In(ctx, s.Client, found.Namespace); err != nil || len(existing.Of(machine)) > 0 {
		return nil, err
	}
	return machine, nil
}

// mayHaveRecovered reports whether a condition shows that a machine is healthy. A check that still judges it may find otherwise.
func mayHaveRecovered(machine *clusterv1.Machine) bool {
	return conditions.IsTrue(machine, clusterv1.MachineHealthCheckSucceededCondition) ||
		conditions.IsTrue(machine, clusterv1.MachineNodeHealthyCondition)
}
