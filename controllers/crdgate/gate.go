// Package crdgate starts a controller once the CustomResourceDefinitions that it needs are installed and no other controller serves them.
// For each controller that does not run it reports why.
package crdgate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// Provider returns, for Service.Foreign, the provider of Cluster API that a CRD belongs to, if it is the one of that name.
func Provider(name string) func(map[string]string) string {
	return func(labels map[string]string) string {
		if labels[clusterv1.ProviderNameLabel] == name {
			return name
		}
		return ""
	}
}

// The labels by which version 1 of the Operator Lifecycle Manager says what a CRD was installed for. (operator-controller,
// internal/operator-controller/labels/labels.go)
const (
	olmOwnerKind = "olm.operatorframework.io/owner-kind"
	olmOwnerName = "olm.operatorframework.io/owner-name"
)

// OLM returns, for Service.Foreign, the operator that a CRD belongs to, if the Operator Lifecycle Manager installed it, in version 0 or 1.
func OLM(labels map[string]string) string {
	if kind := labels[olmOwnerKind]; kind != "" {
		return strings.TrimSpace(kind + " " + labels[olmOwnerName])
	}
	for label := range labels {
		if operator, is := strings.CutPrefix(label, "operators.coreos.com/"); is {
			return "operator " + operator
		}
	}
	if labels["olm.managed"] == "true" {
		return "an operator installed by the Operator Lifecycle Manager"
	}
	return ""
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

// Choice says whether a kind is served. It is the value of a flag.
type Choice string

const (
	// Auto serves a kind unless somebody else's controller does.
	Auto Choice = "auto"
	// On serves it, even beside another controller.
	On Choice = "on"
	// Off does not serve it.
	Off Choice = "off"
)

// Service is a controller that may run.
type Service struct {
	// CRD is the CustomResourceDefinition of the kind that it serves, Needs are others without which it cannot run.
	CRD   string
	Needs []string
	// Choice is the user's.
	Choice Choice
	// Foreign names whose CRD is, by its labels, if it is somebody else's, whose controller serves it; "" if it is free. If nil, it is free.
	Foreign func(labels map[string]string) string
	// Other is the controller of another project that serves the kind if it runs, also where the CRD is free; nil if there is none.
	Other *OtherController
	// Rights are what Start needs that only Role allows, which is bound where the feature is installed. Without one of them it is not started: its
	// caches would never be filled.
	Rights []Right
	Role   string
	// Releases is the choice by which it was served before it was switched off. With it a service whose Choice is Off is started all the same, where
	// the kind is there and free: its Start begins nothing then, and releases what was begun. If empty, nothing can have been begun.
	Releases Choice
	// Start starts it. It is called once.
	Start func(context.Context) error
	// Serve makes it work, or stand idle, after it was started: its kind may become somebody else's, and ours again. If nil, it never stands
	// idle.
	Serve func(bool)

	started bool
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
	// May says what the manager may do; if nil, everything.
	May May
	// Fixed are kinds whose state no CRD changes: those that are served whenever the manager runs, and those that a feature gate switched off.
	Fixed []managerlease.Kind
	// Changed is called when Kinds has changed. It must not call back. It may be nil.
	Changed func()

	mu      sync.Mutex
	reasons map[string]string // CRD of a service to why it does not run; "" if it does
	waited  time.Duration     // how long rights were waited for last
	known   known
}

// Reconcile looks at all services. There are few, and any CRD may be what one of them waited for.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, s := range r.Services {
		if !s.started || s.Serve != nil {
			errs = append(errs, r.serve(ctx, s))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.again()}, nil
}

// again is after how long to look again although no CRD has changed; zero for never. Rights mostly come a moment after the kind that they are for.
func (r *Reconciler) again() time.Duration {
	if slices.Contains(slices.Collect(maps.Values(r.reasons)), ForbiddenReason) {
		r.waited = min(max(2*r.waited, time.Second), listenEvery)
		return r.waited
	}
	r.waited = 0
	if slices.ContainsFunc(r.Services, func(s *Service) bool {
		return s.Other != nil && r.Live != nil && (s.Choice == Auto || s.Releases == Auto)
	}) {
		return listenEvery
	}
	return 0
}

// serve starts s if it can run, makes it stand idle if its kind has become somebody else's, and says why it does not run.
func (r *Reconciler) serve(ctx context.Context, s *Service) error {
	why, detail, err := r.run(ctx, s)
	if err != nil {
		r.say(ctx, s, "Failed", err.Error())
		return fmt.Errorf("start to serve %s: %w", s.CRD, err)
	}
	if s.started && why != "" && why != ForeignReason && why != OffReason {
		return nil
	}
	r.say(ctx, s, why, detail)
	return nil
}

// run starts s if it can run, and returns why it does not serve its kind; empty if it does. One that is switched off runs by
// the choice that was made before, to release what it holds.
func (r *Reconciler) run(ctx context.Context, s *Service) (why, detail string, err error) {
	before := *s
	if s.Choice == Off && s.Releases != "" {
		before.Choice = s.Releases
	}
	why, detail, err = r.Why(ctx, &before)
	switch {
	case err != nil:
		return "", "", err
	case s.started && s.Serve != nil && (why == "" || why == ForeignReason):
		s.Serve(why == "")
	case !s.started && why == "":
		err = s.Start(ctx)
		s.started = err == nil
	}
	if err == nil && s.Choice != before.Choice {
		return r.Why(ctx, s)
	}
	return why, detail, err
}

// Why a kind is not served, in a word, as the manager announces it.
const (
	// ForeignReason is that of a kind that another controller serves.
	ForeignReason = "Foreign"
	// OffReason is that of a kind that was switched off.
	OffReason = "Off"
)

// Why says why s cannot run, in a word and in a sentence; empty if it can. It starts nothing, and needs no more of r than its Client.
func (r *Reconciler) Why(ctx context.Context, s *Service) (word, sentence string, err error) {
	if s.Choice == Off {
		return OffReason, "it is switched off by a flag", nil
	}
	crd, err := r.crd(ctx, s.CRD)
	switch {
	case err != nil:
		return "", "", err
	case crd == nil:
		return "NotInstalled", "its CustomResourceDefinition is not installed", nil
	}
	if s.Choice == Auto && s.Foreign != nil {
		if owner := s.Foreign(crd.Labels); owner != "" {
			return ForeignReason, fmt.Sprintf("its CustomResourceDefinition belongs to %s, whose controller serves it", owner), nil
		}
	}
	if because, err := r.outdone(ctx, s); err != nil || because != "" {
		return ForeignReason, because, err
	}
	return r.lacks(ctx, s)
}

// lacks says which of the other kinds and of the rights that s needs are missing; empty if none are.
func (r *Reconciler) lacks(ctx context.Context, s *Service) (word, sentence string, err error) {
	var missing []string
	for _, name := range s.Needs {
		needed, err := r.crd(ctx, name)
		if err != nil {
			return "", "", err
		}
		if needed == nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return "Waiting", "these are not installed: " + strings.Join(missing, ", "), nil
	}
	if because, err := r.forbidden(ctx, s); err != nil || because != "" {
		return ForbiddenReason, because, err
	}
	return "", "", nil
}

// Installed reports whether there is a CustomResourceDefinition of that name.
func (r *Reconciler) Installed(ctx context.Context, name string) (bool, error) {
	crd, err := r.crd(ctx, name)
	return crd != nil, err
}

// Serves reports whether the kind of a CustomResourceDefinition is one of ours to serve now, also where no replica does so.
func (r *Reconciler) Serves(ctx context.Context, name string) (bool, error) {
	for _, s := range r.Services {
		if s.CRD == name {
			why, _, err := r.Why(ctx, s)
			return why == "" && err == nil, err
		}
	}
	return false, nil
}

// crd returns the metadata of a CustomResourceDefinition, or nil if it is not there, or not for much longer.
func (r *Reconciler) crd(ctx context.Context, name string) (*metav1.PartialObjectMetadata, error) {
	crd := crdMetadata()
	err := r.Client.Get(ctx, client.ObjectKey{Name: name}, crd)
	if apierrors.IsNotFound(err) || err == nil && !crd.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read CustomResourceDefinition %s: %w", name, err)
	}
	return crd, nil
}

func crdMetadata() *metav1.PartialObjectMetadata {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	return crd
}

// say tells in the log, once for each change, and in a metric whether s runs.
func (r *Reconciler) say(ctx context.Context, s *Service, why, detail string) {
	if r.known.note(managerlease.Kind{CRD: s.CRD, Reason: why, Because: detail}) && r.Changed != nil {
		r.Changed()
	}
	if was, known := r.reasons[s.CRD]; known && was == why {
		return
	}
	if r.reasons == nil {
		r.reasons = map[string]string{}
	}
	r.reasons[s.CRD] = why
	served.DeletePartialMatch(prometheus.Labels{"kind": s.CRD})
	if why == "" {
		served.WithLabelValues(s.CRD, "").Set(1)
		log.FromContext(ctx).Info("Serving a kind", "kind", s.CRD)
		return
	}
	served.WithLabelValues(s.CRD, why).Set(0)
	log.FromContext(ctx).Info("Not serving a kind", "kind", s.CRD, "reason", why, "because", detail)
}

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	all := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "services"}}} // one reconcile serves all
	})
	err := ctrl.NewControllerManagedBy(mgr).
		Named("serving").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		WatchesMetadata(crdMetadata(), all).
		Complete(r)
	if err != nil {
		return fmt.Errorf("set up the controller that starts controllers: %w", err)
	}
	return nil
}
