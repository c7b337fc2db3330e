package managerlease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	every = 20 * time.Second // how often the lease is renewed
	lasts = 60 * time.Second // the duration of the lease: two renewals may fail
	// again is when to retry after a failed write.
	again = 5 * time.Second
	// endsWithin is how long a manager that ends tries to release the lease.
	endsWithin = 5 * time.Second
)

// Keeper is a runnable that keeps the manager lease while the manager acts. It does not use Kubernetes' lease library (component-helpers),
// which cannot renew at once when a served kind changes, and deletes the lease at the end.
type Keeper struct {
	// Client reads from the API server: a cache of leases would need rights to all leases.
	Client client.Client
	Clock  clock.Clock

	Namespace string
	// Identity identifies this replica. No other process may have the same.
	Identity string
	// Elected says that this replica is the leader in Namespace, and so may take the lease from another holder.
	Elected bool
	// Owner becomes the owner of the lease, so that the lease is deleted with it; nil if the lease has none.
	Owner *metav1.OwnerReference
	// State returns the content of the lease. It is called for every renewal.
	State func() Announcement
	// Changed gets a value when State has changed, so that the lease is renewed at once.
	Changed <-chan struct{}

	logged string // the last error that was logged
}

// NeedLeaderElection makes only the leader keep the lease.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start renews the lease until ctx ends, and then releases it. It logs a failed renewal and tries again.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		wait, err := k.renew(ctx)
		if err != nil && ctx.Err() == nil && k.logged != err.Error() {
			log.FromContext(ctx).Info("Could not renew the manager lease", "lease", k.key(), "because", err.Error())
			k.logged = err.Error()
		} else if err == nil {
			k.logged = ""
		}
		select {
		case <-ctx.Done():
			k.end(context.WithoutCancel(ctx))
			return nil
		case <-k.Changed:
		case <-k.Clock.After(wait):
		}
	}
}

func (k *Keeper) key() client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: LeaseName}
}

// renew renews the lease, and returns after how long to renew it again. Without leader election, it returns an error while another manager
// holds the lease, and when that lease ends: a manager that crashed has not released it.
func (k *Keeper) renew(ctx context.Context) (time.Duration, error) {
	wait, announcement := again, k.State()
	err := k.write(ctx, func(lease *coordinationv1.Lease, now time.Time) error {
		holder := ptr.Deref(lease.Spec.HolderIdentity, "")
		if end := ends(lease); !k.Elected && holder != "" && holder != k.Identity && now.Before(end) {
			wait = min(every, end.Sub(now))
			return fmt.Errorf("another manager announces itself in this namespace: %s", holder)
		}
		content, err := json.Marshal(announcement)
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, mendv1.ManagerAnnotation, string(content))
		lease.OwnerReferences = nil
		if k.Owner != nil {
			lease.OwnerReferences = []metav1.OwnerReference{*k.Owner}
		}
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &k.Identity, ptr.To(int32(lasts/time.Second))
		return err
	})
	if err != nil {
		return wait, err
	}
	return every, nil
}

// write changes and renews the lease. It returns a conflict if another client has changed the lease since it was read.
func (k *Keeper) write(ctx context.Context, change func(lease *coordinationv1.Lease, now time.Time) error) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: LeaseName}}
	_, err := controllerutil.CreateOrUpdate(ctx, k.Client, lease, func() error {
		now := k.Clock.Now()
		err := change(lease, now)
		lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(now))
		return err
	})
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	return nil
}

// errNotHeld says that another replica holds the lease, or that the lease was deleted with the pod: there is nothing to release.
var errNotHeld = errors.New("it is not held")

// end releases the lease if this replica holds it.
func (k *Keeper) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	err := k.write(ctx, func(lease *coordinationv1.Lease, _ time.Time) error {
		if ptr.Deref(lease.Spec.HolderIdentity, "") != k.Identity {
			return errNotHeld
		}
		lease.Spec.HolderIdentity = nil
		return nil
	})
	if err != nil && !errors.Is(err, errNotHeld) && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		log.FromContext(ctx).Error(err, "Could not release the manager lease", "lease", k.key())
	}
}
