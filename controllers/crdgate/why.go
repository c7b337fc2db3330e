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

// Why a kind is not served, in a word, as the manager announces it.
const (
	// ForeignReason is that of a kind that another controller serves.
	ForeignReason = "Foreign"
	// OffReason is that of a kind that was switched off.
	OffReason = "Off"
	// ForbiddenReason is that of a kind whose feature was installed without its rights.
	ForbiddenReason = "Forbidden"
)

// silence is how long the lease of another controller must not have been renewed before it counts as gone. It is much longer than any
// lease: a controller that is only restarted must not find kubemend acting.
const silence = 5 * time.Minute

// Why says why s cannot run, in a word and in a sentence; empty if it can. It starts nothing, and needs no more of r than its Client.
func (r *Reconciler) Why(ctx context.Context, s *Service) (reason, because string, err error) {
	return r.why(ctx, s, s.Choice)
}

// why is Why for a choice, which may be one that the user made before.
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

// RBAC: the leases of other controllers are listed by their names, and no others are: leases also say which nodes are alive, and which
// replica leads. Only a list works for a namespace that need not be there.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=controller-leader-election-capm3;e1f13584.medik8s.io,verbs=list

// foreign says whose controller serves the kind of s, by the labels of its CRD and by the lease of that controller; empty if nobody else's
// does. A lease that may not be listed counts as none.
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

// forbidden says what s needs and may not do; empty if there is nothing. One that has started is not asked about: its caches are filled,
// and what it may not do any more it reports itself.
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

// Installed reports whether there is a CustomResourceDefinition of that name.
func (r *Reconciler) Installed(ctx context.Context, name string) (bool, error) {
	crd, err := r.crd(ctx, name)
	return crd != nil, err
}

// Serves reports whether the kind of a CustomResourceDefinition is one of ours to serve now, also where no replica does so.
func (r *Reconciler) Serves(ctx context.Context, name string) (bool, error) {
	for _, s := range r.Services {
		if s.CRD == name {
			reason, _, err := r.Why(ctx, s)
			return reason == "" && err == nil, err
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
