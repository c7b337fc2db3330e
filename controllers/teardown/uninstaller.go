package teardown

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/fence"
)

// RBAC of this package: the controllers that wrote what it removes have most of the rights. Removing marks from requests needs the right to patch them,
// which comes with their kinds; hosts and leases on nodes need the rights of the controllers that marked them.
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machinehealthchecks,verbs=list;watch;patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines/status,verbs=patch

const (
	// soon is when to look again while something is left, seldom when nothing is.
	soon   = 2 * time.Second
	seldom = 30 * time.Second
	// answerWithin is how long a workload cluster is waited for in one reconcile.
	answerWithin = 10 * time.Second
	// nodeCheckCRD is the kind whose requests and leases are ours if we serve it.
	nodeCheckCRD = "nodehealthchecks.remediation.medik8s.io"
)

var (
	leaseKind   = coordinationv1.SchemeGroupVersion.WithKind("Lease")
	clusterKind = clusterv1.GroupVersion.WithKind("Cluster")
	hostKind    = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")
	checkKind   = clusterv1.GroupVersion.WithKind("MachineHealthCheck")
	machineKind = clusterv1.GroupVersion.WithKind("Machine")
)

// Clusters are the connections to workload clusters.
type Clusters interface {
	GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error)
}

// Nodes takes fences away; fence.Nodes does it.
type Nodes interface {
	Unfence(ctx context.Context, cluster client.ObjectKey, node *corev1.Node, by fence.Owner) error
}

// Uninstaller looks for what is left, removes what no controller removes, and says when nothing is left. All replicas look; the leader acts.
type Uninstaller struct {
	Client    client.Client // writes
	Live      client.Reader // reads past the caches
	Clusters  Clusters
	Nodes     Nodes
	Discovery discovery.ServerResourcesInterface
	// Serves reports whether the kind of a CustomResourceDefinition is ours to serve.
	Serves   func(ctx context.Context, crd string) (bool, error)
	Recorder events.EventRecorder
	Clock    clock.WithTicker

	// Namespace and WatchFilterValue limit what is looked at, as in the flags of these names; LeaseNamespace is where the leases on nodes are.
	Namespace, WatchFilterValue, LeaseNamespace string

	// Lock is nil if there is no leader election.
	Lock *Lock
	// Lease is the one that Lock is about, Pod the one that we run in; nil outside of a cluster.
	Lease *client.ObjectKey
	Pod   *metav1.OwnerReference
	// Elected is closed when this replica leads, and Begun is called then, once no other replica acts any more: it starts the controllers that release hosts.
	Elected <-chan struct{}
	Begin   func() error

	failed map[client.ObjectKey]time.Time // since when clusters cannot be looked at
	told   map[string]bool                // what was said of what cannot be done
	waits  map[string]bool                // what the log said last is waited for

	mu     sync.Mutex
	looked bool  // once at least
	left   error // as of the last reconcile
}

// NeedLeaderElection makes the manager start it in every replica.
func (*Uninstaller) NeedLeaderElection() bool { return false }

// Start looks and acts until ctx ends.
func (u *Uninstaller) Start(ctx context.Context) error {
	begun := false
	for {
		leads, next := u.leads(), soon
		if leads && !begun {
			if err := u.Begin(); err != nil {
				return err
			}
			begun = true
		}
		left := u.reconcile(ctx, leads)
		if left == nil {
			next = seldom
		}
		u.keep(ctx, left)
		select {
		case <-ctx.Done():
			return nil
		case <-u.Clock.After(next):
		}
	}
}

// leads reports whether this replica leads, and the one that did before has stopped.
func (u *Uninstaller) leads() bool {
	select {
	case <-u.Elected:
		return u.Lock == nil || !u.Clock.Now().Before(u.Lock.Quiet())
	default:
		return false
	}
}

// reconcile looks once, acts if this replica leads, and returns what is left.
func (u *Uninstaller) reconcile(ctx context.Context, leads bool) error {
	seen, err := u.observe(ctx, leads)
	if err != nil {
		log.FromContext(ctx).Error(err, "Cannot look for what is left")
		return err
	}
	steps := make([]step, 0, len(seen.owned))
	now := u.Clock.Now()
	for _, t := range seen.owned {
		do, why := decide(t.facts, now)
		steps = append(steps, step{t, do, why})
	}
	var errs []error
	if leads {
		for _, s := range steps {
			err := u.act(ctx, s)
			if err == nil {
				u.report(ctx, s)
			}
			errs = append(errs, err)
		}
	}
	u.measure(ctx, steps)
	if left := errors.Join(append(errs, remaining(steps)...)...); left != nil {
		return left
	}
	if !leads {
		return u.othersLead()
	}
	return u.own(ctx)
}

// othersLead is nil if another replica that tears down leads: only the leader looks at nodes.
func (u *Uninstaller) othersLead() error {
	if u.Lock != nil && IsTeardown(u.Lock.Holder()) {
		return nil
	}
	return errors.New("no replica that tears down is the leader yet")
}

// remaining is what is not done with: also what was just removed, until it is no longer found.
func remaining(steps []step) []error {
	var left []error
	for _, s := range steps {
		if s.do != pass {
			left = append(left, errors.New(s.String()))
		}
	}
	return left
}

// keep remembers what is left, and logs when nothing is: an administrator who runs the manager by hand reads that it can go.
func (u *Uninstaller) keep(ctx context.Context, left error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if left == nil && (!u.looked || u.left != nil) {
		log.FromContext(ctx).Info("Removed everything, kubemend can be stopped and deleted")
	}
	u.looked, u.left = true, left
}

// mostNamed is how many of them an answer names.
const mostNamed = 20

// Ready is a check of readiness: its error names what is left. Nothing is known before the first look, so it is not ready until then.
func (u *Uninstaller) Ready(*http.Request) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !u.looked: // the manager answers before it starts us
		return errors.New("not removed yet: nothing was read yet")
	case u.left == nil:
		return nil
	}
	lines := strings.Split(u.left.Error(), "\n")
	if more := len(lines) - mostNamed; more > 0 {
		lines = append(lines[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("not removed yet: %s", strings.Join(lines, "; "))
}

// measure exports how much is left, and logs what is waited for when that changes.
func (u *Uninstaller) measure(ctx context.Context, steps []step) {
	count, waits := map[what]int{}, map[string]bool{}
	for _, s := range steps {
		count[s.what]++
		if s.do == wait {
			waits[s.String()] = true
		}
	}
	for _, w := range whats {
		remainingGauge.WithLabelValues(string(w)).Set(float64(count[w]))
	}
	for s := range waits {
		if !u.waits[s] {
			log.FromContext(ctx).Info("Waiting", "for", s)
		}
	}
	u.waits = waits
}
