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

// RBAC of a teardown. For requests, hosts and leases on nodes, it uses the rights of the controllers that write to them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// mostNamed is how many leftovers the error of Ready lists at most.
const mostNamed = 20

// Teardown finds what kubemend wrote, removes what no controller removes, and becomes ready when nothing is left. It reads from the API
// server and keeps no state that matters. Power cycles and requests are ended by their controllers. All replicas search; only the leader
// removes.
type Teardown struct {
	Remover
	Clusters  fence.Clusters
	Discovery discovery.ServerResourcesInterface
	// Serves reports whether kubemend serves the kind of a CustomResourceDefinition.
	Serves func(ctx context.Context, crd string) (bool, error)
	Clock  clock.WithTicker

	// Namespace and WatchFilterValue limit what is read, as the flags of these names do. LeaseNamespace is where the leases on nodes are.
	Namespace, WatchFilterValue, LeaseNamespace string

	Lock *Lock                  // nil without leader election
	Pod  *metav1.OwnerReference // the pod of this process; nil outside of a cluster
	// Elected is closed when this replica becomes the leader.
	Elected <-chan struct{}
	// Begin starts the controllers of hosts and of NodeHealthChecks, once this replica leads and no other replica acts any more.
	Begin func() error

	failed map[client.ObjectKey]time.Time // since when the nodes of a cluster cannot be read
	said   map[string]bool                // what the last reconcile waited for or passed over, and has reported

	mu     sync.Mutex
	looked bool  // whether a reconcile has ended
	left   error // the result of the last reconcile
}

// NeedLeaderElection makes the manager start the teardown in every replica.
func (*Teardown) NeedLeaderElection() bool { return false }

// Start reconciles until ctx ends.
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

// leads reports whether this replica is the leader and the previous leader has stopped.
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

// reconcile searches once, removes what it finds if this replica leads, and returns an error that lists what is left. The error also lists
// what was just removed, until the next search does not find it any more.
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
	return errors.New("no replica in teardown is the leader yet") // only the leader reads nodes
}

// keep stores what is left, and logs when nothing is left, for a user who runs the manager without a Deployment.
func (t *Teardown) keep(ctx context.Context, left error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if left == nil && (!t.looked || t.left != nil) {
		log.FromContext(ctx).Info("Removed everything, kubemend can be stopped and deleted")
	}
	t.looked, t.left = true, left
}

// Ready is a readiness check. Its error lists what is left.
func (t *Teardown) Ready(*http.Request) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.looked: // the manager serves the check before it calls Start
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

// own makes this pod the owner of the leader lease, so that the garbage collector deletes the lease with the pod: no controller of kubemend
// is left then. Another replica that becomes the leader does the same.
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

// signed is the prefix of the identity in the leader lease of a replica that tears down.
const signed = "teardown_"

// Lock takes the leader lease from a replica without --teardown. Otherwise the rollout of a Deployment would never end: the old replicas
// stay until the new ones are ready, and the new ones become ready only after the leader has removed everything.
//
// The previous leader cannot renew the lease any more, and ends after its renew deadline, as leader election guarantees. So a replica that
// has taken the lease must do nothing before the time that State returns.
type Lock struct {
	resourcelock.Interface
	Lease client.ObjectKey
	Clock clock.PassiveClock
	// LeaseDuration is after how long a leader that cannot renew its lease has certainly stopped.
	LeaseDuration time.Duration

	mu     sync.Mutex
	holder string
	quiet  time.Time
}

// NewLock returns the lock of a replica that tears down. timeout limits each request, so that a request that hangs does not lose the lease.
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

// Get reads the lease. If a replica without --teardown holds the lease, Get returns it as free.
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

// State returns the holder of the lease at the last read, and the time from which the previous leader does not act any more.
func (l *Lock) State() (holder string, quiet time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder, l.quiet
}
