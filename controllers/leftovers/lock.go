package leftovers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/kubemend/kubemend/controllers/managerlease"
)

// prefix begins the identity of a replica that tears down.
const prefix = "teardown_"

// Identity is how a replica that tears down signs the lease by which replicas agree.
func Identity(of string) string { return prefix + of }

// IsTeardown reports whether an identity is that of a replica that tears down.
func IsTeardown(identity string) bool { return strings.HasPrefix(identity, prefix) }

// Lock takes the lease from a replica that acts. Those are about to be replaced, and none may hold up the others: while a Deployment is
// being rolled out the old replicas stay until the new ones are ready, and the new ones are when nothing of kubemend's is left.
//
// The replica that it was taken from notices at its next try to renew, gives up after its renew deadline, and ends: that is what leader
// election promises. So a replica that has taken a lease must do nothing until Quiet.
type Lock struct {
	resourcelock.Interface
	Clock clock.PassiveClock
	// LeaseDuration is after how long a leader that cannot renew its lease has stopped for certain.
	LeaseDuration time.Duration

	mu     sync.Mutex
	holder string
	quiet  time.Time
}

// NewLock returns the lock of a replica that tears down: on the lease of the namespace in which podNamespace or the options say that
// the replicas agree.
func NewLock(cfg *rest.Config, o *managerlease.Options, podNamespace, identity string) (*Lock, error) {
	lease := o.LeaderLease(podNamespace)
	if lease.Namespace == "" {
		return nil, errors.New("set up leader election: --leader-elect-namespace has to be given outside of a cluster")
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = o.RenewDeadline / 2 // one request that hangs must not lose the lease
	api, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return &Lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Client: api,
			LockConfig: resourcelock.ResourceLockConfig{Identity: Identity(identity)},
		},
		Clock: clock.RealClock{}, LeaseDuration: o.LeaseDuration,
	}, nil
}

// Get shows a lease that is held by a replica that acts as free.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder = record.HolderIdentity; l.holder != "" && !IsTeardown(l.holder) {
		l.quiet = l.Clock.Now().Add(l.LeaseDuration)
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// Holder held the lease when it was read last.
func (l *Lock) Holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder
}

// Quiet is the moment after which the replica that the lease was taken from does not act any more.
func (l *Lock) Quiet() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.quiet
}
