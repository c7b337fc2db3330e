package sweeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// Hosts releases hosts that are kept powered off, or were to be rebooted, for a remediation that does not exist any more: because its finalizer was
// removed by hand, because its namespace was restored without it, or because CAPM3 did not remove its annotation. Such a host stays off for ever, also for
// the next machine that is put on it.
//
// It also withdraws the request for owner remediation of a machine that is healthy after all and whose remediation, which would do that, is gone.
type Hosts struct {
	// Installed has also kinds that kubemend does not act on: any may have annotated a host.
	Installed remediation.Installed
	// Client reads from caches and writes, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Hosts    *host.Hosts
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long an annotation whose remediation cannot be found stays.
	Grace time.Duration
	// Teardown says that kubemend is being removed: a remediation that neither remembers nor keeps anything releases nothing then.
	Teardown bool

	orphans orphans[types.UID] // by host
}

var exhausted = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_host_exhausted",
	Help: "1 for a BareMetalHost that is marked as unhealthy, by kubemend or by hand: CAPM3 puts no machine on it.",
}, []string{"namespace", "name"})

func init() { metrics.Registry.MustRegister(exhausted) }

// Metrics returns what this package exports.
func Metrics() []prometheus.Collector { return []prometheus.Collector{exhausted} }

// measure exports whether the BareMetalHost called key is marked as unhealthy. h is nil if it is gone.
func measure(key client.ObjectKey, h *bmov1alpha1.BareMetalHost) {
	if h == nil || !host.Unhealthy(h) {
		exhausted.DeleteLabelValues(key.Namespace, key.Name)
		return
	}
	exhausted.WithLabelValues(key.Namespace, key.Name).Set(1)
}

// Reconcile checks the host called req.
func (s *Hosts) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	h := &bmov1alpha1.BareMetalHost{}
	if err := s.Client.Get(ctx, req.NamespacedName, h); apierrors.IsNotFound(err) {
		measure(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read BareMetalHost %s: %w", req.NamespacedName, err)
	}
	measure(req.NamespacedName, h)
	next, err := s.release(ctx, h)
	waits, withdrawErr := s.withdraw(ctx, h)
	if waits && (next == 0 || next > recheck) {
		next = recheck
	}
	if err := errors.Join(err, withdrawErr); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// release removes the annotations that act on the power of h and are orphaned for longer than the grace period. It returns when to check again; zero
// if not before something changes.
func (s *Hosts) release(ctx context.Context, h *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	marks := host.AllMarks(h)
	if len(marks) == 0 {
		s.orphans.forget(h.UID)
		return 0, nil
	}
	orphaned, err := s.orphaned(ctx, s.Client, h.Namespace, marks)
	if err != nil {
		return 0, err
	}
	if len(orphaned) == 0 {
		s.orphans.forget(h.UID)
		return recheck, nil
	}
	now := s.Clock.Now()
	if due := s.orphans.first(h.UID, now).Add(s.Grace); now.Before(due) {
		return due.Sub(now), nil
	}
	if orphaned, err = s.orphaned(ctx, s.Live, h.Namespace, marks); err != nil || len(orphaned) == 0 {
		return 0, err
	}
	switch err := s.Hosts.RemoveOrphans(ctx, h, orphaned); {
	case apierrors.IsConflict(err):
		return enqueue.Conflicted, nil
	case err != nil:
		return 0, err
	}
	for key, uid := range orphaned {
		s.report(h, mendv1.EventOrphanSwept, fmt.Sprintf("Removed annotation %s: remediation %s does not exist any more", key, uid))
	}
	s.orphans.forget(h.UID)
	return 0, nil
}

// orphaned are those of the annotations of a host whose remediation does not exist.
func (s *Hosts) orphaned(ctx context.Context, reader client.Reader, namespace string, marks map[string]types.UID) (map[string]types.UID, error) {
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
	orphaned := map[string]types.UID{}
	for key, uid := range marks {
		if !needed[uid] {
			orphaned[key] = uid
		}
	}
	return orphaned, nil
}

// withdraw removes the mark of an unhealthy host from h and withdraws the request for owner remediation of its machine, if that is healthy and no
// remediation of it exists. It reports whether to check again.
func (s *Hosts) withdraw(ctx context.Context, h *bmov1alpha1.BareMetalHost) (again bool, err error) {
	m, err := s.markedMachine(ctx, h)
	if err != nil || m == nil {
		return false, err
	}
	if healthy, err := s.recovered(ctx, m); err != nil || !healthy {
		return true, err
	}
	if existing, err := s.Installed.In(ctx, s.Client, h.Namespace); err != nil || len(existing.Of(m)) > 0 {
		return true, err
	}
	if err := remediation.WithdrawFromOwner(ctx, s.Client, m); err != nil {
		return true, err
	}
	if err := s.Hosts.MarkHealthy(ctx, h, m.UID); err != nil {
		return true, err
	}
	s.report(h, mendv1.EventMarkRemoved, "Machine "+m.Name+" is healthy after all: the host is no longer marked as unhealthy")
	return false, nil
}

func (s *Hosts) report(h *bmov1alpha1.BareMetalHost, reason, text string) {
	recorder.Send(s.Recorder, recorder.Event{About: host.Reference(h), Kind: corev1.EventTypeNormal, Reason: reason, Action: "Release", Text: text})
}

// markedMachine returns the machine for which h is marked as unhealthy; nil if it is not, or if there is no such machine any more.
func (s *Hosts) markedMachine(ctx context.Context, h *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
	uid := host.MarkedFor(h)
	if uid == "" {
		return nil, nil
	}
	list := &clusterv1.MachineList{}
	if err := s.Client.List(ctx, list, client.InNamespace(h.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the machines in %s: %w", h.Namespace, err)
	}
	for i := range list.Items {
		if m := &list.Items[i]; m.UID == uid && m.DeletionTimestamp.IsZero() {
			return m, nil
		}
	}
	return nil, nil
}

// recovered reports whether a machine whose owner was asked is healthy, by the health check that judges it, or else by its node.
func (s *Hosts) recovered(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	if !mayHaveRecovered(m) {
		return false, nil
	}
	if !remediation.MarkedUnhealthy(m) {
		return true, nil
	}
	judged, err := remediation.Judged(ctx, s.Client, m)
	return !judged && err == nil, err
}

// mayHaveRecovered reports whether a condition shows that m is healthy. A health check that still judges m may have another verdict.
func mayHaveRecovered(m *clusterv1.Machine) bool {
	return remediation.ConditionOf(m, clusterv1.MachineHealthCheckSucceededCondition) == metav1.ConditionTrue ||
		remediation.ConditionOf(m, clusterv1.MachineNodeHealthyCondition) == metav1.ConditionTrue
}

// SetupWithManager makes s a controller of mgr.
func (s *Hosts) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("hostsweep").WithOptions(options).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(marked())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(s.markedFor), builder.WithPredicates(recoveries()))
	if err := watchDeletions(b, s.Installed, func(rec remediation.Record) string { return rec.Host }); err != nil {
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
		h := o.(*bmov1alpha1.BareMetalHost)
		return len(host.AllMarks(h)) > 0 || host.MarkedFor(h) != "" || host.Unhealthy(h)
	}
	p := predicate.NewPredicateFuncs(has)
	p.UpdateFunc = func(e event.UpdateEvent) bool { return has(e.ObjectOld) || has(e.ObjectNew) }
	return p
}

// markedFor maps a machine to the host that is marked as unhealthy for it.
func (s *Hosts) markedFor(ctx context.Context, o client.Object) []reconcile.Request {
	list := &bmov1alpha1.BareMetalHostList{}
	if err := s.Client.List(ctx, list, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is shutting down
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if h := &list.Items[i]; host.MarkedFor(h) == o.GetUID() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(h)})
		}
	}
	return requests
}

// recoveries lets a machine through that has become healthy.
func recoveries() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			return mayHaveRecovered(is) && (!mayHaveRecovered(was) || remediation.MarkedUnhealthy(was) && !remediation.MarkedUnhealthy(is))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}
