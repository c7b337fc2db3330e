package setup

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/leftovers"
	"github.com/kubemend/kubemend/controllers/replica"
	"github.com/kubemend/kubemend/controllers/workload"
)

// lockOf is the lock of a manager that tears down; nil for one that acts, or that elects no leader.
func lockOf(self replica.Replica, o *Options) (*leftovers.Lock, error) {
	if !o.teardown.Enabled || !o.election.LeaderElect {
		return nil, nil
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	identity, err := replica.Unique()
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return leftovers.NewLock(cfg, &o.election, self.Namespace, identity)
}

// tearDown runs a manager that removes what kubemend wrote. Its webhooks answer, and of its controllers there are those alone that release hosts.
func tearDown(ctx context.Context, mgr ctrl.Manager, lock *leftovers.Lock, cc clustercache.ClusterCache, clusters *workload.Clusters,
	self replica.Replica, version string, o *Options,
) error {
	services, _, err := servicesOf(mgr, cc, clusters, &requestCaches{}, self, o)
	if err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up discovery: %w", err)
	}
	if err := announce(mgr, services, clusters.Server, self, version, o); err != nil {
		return err
	}
	uninstaller := &leftovers.Teardown{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(),
		Clusters: cc, Nodes: fence.NewNodes(cc, func(fence.Place) {}),
		Discovery: api, Serves: services.Serves, Recorder: mgr.GetEventRecorder("kubemend"), Clock: clock.RealClock{},
		Namespace: o.namespace, WatchFilterValue: o.watchFilter, LeaseNamespace: o.nodeHealthChecks.LeaseNamespace,
		Lock: lock, Elected: mgr.Elected(), Begin: func() error { return services.SetupWithManager(mgr) },
	}
	if lease := o.election.LeaderLease(self.Namespace); lock != nil {
		uninstaller.Lease, uninstaller.Pod = &lease, self.Owner(lease.Namespace)
	}
	if err := errors.Join(mgr.Add(uninstaller), mgr.AddReadyzCheck("teardown", uninstaller.Ready)); err != nil {
		return fmt.Errorf("set up the teardown: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}
