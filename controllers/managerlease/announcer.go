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
	// endsWithin is how long the end of the manager waits for the lease to be given back.
	endsWithin = 5 * time.Second
)

// Announcer keeps the lease of the manager that acts. It is a runnable of that manager.
// It does not use the lease library of Kubernetes: docs/adr/0053-the-manager-lease-has-a-loop-of-its-own.md
type Announcer struct {
	// Client writes, Live reads without a cache: one of leases would need rights to all of them.
	Client client.Client
	Live   client.Reader
	Clock  clock.Clock

	Namespace string
	// Identity is which replica this is. Two processes must not have the same.
	Identity string
	// Elected says that this is the only one that acts in Namespace, whoever the lease is of.
	Elected bool
	// Owner is what the lease goes with; nil if it stays.
	Owner *metav1.OwnerReference
	// Says is what is announced. It is called for every renewal.
	Says func() Announcement
	// Changed gets a value when Says has changed, so that nobody waits for the next renewal.
	Changed <-chan struct{}

	lease *coordinationv1.Lease // as it was read or written last; nil if that has to be read
	said  string                // the trouble that was logged last
}

// errTaken says that another manager announces itself in the namespace, and is alive.
var errTaken = errors.New("another manager announces itself in this namespace")

// NeedLeaderElection makes it that of replicas which elect a leader the leader alone announces itself.
func (a *Announcer) NeedLeaderElection() bool { return true }

// Start announces the manager until ctx ends, and then says that it has ended. That it cannot be announced stops nothing: it is logged, and
// tried again.
func (a *Announcer) Start(ctx context.Context) error {
	timer := a.Clock.NewTimer(a.pass(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			a.end(context.WithoutCancel(ctx))
			return nil
		case <-a.Changed:
		case <-timer.C():
		}
		next := a.pass(ctx)
		if !timer.Stop() { // it may have gone off while the pass was made
			select {
			case <-timer.C():
			default:
			}
		}
		timer.Reset(next)
	}
}

// pass announces the manager, and returns after how long to do so again.
func (a *Announcer) pass(ctx context.Context) time.Duration {
	err := a.announce(ctx)
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		err = a.announce(ctx) // it is read anew
	}
	if err == nil {
		a.said = ""
		return every
	}
	if ctx.Err() != nil {
		return every
	}
	if a.said != err.Error() {
		a.said = err.Error()
		log.FromContext(ctx).Info("Could not announce the manager", "lease", a.key(), "because", a.said)
	}
	if errors.Is(err, errTaken) {
		return every
	}
	return again
}

func (a *Announcer) key() client.ObjectKey {
	return client.ObjectKey{Namespace: a.Namespace, Name: LeaseName}
}

// announce writes the lease, with one request unless somebody else has.
func (a *Announcer) announce(ctx context.Context) error {
	now := a.Clock.Now()
	lease, err := a.current(ctx)
	if err != nil {
		return err
	}
	if holder := ptr.Deref(lease.Spec.HolderIdentity, ""); !a.Elected && holder != a.Identity && of(lease, now).Alive {
		a.lease = nil // it may be gone when we look again
		return fmt.Errorf("%w: %s", errTaken, holder)
	}
	if err := a.fill(lease, now); err != nil {
		return err
	}
	return a.write(ctx, lease)
}

// current is a copy of the lease as it is; one without a resource version if there is none.
func (a *Announcer) current(ctx context.Context) (*coordinationv1.Lease, error) {
	if a.lease != nil {
		return a.lease.DeepCopy(), nil
	}
	lease := &coordinationv1.Lease{}
	err := a.Live.Get(ctx, a.key(), lease)
	if apierrors.IsNotFound(err) {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: LeaseName}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the lease: %w", err)
	}
	return lease, nil
}

func (a *Announcer) fill(lease *coordinationv1.Lease, now time.Time) error {
	says, err := json.Marshal(a.Says())
	if err != nil {
		return fmt.Errorf("encode the announcement: %w", err)
	}
	if lease.Annotations == nil {
		lease.Annotations = map[string]string{}
	}
	lease.Annotations[mendv1.ManagerAnnotation] = string(says)
	lease.OwnerReferences = nil
	if a.Owner != nil {
		lease.OwnerReferences = []metav1.OwnerReference{*a.Owner}
	}
	if ptr.Deref(lease.Spec.HolderIdentity, "") != a.Identity {
		if lease.ResourceVersion != "" {
			lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, 0) + 1)
		}
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = ptr.To(a.Identity), ptr.To(metav1.NewMicroTime(now))
	}
	lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = ptr.To(metav1.NewMicroTime(now)), ptr.To(int32(lasts/time.Second))
	return nil
}

// write keeps what was written, so that the next renewal need not read. After an error nobody knows what there is.
func (a *Announcer) write(ctx context.Context, lease *coordinationv1.Lease) error {
	a.lease = nil
	var err error
	if lease.ResourceVersion == "" {
		err = a.Client.Create(ctx, lease)
	} else {
		err = a.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("write the lease: %w", err)
	}
	a.lease = lease
	return nil
}

// end gives the lease back, unless it is somebody else's by now.
func (a *Announcer) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	lease, err := a.current(ctx)
	if err == nil && ptr.Deref(lease.Spec.HolderIdentity, "") != a.Identity {
		return
	}
	if err == nil {
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = nil, ptr.To(metav1.NewMicroTime(a.Clock.Now()))
		err = a.write(ctx, lease)
	}
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return // the next one has taken it, or it went with the pod
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "Could not say that the manager has ended", "lease", a.key())
	}
}
