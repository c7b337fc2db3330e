package leftovers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/consistency"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// Hosts releases hosts that are kept powered off, or were to be rebooted, for a remediation that does not exist any more: because its
// finalizer was removed by hand, because its namespace was restored without it, or because CAPM3 did not remove its annotation. Such a
// host stays off for ever, also for the next machine that is put on it.
//
// It also withdraws the request for owner remediation of a machine that is healthy after all and whose remediation, which would do
// that, is gone.
type Hosts struct {
	*Sweep
	Hosts *host.Hosts
}

// measure exports whether the host called key is marked as unhealthy; nil if it is gone.
func measure(key client.ObjectKey, found *host.Host) {
	if found == nil || !host.Unhealthy(found) {
		exhausted.DeleteLabelValues(key.Namespace, key.Name)
		return
	}
	exhausted.WithLabelValues(key.Namespace, key.Name).Set(1)
}

// Reconcile checks the host called req.
func (s *Hosts) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	found, err := s.Hosts.Named(ctx, req.NamespacedName)
	switch {
	case errors.Is(err, consistency.ErrStale):
		return ctrl.Result{RequeueAfter: enqueue.Conflicted}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	measure(req.NamespacedName, found)
	if found == nil {
		return ctrl.Result{}, nil
	}
	next, err := s.release(ctx, found)
	waits, withdrawErr := s.withdraw(ctx, found)
	if waits {
		next = earlier(next, s.Clock.Now().Add(recheck))
	}
	if err := errors.Join(err, withdrawErr); err != nil {
		return ctrl.Result{}, err
	}
	return enqueue.At(next, s.Clock.Now()), nil
}

// release removes the annotations that act on the power of found and are orphaned. It returns when to check again; zero if not before
// something changes.
func (s *Hosts) release(ctx context.Context, found *host.Host) (time.Time, error) {
	marks := host.AllMarks(found)
	gone, next, err := s.orphaned(ctx, found.Namespace, found.UID, slices.Collect(maps.Values(marks)))
	if err != nil || len(gone) == 0 {
		return next, err
	}
	maps.DeleteFunc(marks, func(_ string, uid types.UID) bool { return !slices.Contains(gone, uid) })
	switch err := s.Hosts.RemoveOrphans(ctx, found, marks); {
	case apierrors.IsConflict(err):
		return s.Clock.Now().Add(enqueue.Conflicted), nil
	case err != nil:
		return time.Time{}, err
	}
	for key, uid := range marks {
		s.report(found, mendv1.EventOrphanSwept, fmt.Sprintf("Removed annotation %s: remediation %s does not exist any more", key, uid))
	}
	return time.Time{}, nil
}

// withdraw removes the mark of an unhealthy host from found and withdraws the request for owner remediation of its machine, if that is
// healthy and no remediation of it exists. It reports whether to check again.
func (s *Hosts) withdraw(ctx context.Context, found *host.Host) (again bool, err error) {
	machine, err := s.markedMachine(ctx, found)
	if err != nil || machine == nil {
		return false, err
	}
	if healthy, err := s.recovered(ctx, machine); err != nil || !healthy {
		return true, err
	}
	if existing, err := s.Installed.In(ctx, s.Client, found.Namespace); err != nil || len(existing.Of(machine)) > 0 {
		return true, err
	}
	if err := remediation.WithdrawFromOwner(ctx, s.Client, machine); err != nil {
		return true, err
	}
	if err := s.Hosts.MarkHealthy(ctx, found, machine.UID); err != nil {
		return true, err
	}
	s.report(found, mendv1.EventMarkRemoved, "Machine "+machine.Name+" is healthy after all: the host is no longer marked as unhealthy")
	return false, nil
}

func (s *Hosts) report(found *host.Host, reason, text string) {
	recorder.Send(s.Recorder, recorder.Event{
		About: host.Reference(found), Kind: corev1.EventTypeNormal, Reason: reason, Action: "Release", Text: text,
	})
}

// markedMachine returns the machine for which found is marked as unhealthy; nil if it is not, or if there is no such machine any more.
func (s *Hosts) markedMachine(ctx context.Context, found *host.Host) (*clusterv1.Machine, error) {
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

// recovered reports whether a machine whose owner was asked is healthy, by the health check that judges it, or else by its node.
func (s *Hosts) recovered(ctx context.Context, machine *clusterv1.Machine) (bool, error) {
	if !mayHaveRecovered(machine) {
		return false, nil
	}
	if !remediation.MarkedUnhealthy(machine) {
		return true, nil
	}
	judged, err := remediation.Judged(ctx, s.Client, machine)
	return !judged && err == nil, err
}

// mayHaveRecovered reports whether a condition shows that a machine is healthy. A health check that still judges it may have another
// verdict.
func mayHaveRecovered(machine *clusterv1.Machine) bool {
	return remediation.ConditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionTrue ||
		remediation.ConditionOf(machine, clusterv1.MachineNodeHealthyCondition) == metav1.ConditionTrue
}

// SetupWithManager makes s a controller of mgr.
func (s *Hosts) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("hostsweep").WithOptions(options).
		For(host.Watched(), builder.WithPredicates(marked())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(s.markedFor), builder.WithPredicates(recoveries()))
	if err := s.watchDeletions(b, func(record remediation.Record) string { return record.Host }); err != nil {
		return err
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that releases orphaned hosts: %w", err)
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

// markedFor maps a machine to the host that is marked as unhealthy for it.
func (s *Hosts) markedFor(ctx context.Context, machine client.Object) []reconcile.Request {
	hosts, err := host.List(ctx, s.Client, client.InNamespace(machine.GetNamespace()), client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the cache is shutting down
	}
	var requests []reconcile.Request
	for _, found := range hosts {
		if host.MarkedFor(found) == machine.GetUID() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(host.Reference(found))})
		}
	}
	return requests
}

// recoveries lets a machine through that has become healthy.
func recoveries() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			return mayHaveRecovered(after) &&
				(!mayHaveRecovered(before) || remediation.MarkedUnhealthy(before) && !remediation.MarkedUnhealthy(after))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
