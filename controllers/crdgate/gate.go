// Package crdgate starts a controller when the CustomResourceDefinitions that it needs are installed and no controller of another project
// serves its kind. For each controller that does not run, it reports why.
package crdgate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/controllers/access"
	"github.com/kubemend/kubemend/controllers/managerlease"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

const (
	// forbiddenEvery is how often missing rights are checked again. They are not watched, and are mostly bound just after the CRD comes.
	forbiddenEvery = 5 * time.Second
	// listenEvery is how often the lease of another controller is read. It is not watched.
	listenEvery = 30 * time.Second
)

// Service is a controller that the CRD gate may start.
type Service struct {
	// CRD is the name of the CustomResourceDefinition of the kind that the controller serves.
	CRD string
	// Needs are other CustomResourceDefinitions that must be installed.
	Needs  []string
	Choice Choice
	// Gate is the feature gate that switched the controller off; empty if a flag did.
	Gate featuregate.Feature
	// Foreign returns the project that the CRD belongs to by its labels, and whose controller serves the kind; empty if there is none.
	// If Foreign is nil, the CRD belongs to no other project.
	Foreign func(labels map[string]string) string
	// Other is a controller of another project that serves the kind if it runs, whatever the labels say; nil if there is none.
	Other *OtherController
	// Rights are needed by Start. If one is missing, the controller does not start, because its caches would never be filled.
	Rights []authorizationv1.ResourceAttributes
	// Role is the role that has the Rights; a user binds it when installing the feature.
	Role string
	// Releases is the Choice before the user chose Off; empty if the controller cannot have begun anything. If it is set, a controller
	// that is Off starts all the same by this choice, but only releases what it had begun.
	Releases Choice
	// Start starts the controller. It is called once.
	Start func(context.Context) error
	// Serve pauses (false) or resumes a controller that was started, because a controller of another project may be installed or removed.
	// If nil, the controller is never paused.
	Serve func(bool)

	started atomic.Bool
}

// OtherController is a controller of another project that the CRD gate detects by its leader lease.
type OtherController struct {
	// Name is for messages, such as "CAPM3's controller".
	Name string
	// Lease is the name of its leader lease.
	Lease string
	// Namespaces are where cluster administrators install it. The lease counts only there, because users may create a lease of any name
	// in their own namespaces.
	Namespaces []string
}

var served = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "kubemend_kind_served",
	Help: "1 if a kind is served, else 0, by reason: Off, NotInstalled, Foreign, Waiting (for other kinds), Forbidden, Failed.",
}, []string{"kind", "reason"})

func init() { metrics.Registry.MustRegister(served) }

// Metrics returns the metrics of this package, for documentation and tests.
func Metrics() []prometheus.Collector { return []prometheus.Collector{served} }

// Reconciler starts services when CustomResourceDefinitions change.
type Reconciler struct {
	Client   client.Client
	Services []*Service
	// Live reads leases from the API server. If nil, no lease is read.
	Live  client.Reader
	Clock clock.PassiveClock // the real clock if nil
	// Changed is called after the result of Kinds has changed. It may be nil.
	Changed func()

	mu    sync.Mutex
	kinds map[string]managerlease.Kind // the reconciled kinds, by CRD
}

// Reconcile reconciles all services, because any of them may have waited for the CRD. There are few services.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	var errs []error
	again := time.Duration(0) // zero: only when a CRD changes
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

// waits returns after how long to reconcile s again although no CRD has changed; zero for never.
func (r *Reconciler) waits(s *Service, reason string) time.Duration {
	switch {
	case reason == ForbiddenReason:
		return forbiddenEvery
	case r.Live != nil && s.Other != nil && (s.Choice == Auto || s.Releases == Auto):
		return listenEvery
	}
	return 0
}

// run starts s if it can run, pauses it if a controller of another project now serves its kind, and returns why s does not serve its kind;
// empty if it does. A service that is Off and has Releases is started by that choice, to release what it had begun.
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

// report reports whether the kind of a CRD is served: in the metric, and in the log whenever the reason changes.
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

// Kinds returns the kinds that were reconciled, sorted by the names of their CustomResourceDefinitions.
func (r *Reconciler) Kinds() []managerlease.Kind {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Values(r.kinds), func(a, b managerlease.Kind) int { return cmp.Compare(a.CRD, b.CRD) })
}

// SetupWithManager makes r a controller of mgr.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	services := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: "services"}}} // one reconcile handles all services
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

// Reasons why a kind is not served, for the metric and the manager lease.
const (
	// ForeignReason says that a controller of another project serves the kind.
	ForeignReason = "Foreign"
	// OffReason says that the user switched the kind off.
	OffReason = "Off"
	// ForbiddenReason says that the manager does not have the rights that the kind needs.
	ForbiddenReason = "Forbidden"
)

// silence is how old the last renewal of a lease must be before its controller counts as gone. It is much longer than the duration of a
// lease, so that kubemend does not act while the other controller only restarts.
const silence = 5 * time.Minute

// Why returns why s cannot run, as a reason and as a clause; both are empty if it can. It starts nothing, and r needs only its Client.
func (r *Reconciler) Why(ctx context.Context, s *Service) (reason, because string, err error) {
	return r.why(ctx, s, s.Choice)
}

// why returns what Why returns, but for this choice.
func (r *Reconciler) why(ctx context.Context, s *Service, choice Choice) (reason, because string, err error) {
	switch {
	case choice == Off && s.Gate != "":
		return OffReason, "the feature gate " + string(s.Gate) + " is off", nil
	case choice == Off:
		return OffReason, "it is switched off by a flag", nil
	}
	crd, err := r.crd(ctx, s.CRD)
	switch {
	case err != nil:
		return "", "", err
	case crd == nil:
		return "NotInstalled", "its CustomResourceDefinition is not installed", nil
	}
	if choice == Auto {
		if because, err := r.foreign(ctx, s, crd.Labels); err != nil || because != "" {
			return ForeignReason, because, err
		}
	}
	var missing []string
	for _, name := range s.Needs {
		installed, err := r.Installed(ctx, name)
		if err != nil {
			return "", "", err
		}
		if !installed {
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

// RBAC: the manager may list only the leases of the two other controllers, by name, because other leases are heartbeats of nodes and leader
// leases. It lists instead of gets, because a list works in a namespace that does not exist.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=controller-leader-election-capm3;e1f13584.medik8s.io,verbs=list

// foreign returns a clause that names the other controller that serves the kind of s, by the labels of the CRD or by its lease; empty if
// there is none. A lease that the manager may not list counts as missing.
func (r *Reconciler) foreign(ctx context.Context, s *Service, labels map[string]string) (string, error) {
	if s.Foreign != nil {
		if owner := s.Foreign(labels); owner != "" {
			return fmt.Sprintf("its CustomResourceDefinition belongs to %s, whose controller serves it", owner), nil
		}
	}
	if s.Other == nil || r.Live == nil {
		return "", nil
	}
	now := cmp.Or[clock.PassiveClock](r.Clock, clock.RealClock{}).Now()
	for _, namespace := range s.Other.Namespaces {
		list := &coordinationv1.LeaseList{}
		err := r.Live.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"metadata.name": s.Other.Lease})
		if err != nil && !apierrors.IsForbidden(err) {
			return "", fmt.Errorf("read the lease %s/%s: %w", namespace, s.Other.Lease, err)
		}
		for i := range list.Items {
			spec := &list.Items[i].Spec
			if ptr.Deref(spec.HolderIdentity, "") != "" && spec.RenewTime != nil && now.Before(spec.RenewTime.Add(silence)) {
				return fmt.Sprintf("%s runs: it holds the lease %s/%s", s.Other.Name, namespace, s.Other.Lease), nil
			}
		}
	}
	return "", nil
}

// forbidden returns a clause that names a right that s lacks; empty if there is none. It does not check a controller that has started:
// its caches are filled, and it reports itself what the API server forbids.
func (r *Reconciler) forbidden(ctx context.Context, s *Service) (string, error) {
	if s.started.Load() {
		return "", nil
	}
	for _, right := range s.Rights {
		allowed, err := access.Allowed(ctx, r.Client, right)
		if err != nil {
			return "", err
		}
		if !allowed {
			return fmt.Sprintf("the manager may not %s; the role %s says what it needs", access.Words(right), s.Role), nil
		}
	}
	return "", nil
}

// Installed reports whether a CustomResourceDefinition exists and is not being deleted.
func (r *Reconciler) Installed(ctx context.Context, name string) (bool, error) {
	crd, err := r.crd(ctx, name)
	return crd != nil, err
}

// Serves reports whether kubemend should serve the kind of a CustomResourceDefinition now, even if no replica serves it yet.
func (r *Reconciler) Serves(ctx context.Context, name string) (bool, error) {
	for _, s := range r.Services {
		if s.CRD == name {
			reason, _, err := r.Why(ctx, s)
			return reason == "" && err == nil, err
		}
	}
	return false, nil
}

// crd returns the metadata of a CustomResourceDefinition, or nil if it does not exist or is being deleted.
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
