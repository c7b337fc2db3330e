package leftovers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// RBAC of a teardown: the controllers that wrote what it removes have most of the rights. Removing marks from requests needs the right
// to patch them, which comes with their kinds; hosts and leases on nodes need the rights of the controllers that marked them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

// Options are the settings of the teardown.
type Options struct {
	// Enabled has the manager do nothing else.
	Enabled bool
}

// AddFlags adds the flag of the teardown to fs.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "teardown", false,
		"Only remove what kubemend wrote on objects, before it is uninstalled (docs/uninstall.md). "+
			"A replica is ready when nothing is left.")
}

// mostNamed is how many leftovers an answer of Ready names.
const mostNamed = 20

// Clusters are the connections to workload clusters.
type Clusters interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Teardown finds what is left, removes what no controller removes, and says when nothing is left. It reads everything live, remembers
// nothing that counts, and leaves to each controller what that has to end in its own order. All replicas look; the leader acts.
type Teardown struct {
	Remover
	Clusters  Clusters
	Discovery discovery.ServerResourcesInterface
	// Serves reports whether the kind of a CustomResourceDefinition is ours to serve.
	Serves func(ctx context.Context, crd string) (bool, error)
	Clock  clock.WithTicker

	// Namespace and WatchFilterValue limit what is read, as in the flags of these names; LeaseNamespace is where the leases on nodes are.
	Namespace, WatchFilterValue, LeaseNamespace string

	// Lock is nil if there is no leader election.
	Lock *Lock
	// Lease is the one that Lock is about, Pod the one that we run in; nil outside of a cluster.
	Lease *client.ObjectKey
	Pod   *metav1.OwnerReference
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
		return t.Lock == nil || !t.Clock.Now().Before(t.Lock.Quiet())
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
	switch err := errors.Join(left...); {
	case err != nil:
		return err
	case leads:
		return t.own(ctx)
	case t.Lock != nil && IsTeardown(t.Lock.Holder()):
		return nil
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
	if t.Pod == nil || t.Lease == nil {
		return nil
	}
	lease := as(leaseKind, metav1.ObjectMeta{})
	if err := t.Live.Get(ctx, *t.Lease, lease); err != nil {
		return fmt.Errorf("read lease %s: %w", t.Lease, err)
	}
	if owners := lease.OwnerReferences; len(owners) == 1 && owners[0].UID == t.Pod.UID {
		return nil
	}
	if err := t.patch(ctx, lease, map[string]any{"ownerReferences": []any{t.Pod}}); err != nil {
		return fmt.Errorf("have lease %s deleted with this pod: %w", t.Lease, err)
	}
	return nil
}
