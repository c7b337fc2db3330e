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

// Metrics returns the metrics of this package.
func Metrics() []prometheus.Collector { return []prometheus.Collector{exhausted} }

// Sweep removes the annotations that keep a host powered off or reboot it, and the fence of a node, if their remediation does not exist any
// more. That happens if a user removed its finalizer, if the namespace was restored without it, or if CAPM3 did not remove its annotation.
// Otherwise the host would stay off, also for the next machine that is put on it, and the node would stay empty.
//
// Sweep also withdraws the request for owner remediation of a machine that is healthy again and whose remediation is gone.
type Sweep struct {
	Remover
	// Installed returns all installed kinds, also kinds that kubemend does not serve: any of them may have written on a host or a node.
	Installed remediation.Installed
	// Fenced returns the fenced nodes in the existing caches of workload clusters, by Cluster. It is nil during a teardown, which reads the
	// nodes itself.
	Fenced func() map[client.ObjectKey][]*corev1.Node
	Clock  clock.PassiveClock
	// Grace is how long an annotation stays while its remediation is missing, because clusterctl move and the restore of a backup may
	// create the host before the remediation.
	Grace time.Duration
	// Teardown says that kubemend is being removed. Then a remediation with neither a finalizer nor a recorded power cycle counts as
	// missing, because it releases nothing.
	Teardown bool

	exported map[client.ObjectKey]bool // the hosts that the metric has
	mu       sync.Mutex                // the nodes of several clusters are swept concurrently
	// since is when a remediation was first missing. Only a sweep that finds the remediation ends a grace period; a sweep that fails to
	// read a host or a node does not.
	since map[orphan]time.Time
}

// orphan identifies a host or a node (on), and the missing remediation that wrote on it (by).
type orphan struct{ on, by types.UID }

// stays is how long after the grace period a fence stays if the workload has not moved: the default duration of an attempt.
const stays = infrav1.DefaultTimeoutSeconds * time.Second

// sweepEvery is the time between two sweeps. It is short because a sweep reads from caches.
const sweepEvery = 10 * time.Second

// Start sweeps until ctx ends. It logs errors, and the next sweep tries again.
func (s *Sweep) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("leftovers"))
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		ctx, end := context.WithTimeout(ctx, time.Minute)
		defer end()
		if err := s.sweep(ctx); err != nil {
			log.FromContext(ctx).Error(err, "Cannot remove what remediations have left that do not exist any more")
		}
	}, sweepEvery)
	return nil
}

// sweep sweeps once. An error of one object does not stop the others, and a cluster that does not answer does not delay the others.
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

// measure updates the metric of the hosts that are marked as unhealthy.
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

// sweepHost removes the orphaned power annotations of a host, and its mark as unhealthy if its machine has recovered.
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

// sweepNode unfences a node whose fence is orphaned, once its workload has moved, but at the latest after Grace + stays. While the host is
// off, Kubernetes deletes the pods of the node and detaches their volumes only because of the taint.
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

// orphaned returns the UIDs in by whose remediation has been missing in the namespace for longer than the grace period, and is missing on
// the API server too. on is the UID of the object that the remediations wrote on.
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

// missing returns the UIDs in by whose remediation does not exist, or counts as missing during a teardown.
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

// recovered returns the machine for which a host is marked as unhealthy, if the machine is healthy and no remediation of it exists, or else
// nil. The machine's health check decides whether it is healthy or, if it has none, its node.
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
		return machine.UID == uid && machine.DeletionTimestamp.IsZero() &&
			(conditions.IsTrue(&machine, clusterv1.MachineHealthCheckSucceededCondition) ||
				conditions.IsTrue(&machine, clusterv1.MachineNodeHealthyCondition))
	})
	if i < 0 {
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
