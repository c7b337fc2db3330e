package crdgate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// silence is how long the lease of another controller must not have been renewed before it counts as gone. It is much longer than any
	// lease: a controller that is only restarted must not find kubemend acting.
	silence = 5 * time.Minute
	// listenEvery is how often the lease of another controller is read. No event says that it came or went.
	listenEvery = 30 * time.Second
)

// OtherController is a controller of another project that serves a kind wherever it runs, whatever the labels of the CRD say.
type OtherController struct {
	// Name says whose it is.
	Name string
	// Lease is the one by which its replicas elect a leader. It is read in the namespace in which its own manifests put it, and in no other:
	// anybody may make a lease of any name in a namespace of their own.
	Lease client.ObjectKey
	// OrIn are other namespaces in which it is installed as a rule, by an administrator of the cluster; its lease has the same name there.
	OrIn []string
}

// RBAC: the leases of other controllers are listed by their names, and no others are: leases also say which nodes are alive, and which replica leads.
// Only a list works for a namespace that need not be there.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=controller-leader-election-capm3;e1f13584.medik8s.io,verbs=list

// leads returns the lease of c if c runs, and else nil.
func (c OtherController) leads(ctx context.Context, live client.Reader, now time.Time) (*client.ObjectKey, error) {
	for _, namespace := range append([]string{c.Lease.Namespace}, c.OrIn...) {
		lease := client.ObjectKey{Namespace: namespace, Name: c.Lease.Name}
		if alive, err := renewed(ctx, live, lease, now); alive || err != nil {
			return &lease, err
		}
	}
	return nil, nil
}

// renewed reports whether a lease was renewed a short while ago. One that may not be asked for was not.
func renewed(ctx context.Context, live client.Reader, lease client.ObjectKey, now time.Time) (bool, error) {
	list := &coordinationv1.LeaseList{}
	err := live.List(ctx, list, client.InNamespace(lease.Namespace), client.MatchingFields{"metadata.name": lease.Name})
	if apierrors.IsForbidden(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the lease %s: %w", lease, err)
	}
	for i := range list.Items {
		renewed := list.Items[i].Spec.RenewTime
		if ptr.Deref(list.Items[i].Spec.HolderIdentity, "") != "" && renewed != nil && now.Before(renewed.Add(silence)) {
			return true, nil
		}
	}
	return false, nil
}

// outdone names the other controller that serves the kind of s; empty if none does.
func (r *Reconciler) outdone(ctx context.Context, s *Service) (string, error) {
	if s.Choice != Auto || s.Other == nil || r.Live == nil {
		return "", nil
	}
	lease, err := s.Other.leads(ctx, r.Live, cmp.Or[clock.PassiveClock](r.Clock, clock.RealClock{}).Now())
	if err != nil || lease == nil {
		return "", err
	}
	return fmt.Sprintf("%s runs: it holds the lease %s", s.Other.Name, lease.String()), nil
}
