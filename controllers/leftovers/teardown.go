package leftovers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/fence"
)

// RBAC of a teardown: the controllers that wrote what it removes have most of the rights. Removing marks from requests needs the right
// to patch them, which comes with their kinds; hosts and leases on nodes need the rights of the controllers that marked them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// mostNamed is how many leftovers an answer of Ready names.
const mostNamed = 20

// Teardown finds what is left, removes what no controller removes, and says when nothing is left. It reads everything live, remembers
// nothing that counts, and leaves to each controller what that has to end in its own order. All replicas look; the leader acts.
type Teardown struct {
	Remover
	Clusters  fence.Clusters
	Discovery discovery.ServerResourcesInterface
	// Serves reports whether the kind of a CustomResourceDefinition is ours to serve.
	Serves func(ctx context.Context, crd string) (bool, error)
	Clock  clock.WithTicker

	// Namespace and WatchFilterValue limit what is read, as in the flags of these names; LeaseNamespace is where the leases on nodes are.
	Namespace, WatchFilterValue, LeaseNamespace string

	// Lock is nil if there is no leader election.
	Lock *Lock
	// Pod is the one that we run in; nil outside of a cluster.
	Pod *metav1.OwnerReference
	// Elected is closed when this replica leads, and Begin is called then, once no other replica acts any more: it starts the
	// controllers that release hosts.
	Elected <-chan struct{}
	Begin   func() error

	failed map[client.ObjectKey]time.Time // since when clusters cannot be read
	said   map[string]bool                // what stays, as it was reported at the last look

	mu     sync.Mutex
	looked bool  // once at least
	left   error // as of the last reconcile
}

// NeedLeaderElection makes the manager start it in every replica.
func (*Teardown) NeedLeaderElection() bool { return false }

// Start looks and acts until ctx ends.
func (t *Teardown) Start(ctx context.Context) error {
	begun := false
	for {
		leads, next := t.leads(), soon
		if leads && !begun {
			if err := t.Begin(); err != nil {
				return err
			}
			begun = true
		}
		left := t.reconcile(ctx, leads)
		if left == nil {
			next = seldom
		}
		t.keep(ctx, left)
		select {
		case <-ctx.Done():
			return nil
		case <-t.Clock.After(next):
		}
	}
}

// leads reports whether this replica leads, and the one that did before has stopped.
func (t *Teardown) leads() bool {
	select {
	case <-t.Elected:
		if t.Lock == nil {
			return true
		}
		_, quiet := t.Lock.State()
		return !t.Clock.Now().Before(quiet)
	default:
		return false
	}
}

// reconcile looks once, acts if this replica leads, and returns what is left: also what was just removed, until it is no longer found.
func (t *Teardown) reconcile(ctx context.Context, leads bool) error {
	found, err := t.find(ctx, leads)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot look for what is left")
		return err
	}
	var left []error
	stays := map[string]bool{}
	for _, l := range found {
		if l.do != pass {
			left = append(left, errors.New(l.String()))
		}
		if l.do == wait || l.do == pass {
			stays[l.String()] = true
		}
		if (leads || l.do == wait) && !t.said[l.String()] {
			left = append(left, t.remove(ctx, l))
		}
	}
	t.said = stays
	if err := errors.Join(left...); err != nil {
		return err
	}
	if leads {
		return t.own(ctx)
	}
	if t.Lock != nil {
		if holder, _ := t.Lock.State(); strings.HasPrefix(holder, signed) {
			return nil
		}
	}
	return errors.New("no replica that tears down is the leader yet") // only the leader reads nodes
}

// keep remembers what is left, and logs when nothing is: an administrator who runs the manager by hand reads that it can go.
func (t *Teardown) keep(ctx context.Context, left error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left == nil && (!t.looked || t.left != nil) {
		log.FromContext(ctx).Info("Removed everything, kubemend can be stopped and deleted")
	}
	t.looked, t.left = true, left
}

// Ready is a check of readiness: its error names what is left. Nothing is known before the first look, so it is not ready until then.
func (t *Teardown) Ready(*http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.looked: // the manager answers before it starts us
		return errors.New("not removed yet: nothing was read yet")
	case t.left == nil:
		return nil
	}
	lines := strings.Split(t.left.Error(), "\n")
	if more := len(lines) - mostNamed; more > 0 {
		lines = append(lines[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not removed yet: %s", strings.Join(lines, "; "))
}

// own makes the leader lease go with this pod: once the manager is deleted, no controller is left to delete it. Another
// replica that takes it over does the same.
func (t *Teardown) own(ctx context.Context) error {
	if t.Pod == nil || t.Lock == nil {
		return nil
	}
	lease := as(leaseKind, metav1.ObjectMeta{})
	if err := t.Live.Get(ctx, t.Lock.Lease, lease); err != nil {
		return fmt.Errorf("read lease %s: %w", t.Lock.Lease, err)
	}
	if owners := lease.OwnerReferences; len(owners) == 1 && owners[0].UID == t.Pod.UID {
		return nil
	}
	if err := t.patch(ctx, lease, map[string]any{"ownerReferences": []any{t.Pod}}); err != nil {
		return fmt.Errorf("have lease %s deleted with this pod: %w", t.Lock.Lease, err)
	}
	return nil
}

// signed begins the identity by which a replica that tears down holds a lease.
const signed = "teardown_"

// Lock takes the lease from a replica that acts. Those are about to be replaced, and none may hold up the others: while a Deployment is
// being rolled out the old replicas stay until the new ones are ready, and the new ones are when nothing of kubemend's is left.
//
// The replica that it was taken from notices at its next try to renew, gives up after its renew deadline, and ends: that is what leader
// election promises. So a replica that has taken a lease must do nothing until that moment of State.
type Lock struct {
	resourcelock.Interface
	Lease client.ObjectKey
	Clock clock.PassiveClock
	// LeaseDuration is after how long a leader that cannot renew its lease has stopped for certain.
	LeaseDuration time.Duration

	mu     sync.Mutex
	holder string
	quiet  time.Time
}

// NewLock returns the lock on a lease of a replica that tears down. One request that hangs, which takes longer than timeout, must not lose
// it.
func NewLock(cfg *rest.Config, lease client.ObjectKey, identity string, duration, timeout time.Duration) (*Lock, error) {
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = timeout
	api, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return &Lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Client: api,
			LockConfig: resourcelock.ResourceLockConfig{Identity: signed + identity},
		},
		Lease: lease, Clock: clock.RealClock{}, LeaseDuration: duration,
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
	if l.holder = record.HolderIdentity; l.holder != "" && !strings.HasPrefix(l.holder, signed) {
		l.quiet = l.Clock.Now().Add(l.LeaseDuration)
		record.HolderIdentity = ""
	}
	return record, raw, nil
}

// State returns who held the lease when it was read last, and the moment after which the replica that it was taken from does not act any
// more.
func (l *Lock) State() (holder string, quiet time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder, l.quiet
}
