// Package crdgate starts a controller once the CustomResourceDefinitions that it needs are installed and no other controller serves them.
// For each controller that does not run it reports why.
package crdgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

const (
	// forbiddenEvery is how soon to ask for rights again. They mostly come a moment after the kind that they are for, and no event says so.
	forbiddenEvery = 5 * time.Second
	// listenEvery is how often the lease of another controller is read. No event says that it came or went.
	listenEvery = 30 * time.Second
)

// Service is a controller that may run.
type Service struct {
	// CRD is the CustomResourceDefinition of the kind that it serves, Needs are others without which it cannot run.
	CRD   string
	Needs []string
	// Choice is the user's; Gate is the feature gate by which a service is Off, empty if it is so by a flag.
	Choice Choice
	Gate   featuregate.Feature
	// Foreign names whose CRD is, by its labels, if it is somebody else's, whose controller serves it; "" if it is free. If nil, it is
	// free.
	Foreign func(labels map[string]string) string
	// Other is the controller of another project that serves the kind if it runs, also where the CRD is free; nil if there is none.
	Other *OtherController
	// Rights are what Start needs that only Role allows, which is bound where the feature is installed. Without one of them it is not
	// started: its caches would never be filled.
	Rights []authorizationv1.ResourceAttributes
	Role   string
	// Releases is the choice by which it was served before it was switched off. With it a service whose Choice is Off is started all the
	// same, where the kind is there and free: its Start begins nothing then, and releases what was begun. If empty, nothing can have been
	// begun.
	Releases Choice
	// Start starts it. It is called once.
	Start func(context.Context) error
	// Serve makes it work, or stand idle, after it was started: its kind may become somebody else's, and ours again. If nil, it never
	// stands idle.
	Serve func(bool)

	started atomic.Bool
}

// OtherController is a controller of another project that serves a kind wherever it runs, whatever the labels of the CRD say.
type OtherController struct {
	// Name says whose it is.
	Name string
	// Lease is the name of the lease by which its replicas elect a leader.
	Lease string
	// Namespaces are where an administrator of the cluster installs it. The lease is read in no other: anybody may create a lease of any
	// name in a namespace of their own.
	Namespaces []string
}

var served = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_kind_served",
	Help: "1 if a kind is served, else 0, by reason: Off, NotInstalled, Foreign, Waiting (for other kinds), Forbidden, Failed.",
}, []string{"kind", "reason"})

func init() { metrics.Registry.MustRegister(served) }

// Metrics returns what this package exports, for those who document or test it.
func Metrics() []prometheus.Collector { return []prometheus.Collector{served} }

// Reconciler starts services. It reconciles CustomResourceDefinitions.
type Reconciler struct {
	Client   client.Client
	Services []*Service
	// Live reads past the caches; Clock is that by which leases are alive, the real one if nil. Without Live no lease is read.
	Live  client.Reader
	Clock clock.PassiveClock
	// Changed is called when Kinds has changed. It must not call back. It may be nil.
	Changed func()

	mu    sync.Mutex
	kinds map[string]managerlease.Kind // the reconciled kinds, by CRD
}

// Reconcile reconciles all services. There are few, and any CRD may be what one of them waited for.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var errs []error
	again := time.Duration(0) // unless a CRD changes
	for _, s := range r.Services {
		if s.started.Load() && s.Serve == nil {
			continue
		}
		reason, because, err := r.run(ctx, s)
		if err != nil {
			r.report(ctx, s.CRD, "Failed", err.Error())
			errs = append(errs, fmt.Errorf("start to serve %s: %w", s.CRD, err))
		} else if !s.started.Load() || reason == "" || reason == ForeignReason || reason == OffReason {
			r.report(ctx, s.CRD, reason, because)
		}
		if wait := r.waits(s, reason); again == 0 || wait > 0 && wait < again {
			again = wait
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// waits is how soon to look at s again although no CRD has changed; zero for never.
func (r *Reconciler) waits(s *Service, reason string) time.Duration {
	switch {
	case reason == ForbiddenReason:
		return forbiddenEvery
	case r.Live != nil && s.Other != nil && (s.Choice == Auto || s.Releases == Auto):
		return listenEvery
	}
	return 0
}

// run starts s if it can run, makes it stand idle if its kind has become somebody else's, and returns why it does not serve its kind;
// empty if it does. One that is switched off runs by the choice that was made before, to release what it holds.
func (r *Reconciler) run(ctx context.Context, s *Service) (reason, because string, err error) {
	choice := s.Choice
	if choice == Off {
		choice = cmp.Or(s.Releases, Off)
	}
	reason, because, err = r.why(ctx, s, choice)
	if err != nil {
		return "", "", err
	}
	switch started := s.started.Load(); {
	case started && s.Serve != nil && (reason == "" || reason == ForeignReason):
		s.Serve(reason == "")
	case !started && reason == "":
		if err := s.Start(ctx); err != nil {
			return "", "", err
		}
		s.started.Store(true)
	}
	if choice != s.Choice {
		return r.Why(ctx, s)
	}
	return reason, because, nil
}

// report tells in the log, once for each change, and in a metric whether the kind of a CRD is served.
func (r *Reconciler) report(ctx context.Context, crd, reason, because string) {
	kind := managerlease.Kind{CRD: crd, Reason: reason, Because: because}
	r.mu.Lock()
	before, known := r.kinds[crd]
	if r.kinds == nil {
		r.kinds = map[string]managerlease.Kind{}
	}
	r.kinds[crd] = kind
	r.mu.Unlock()
	if (!known || before != kind) && r.Changed != nil {
		r.Changed()
	}
	if known && before.Reason == reason {
		return
	}
	served.DeletePartialMatch(prometheus.Labels{"kind": crd})
	if reason == "" {
		served.WithLabelValues(crd, "").Set(1)
		log.FromContext(ctx).Info("Serving a kind", "kind", crd)
		return
	}
	served.WithLabelValues(crd, reason).Set(0)
	log.FromContext(ctx).Info("Not serving a kind", "kind", crd, "reason", reason, "because", because)
}

// Kinds are the kinds that were reconciled, by the names of their CustomResourceDefinitions.
func (r *Reconciler) Kinds() []managerlease.Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.kinds), func(a, b managerlease.Kind) int { return cmp.Compare(a.CRD, b.CRD) })
}

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	services := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "services"}}} // one reconcile serves all
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("serving").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		WatchesMetadata(crdMetadata(), services).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller that starts controllers: %w", err)
	}
	return nil
}
