package hostremediation

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
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
)

// Sweeper lets go of hosts that are held off, or were to be rebooted, for a remediation that does not exist any more: because its
// finalizer was taken away by hand, because its namespace was restored without it, or because CAPM3 left its mark behind. Such a host
// stays off for ever, also for the next machine that is put on it.
type Sweeper struct {
	// Installed returns the kinds of remediations that exist, also those that are not ours to act on: any may have made a mark.
	Installed func() ([]Kind, error)
	// Client reads from caches and writes, Live reads past the caches.
	Client   client.Client
	Live     client.Reader
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Grace is how long a mark whose remediation cannot be found stays: a backup that is being restored, or clusterctl, may make the
	// host before the remediation.
	Grace time.Duration

	mu    sync.Mutex
	since map[types.UID]time.Time // host, to when it was first seen with an orphaned mark
}

// Reconcile looks at the host called req.
func (s *Sweeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	h := &bmov1alpha1.BareMetalHost{}
	if err := s.Client.Get(ctx, req.NamespacedName, h); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
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
		return ctrl.Result{}, nil
	}
	now := s.Clock.Now()
	if due := s.first(h.UID, now).Add(s.Grace); now.Before(due) {
		return ctrl.Result{RequeueAfter: due.Sub(now)}, nil
	}
	return ctrl.Result{}, s.sweep(ctx, h, marks)
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
		s.Recorder.Eventf(hostOf(h), nil, corev1.EventTypeNormal, mendv1.EventOrphanSwept, "Release",
			"Removed annotation %s: remediation %s does not exist any more", key, uid)
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
	known := map[types.UID]bool{}
	for _, kind := range kinds {
		list := kind.List()
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("list %s in %s: %w", kind.Kind, namespace, err)
		}
		for _, rem := range kind.Wrap(list) {
			known[rem.GetUID()] = true
			if rec, err := recordOf(rem); err == nil && rec.UID != "" {
				known[rec.UID] = true
			}
		}
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
	marked := predicate.NewPredicateFuncs(func(o client.Object) bool { return len(host.AllMarks(o.(*bmov1alpha1.BareMetalHost))) > 0 })
	b := ctrl.NewControllerManagedBy(mgr).Named("hostsweep").WithOptions(options).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(marked))
	kinds, err := s.Installed()
	if err != nil {
		return err
	}
	for _, kind := range kinds {
		b = b.Watches(kind.New().Unwrapped(), handler.EnqueueRequestsFromMapFunc(rememberedHost), builder.WithPredicates(deletions()))
	}
	if err := b.Complete(s); err != nil {
		return fmt.Errorf("set up the controller that lets go of orphaned hosts: %w", err)
	}
	return nil
}

// rememberedHost maps a remediation to its host: when it goes without having let go, the host does not change.
func rememberedHost(_ context.Context, o client.Object) []reconcile.Request {
	rec, err := recordOf(o)
	if err != nil || rec.Host == "" {
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
