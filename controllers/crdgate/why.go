package crdgate

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/access"
)

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
