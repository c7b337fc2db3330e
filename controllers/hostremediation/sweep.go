package hostremediation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
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
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// Sweeper lets go of hosts that are held off, or were to be rebooted, for a remediation that does not exist any more: because its
// finalizer was taken away by hand, because its namespace was restored without it, or because CAPM3 left its mark behind. Such a host
// stays off for ever, also for the next machine that is put on it.
//
// It also takes a hand-over back when the machine is well after all and its remediation, which would do that, is gone already.
type Sweeper struct {
	// Installed returns the kinds of remediations that exist, also those that are not ours to act on: any may have made a mark.
	Installed func() ([]Kind, error)
	// Client reads from caches and writes, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Hosts    Hosts
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long a mark whose remediation cannot be found stays: a backup that is being restored, or clusterctl, may make the
	// host before the remediation.
	Grace time.Duration
	// Leaving says that kubemend is being removed: a remediation that neither remembers nor keeps anything lets go of nothing then.
	Leaving bool

	mu    sync.Mutex
	since map[types.UID]time.Time // host, to when it was first seen with an orphaned mark
}

// marksRecheck is how soon to look again at a host that bears marks, should nobody have said that their remediation is gone.
const marksRecheck = 10 * time.Minute

// Reconcile looks at the host called req.
func (s *Sweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	h := &bmov1alpha1.BareMetalHost{}
	if err := s.Client.Get(ctx, req.NamespacedName, h); apierrors.IsNotFound(err) {
		measureHost(req.NamespacedName, nil)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read BareMetalHost %s: %w", req.NamespacedName, err)
	}
	measureHost(req.NamespacedName, h)
	result, err := s.letGo(ctx, h)
	waits, takeErr := s.takeBack(ctx, h)
	if waits && (result.RequeueAfter == 0 || result.RequeueAfter > marksRecheck) {
		result.RequeueAfter = marksRecheck
	}
	if err := errors.Join(err, takeErr); err != nil {
		return ctrl.Result{}, err
	}
	return result, nil
}

// letGo takes the marks off h that act on its power and are orphaned for longer than the grace period.
func (s *Sweeper) letGo(ctx context.Context, h *bmov1alpha1.BareMetalHost) (ctrl.Result, error) {
	marks := host.AllMarks(h)
	if len(marks) == 0 {
		s.forget(h.UID)
		return ctrl.Result{}, nil
	}
	known, err := s.remediations(ctx, s.Client, h.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(orphans(marks, known)) == 0 {
		s.forget(h.UID)
		return ctrl.Result{RequeueAfter: marksRecheck}, nil
	}
	now := s.Clock.Now()
	if due := s.first(h.UID, now).Add(s.Grace); now.Before(due) {
		return ctrl.Result{RequeueAfter: due.Sub(now)}, nil
	}
	return ctrl.Result{}, s.sweep(ctx, h, marks)
}

// takeBack takes away that h is marked as unhealthy, and that the owner of its machine is asked to replace that, if the machine is well.
// One that is remediated still, or again, is left to its remediation. It reports whether there is a machine for which to look again.
func (s *Sweeper) takeBack(ctx context.Context, h *bmov1alpha1.BareMetalHost) (waits bool, err error) {
	m, err := s.markedMachine(ctx, h)
	if err != nil || m == nil {
		return false, err
	}
	if well, err := s.recovered(ctx, m); err != nil || !well {
		return true, err
	}
	kinds, err := s.Installed()
	if err != nil {
		return true, err
	}
	for _, kind := range kinds {
		all, err := kind.all(ctx, s.Client, h.Namespace)
		if err != nil {
			return true, err
		}
		if slices.ContainsFunc(all, func(rem client.Object) bool { return ownedBy(rem, m) }) {
			return true, nil
		}
	}
	if err := withdraw(ctx, s.Client, m); err != nil {
		return true, err
	}
	if err := s.Hosts.MarkHealthy(ctx, h, m.UID); err != nil {
		return true, err
	}
	s.tell(h, mendv1.EventMarkRemoved, fmt.Sprintf("Machine %s is well after all: the host is not marked as unhealthy any more", m.Name))
	return false, nil
}

func (s *Sweeper) tell(h *bmov1alpha1.BareMetalHost, reason, text string) {
	recorder.Send(s.Recorder, recorder.Event{About: hostOf(h), Kind: corev1.EventTypeNormal, Reason: reason, Action: "Release", Text: text})
}

// markedMachine returns the machine for which h is marked as unhealthy, if it is, and if there still is that machine.
func (s *Sweeper) markedMachine(ctx context.Context, h *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
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

// recovered reports whether a machine that was handed over is well, by the word of the health check, or where none judges it, of its node.
func (s *Sweeper) recovered(ctx context.Context, m *clusterv1.Machine) (bool, error) {
	if !mayHaveRecovered(m) {
		return false, nil
	}
	if !markedUnhealthy(m) {
		return true, nil
	}
	still, err := judged(ctx, s.Client, m)
	return !still && err == nil, err
}

// mayHaveRecovered reports whether anybody says that m is well. Whether a health check that says otherwise still judges it is another matter.
func mayHaveRecovered(m *clusterv1.Machine) bool {
	checked, node := said(m, clusterv1.MachineHealthCheckSucceededCondition), said(m, clusterv1.MachineNodeHealthyCondition)
	return checked == metav1.ConditionTrue || node == metav1.ConditionTrue
}

// sweep takes away what is still orphaned when the API server itself is asked.
func (s *Sweeper) sweep(ctx context.Context, h *bmov1alpha1.BareMetalHost, marks map[string]types.UID) error {
	known, err := s.remediations(ctx, s.Live, h.Namespace)
	if err != nil {
		return err
	}
	away := map[string]any{}
	for key := range orphans(marks, known) {
		away[key] = nil
		if _, hold := host.KeptOffFor(key); !hold && host.RebootAsked(h) {
			away[infrav1.RebootAnnotation] = nil // it is what that remediation asked for
		}
	}
	if len(away) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": h.UID, "annotations": away}})
	if err != nil {
		return fmt.Errorf("sweep BareMetalHost %s/%s: %w", h.Namespace, h.Name, err)
	}
	target := &bmov1alpha1.BareMetalHost{}
	target.Name, target.Namespace = h.Name, h.Namespace
	err = s.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("sweep BareMetalHost %s/%s: %w", h.Namespace, h.Name, err)
	}
	for key, uid := range orphans(marks, known) {
		s.tell(h, mendv1.EventOrphanSwept, fmt.Sprintf("Removed annotation %s: remediation %s does not exist any more", key, uid))
	}
	s.forget(h.UID)
	return nil
}

// remediations returns the UIDs of all remediations of a namespace, and those that they had before they were moved.
func (s *Sweeper) remediations(ctx context.Context, reader client.Reader, namespace string) (map[types.UID]bool, error) {
	kinds, err := s.Installed()
	if err != nil {
		return nil, err
	}
	living, err := censusOf(ctx, reader, kinds, namespace)
	if err != nil {
		return nil, err
	}
	known := map[types.UID]bool{}
	for _, rem := range living.all {
		if _, remembers := rem.GetAnnotations()[mendv1.PowerCycleAnnotation]; s.Leaving && !remembers && len(rem.GetFinalizers()) == 0 {
			continue
		}
		known[rem.GetUID()], known[living.former(rem)] = true, true
	}
	return known, nil
}

// orphans are the marks of which no remediation is known.
func orphans(marks map[string]types.UID, known map[types.UID]bool) map[string]types.UID {
	left := map[string]types.UID{}
	for key, uid := range marks {
		if !known[uid] {
			left[key] = uid
		}
	}
	return left
}

func (s *Sweeper) first(uid types.UID, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since == nil {
		s.since = map[types.UID]time.Time{}
	}
	if _, seen := s.since[uid]; !seen {
		s.since[uid] = now
	}
	return s.since[uid]
}

func (s *Sweeper) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.since, uid)
}

// SetupWithManager makes s a controller of mgr.
func (s *Sweeper) SetupWithManager(mgr ctrl.Manager, options controller.Options) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("hostsweep").WithOptions(options).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(marked())).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(s.markedFor), builder.WithPredicates(recoveries()))
	if err := watchDeletions(b, s.Installed, rememberedHost); err != nil {
		return err
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that lets go of orphaned hosts: %w", err)
	}
	return nil
}

// watchDeletions has b hear of remediations of any kind that are deleted, by what of maps them to.
func watchDeletions(b *builder.Builder, installed func() ([]Kind, error), of handler.MapFunc) error {
	kinds, err := installed()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		b.Watches(kind.watched(), handler.EnqueueRequestsFromMapFunc(of), builder.WithPredicates(deletions()))
	}
	return nil
}

// marked passes a host that bears a mark, and one that has borne one until now.
func marked() predicate.Predicate {
	is := func(o client.Object) bool {
		h := o.(*bmov1alpha1.BareMetalHost)
		return len(host.AllMarks(h)) > 0 || host.MarkedFor(h) != "" || host.Unhealthy(h)
	}
	passes := predicate.NewPredicateFuncs(is)
	passes.UpdateFunc = func(e event.UpdateEvent) bool { return is(e.ObjectOld) || is(e.ObjectNew) }
	return passes
}

// markedFor maps a machine to the host that is marked as unhealthy for it.
func (s *Sweeper) markedFor(ctx context.Context, o client.Object) []reconcile.Request {
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

// recoveries passes a machine that has become well.
func recoveries() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.(*clusterv1.Machine), e.ObjectNew.(*clusterv1.Machine)
			return mayHaveRecovered(is) && (!mayHaveRecovered(was) || markedUnhealthy(was) && !markedUnhealthy(is))
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// rememberedHost maps a remediation to its host: when it goes without having let go, the host does not change.
func rememberedHost(_ context.Context, o client.Object) []reconcile.Request {
	rec := remembered(o)
	if rec.Host == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: rec.Host}}}
}

func deletions() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
