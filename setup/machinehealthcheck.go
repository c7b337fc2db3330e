package setup

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/access"
	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
	"github.com/kubemend/kubemend/controllers/workload"
)

// addMachineHealthChecks adds the MachineHealthCheck controller, and what it needs, to mgr, and returns it.
func addMachineHealthChecks(ctx context.Context, mgr ctrl.Manager, cc clustercache.ClusterCache, clusters *workload.Clusters,
	services *crdgate.Reconciler, kept *records.Records, caches *requestCaches, o *Options,
) (*machinehealthcheck.Reconciler, error) {
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	writer := client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner)
	metal, err := newMetal(mgr, mgr.GetClient())
	if err != nil {
		return nil, err
	}
	requests := &remediationrequest.Requests{Client: writer, Live: mgr.GetAPIReader()}
	kinds := remediationrequest.NewKinds(mgr.GetCache(), mgr.GetAPIReader(), o.namespace, remediationrequest.NewMetadata)
	caches.add(o.namespace, kinds.Cached)
	newHost := func() *bmov1alpha1.BareMetalHost { return &bmov1alpha1.BareMetalHost{} }
	hosts := remediationrequest.NewKinds(mgr.GetCache(), mgr.GetAPIReader(), o.namespace, newHost)
	recorder := mgr.GetEventRecorder("kubemend")
	r := &machinehealthcheck.Reconciler{
		Client: writer, Live: mgr.GetAPIReader(), Clusters: clusters,
		Requests: requests, Kinds: kinds, Hosts: hosts, Recorder: recorder, Clock: clock.RealClock{}, Installed: services.Installed, Records: kept,
		Metal: metal, Verify: clusters.Verify, Unclaimed: o.machineHealthChecks.Unclaimed, WatchFilterValue: o.watchFilter, Resync: o.syncPeriod,
	}
	releaser := &machinehealthcheck.Releaser{
		Client: writer, Live: mgr.GetAPIReader(), Requests: requests, Kinds: kinds, Recorder: recorder,
		Discovery: api, Unclaimed: o.machineHealthChecks.Unclaimed, WatchFilterValue: o.watchFilter,
	}
	return r, errors.Join(
		r.SetupWithManager(ctx, mgr, cc, controller.Options{MaxConcurrentReconciles: o.machineHealthChecks.Concurrency}),
		addClaims(ctx, mgr, o), releaser.SetupWithManager(mgr, controller.Options{MaxConcurrentReconciles: 10}),
	)
}

// addClaims adds the controller to mgr that claims the checks of labelled Clusters and Namespaces.
func addClaims(ctx context.Context, mgr ctrl.Manager, o *Options) error {
	mayWatch := o.namespace == ""
	for _, verb := range []string{"list", "watch"} {
		if !mayWatch {
			break
		}
		var err error
		if mayWatch, err = access.Allowed(ctx, mgr.GetClient(), authorizationv1.ResourceAttributes{Verb: verb, Resource: "namespaces"}); err != nil {
			return fmt.Errorf("ask whether the manager may %s Namespaces: %w", verb, err)
		}
	}
	return (&claims.Reconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("kubemend"),
		Namespace: o.namespace, WatchFilterValue: o.watchFilter,
	}).SetupWithManager(mgr, mayWatch, controller.Options{MaxConcurrentReconciles: 10})
}
