package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/discovery"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/teardown"
	"github.com/kubemend/kubemend/controllers/workload"
)

// leaderLease is the lease by which replicas agree who acts.
const leaderLease = managerlease.LeaderLeaseName

// lockOf is the lock of a manager that leaves; nil for one that does not, or that agrees with nobody.
func lockOf(o *options) (*teardown.Lock, error) {
	if !o.leave || !o.leaderElection {
		return nil, nil
	}
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, fmt.Errorf("find the management cluster: %w", err)
	}
	cfg = rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	cfg.Timeout = o.renewDeadline / 2 // one request that hangs must not lose the lease
	api, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	lease := leaseOf(o)
	if lease.Namespace == "" {
		return nil, errors.New("set up leader election: --leader-elect-namespace has to be given outside of a cluster")
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("set up leader election: %w", err)
	}
	return &teardown.Lock{
		Interface: &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: lease.Namespace, Name: lease.Name}, Client: api,
			LockConfig: resourcelock.ResourceLockConfig{Identity: teardown.Identity(host + "_" + string(uuid.NewUUID()))},
		},
		Clock: clock.RealClock{}, LeaseDuration: o.leaseDuration,
	}, nil
}

func leaseOf(o *options) client.ObjectKey {
	return client.ObjectKey{Namespace: cmp.Or(o.leaseNamespace, os.Getenv("POD_NAMESPACE")), Name: leaderLease}
}

// leave runs a manager that takes everything back. Its webhooks answer, and of its controllers there are those alone that let go.
func leave(ctx context.Context, mgr ctrl.Manager, lock *teardown.Lock, cc clustercache.ClusterCache, clusters *workload.Clusters, o *options) error {
	services, err := servicesOf(mgr, cc, clusters, o)
	if err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return fmt.Errorf("set up discovery: %w", err)
	}
	if err := announce(mgr, services, o); err != nil {
		return err
	}
	leaver := &teardown.Leaver{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(),
		Clusters: cc, Nodes: fence.NewNodes(cc, func(client.ObjectKey, string) {}),
		Discovery: api, Serves: services.Serves, Recorder: mgr.GetEventRecorder("kubemend"), Clock: clock.RealClock{},
		Namespace: o.namespace, WatchFilterValue: o.watchFilter, LeaseNamespace: o.nodeLeaseNamespace,
		Lock: lock, Elected: mgr.Elected(), Begin: func() error { return services.SetupWithManager(mgr) },
	}
	if lease := leaseOf(o); lock != nil {
		leaver.Lease, leaver.Pod = &lease, podOf(lease.Namespace)
	}
	if err := errors.Join(mgr.Add(leaver), mgr.AddReadyzCheck("left-behind", leaver.Ready)); err != nil {
		return fmt.Errorf("set up leaving: %w", err)
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run the manager: %w", err)
	}
	return nil
}

// podOf is the pod that we run in, as an owner; nil outside of a cluster, or if the lease is in another namespace.
func podOf(namespace string) *metav1.OwnerReference {
	name, uid := os.Getenv("POD_NAME"), os.Getenv("POD_UID")
	if name == "" || uid == "" || namespace != os.Getenv("POD_NAMESPACE") {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: name, UID: types.UID(uid)}
}
