package setup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/process"
)

// announce makes the manager keep the manager lease while it acts. Without a namespace for the lease, it only logs that there is none.
func (p *program) announce() error {
	namespace := p.o.leaderLease(p.self.Namespace).Namespace
	if namespace == "" {
		if p.self.InCluster() || p.o.teardown { // otherwise takeNamespace has logged why
			klog.Background().Info("Not keeping a manager lease: set --leader-elect-namespace to keep one", "lease", managerlease.LeaseName)
		}
		return nil
	}
	identity, err := p.self.Identity()
	if err != nil {
		return fmt.Errorf("set up the manager lease: %w", err)
	}
	changed := make(chan struct{}, 1)
	p.services.Changed = func() {
		select {
		case changed <- struct{}{}:
		default: // a value is waiting already
		}
	}
	started := metav1.NewTime(clock.RealClock{}.Now())
	keeper := &managerlease.Keeper{
		Client: client.WithFieldOwner(p.live, mendv1.FieldOwner), Clock: clock.RealClock{},
		Namespace: namespace, Identity: identity, Elected: p.o.election.enabled,
		Changed: changed,
		State: func() managerlease.Announcement {
			state := announcement(p.services.Kinds(), started, p.self, p.version, p.o)
			state.ClockAheadSeconds = int64(p.server.Ahead().Seconds())
			return state
		},
	}
	if p.o.teardown {
		keeper.Owner = p.self.Owner(namespace)
	}
	if err := p.Add(keeper); err != nil {
		return fmt.Errorf("set up the manager lease: %w", err)
	}
	return nil
}

// announcement returns the content of the manager lease.
func announcement(
	kinds []managerlease.Kind, started metav1.Time, self process.Replica, version string, o *Options,
) managerlease.Announcement {
	return managerlease.Announcement{
		Version: version, Started: started, Unclaimed: string(o.machineHealthChecks.Unclaimed), Namespace: o.namespace,
		WatchFilter: o.watchFilter, NodeLeaseNamespace: o.nodeHealthChecks.LeaseNamespace, Teardown: o.teardown, Kinds: kinds,
		Outside: !self.InCluster(), PolicyNamespace: o.policies(self),
	}
}

// askedFor is the timeout of takeNamespace.
const askedFor = 10 * time.Second

// takeNamespace sets --leader-elect-namespace to the usual namespace if the manager runs outside of a cluster without this flag, and
// creates the namespace if it is missing. In a teardown it does nothing, because a teardown must create nothing.
func takeNamespace(ctx context.Context, self process.Replica, o *Options) error {
	if self.InCluster() || o.election.namespace != "" || o.teardown {
		return nil
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("find the management cluster: %w", err)
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return fmt.Errorf("connect to the management cluster: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managerlease.UsualNamespace}}
	err = c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
	if apierrors.IsNotFound(err) {
		err = client.IgnoreAlreadyExists(c.Create(ctx, namespace))
	} else if apierrors.IsForbidden(err) {
		err = nil // usually it exists; if it does not, the log says that the lease cannot be written
	}
	switch {
	case err != nil && o.election.enabled:
		return fmt.Errorf("set up leader election: %w", err)
	case err != nil:
		klog.Background().Info("Not keeping a manager lease: kubectl mend does not see that this manager runs; "+
			"--leader-elect-namespace names another namespace", "because", err.Error())
	default:
		o.election.namespace = managerlease.UsualNamespace
	}
	return nil
}
