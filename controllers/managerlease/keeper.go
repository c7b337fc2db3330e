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
// It does not use the lease library of Kubernetes: docs/adr/0053-the-manager-lease-has-a-loop-of-its-own.md
type Keeper struct {
	// Client writes, Live reads without a cache: one of leases would need rights to all of them.
	Client client.Client
	Live   client.Reader
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

	lease *coordinationv1.Lease // as it was read or written last; nil if that has to be read
	said  string                // the trouble that was logged last
}

var errTaken = errors.New("another manager announces itself in this namespace")

// takenError says that another manager that is alive holds the lease of the namespace, and until when unless it renews it.
type takenError struct {
	error
	until time.Time
}

// NeedLeaderElection makes the leader alone keep the lease.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start renews the lease until ctx ends, and releases it then. A failure stops nothing: it is logged, and tried again.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		next := k.Clock.After(k.renew(ctx))
		select {
		case <-ctx.Done():
			k.end(context.WithoutCancel(ctx))
			return nil
		case <-k.Changed:
		case <-next:
		}
	}
}

// renew renews the lease, and returns after how long to do so again.
func (k *Keeper) renew(ctx context.Context) time.Duration {
	err := k.tryRenew(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		err = k.tryRenew(ctx) // it is read anew
	}
	if err == nil {
		k.said = ""
		return every
	}
	if ctx.Err() != nil {
		return every
	}
	if k.said != err.Error() {
		k.said = err.Error()
		log.FromContext(ctx).Info("Could not renew the manager lease", "lease", k.key(), "because", k.said)
	}
	// A manager that crashed has not released its lease. As soon as that has ended the next one announces itself: else no manager would seem to act.
	if taken := (*takenError)(nil); errors.As(err, &taken) {
		return min(every, max(taken.until.Sub(k.Clock.Now()), time.Millisecond))
	}
	return again
}

func (k *Keeper) key() client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: LeaseName}
}

// tryRenew writes the lease, with one request unless somebody else has written it.
func (k *Keeper) tryRenew(ctx context.Context) error {
	now := k.Clock.Now()
	lease, err := k.current(ctx)
	if err != nil {
		return err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); !k.Elected && holder != k.Identity && of(lease, now).Alive {
		k.lease = nil // it may be gone when we look again
		return &takenError{fmt.Errorf("%w: %s", errTaken, holder), ends(lease)}
	}
	if err := k.fill(lease, now); err != nil {
		return err
	}
	return k.write(ctx, lease)
}

// current is a copy of the lease as it is; one without a resource version if there is none.
func (k *Keeper) current(ctx context.Context) (*coordinationv1.Lease, error) {
	if k.lease != nil {
		return k.lease.DeepCopy(), nil
	}
	lease := &coordinationv1.Lease{}
	err := k.Live.Get(ctx, k.key(), lease)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: LeaseName}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	return lease, nil
}

func (k *Keeper) fill(lease *coordinationv1.Lease, now time.Time) error {
	says, err := json.Marshal(k.State())
	if err != nil {
		return fmt.Errorf("encode the announcement: %w", err)
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[mendv1.ManagerAnnotation] = string(says)
	lease.OwnerReferences = nil
	if k.Owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*k.Owner}
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != k.Identity {
		if lease.ResourceVersion != "" {
			lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		}
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = ptr.To(k.Identity), ptr.To(metav1.NewMicroTime(now))
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = ptr.To(metav1.NewMicroTime(now)), ptr.To(int32(lasts/time.Second))
	return nil
}

// write keeps what was written, so that the next renewal need not read. After an error the state of the lease is unknown.
func (k *Keeper) write(ctx context.Context, lease *coordinationv1.Lease) error {
	k.lease = nil
	var err error
	if lease.ResourceVersion == "" {
		err = k.Client.Create(ctx, lease)
	} else {
		err = k.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	k.lease = lease
	return nil
}

// end releases the lease, unless another replica holds it by now.
func (k *Keeper) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	lease, err := k.current(ctx)
	if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != k.Identity {
		return
	}
	if err == nil {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = nil, ptr.To(metav1.NewMicroTime(k.Clock.Now()))
		err = k.write(ctx, lease)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return // the next one has taken it, or it went with the pod
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not release the manager lease", "lease", k.key())
	}
}
