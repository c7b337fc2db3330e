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
	// every is how often the lease is renewed, lasts how long it then is good for: two renewals may be lost.
	every = 20 * time.Second
	lasts = 60 * time.Second
	// again is when to try again what could not be written.
	again = 5 * time.Second
	// endsWithin is how long the end of the manager waits for the lease to be released.
	endsWithin = 5 * time.Second
)

// Keeper keeps the lease of the manager that acts. It is a runnable of that manager.
// The lease library of Kubernetes (component-helpers) cannot renew at once when a served kind changes, and deletes the lease at the end.
type Keeper struct {
	// Client reads without a cache: one of leases would need rights to all of them.
	Client client.Client
	Clock  clock.Clock

	Namespace string
	// Identity is which replica this is. Two processes must not have the same.
	Identity string
	// Elected says that this replica is the only one that acts in Namespace, also if another one holds the lease.
	Elected bool
	// Owner is the object that the lease is deleted with; nil if it stays.
	Owner *metav1.OwnerReference
	// State returns what the lease says. It is called for every renewal.
	State func() Announcement
	// Changed gets a value when State has changed, so that the lease says it before the next renewal.
	Changed <-chan struct{}

	logged string // the trouble that was logged last
}

// NeedLeaderElection makes the leader alone keep the lease.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start renews the lease until ctx ends, and releases it then. A failure stops nothing: it is logged, and tried again.
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

// renew renews the lease, and returns after how long to do so again. While another manager that is alive holds it, that is when its lease
// ends: a manager that crashed has not released it, and the next one announces itself then.
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

// write changes the lease, and renews it, unless somebody else has changed it meanwhile.
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

// errNotHeld ends the end of a lease that another replica holds by now, or that went with the pod.
var errNotHeld = errors.New("it is not held")

// end releases the lease.
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
