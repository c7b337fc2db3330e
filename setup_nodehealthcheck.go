package main

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeHealthService is the NodeHealthCheck controller, to be started when its kind is there and free.
//
// It has a cache of its own: requests and templates may be in any namespace, whatever --namespace says of Cluster API's objects, and
// of requests it reads more than metadata.
func nodeHealthService(mgr ctrl.Manager, services *crdgate.Reconciler, o *options) (*crdgate.Service, error) {
	contact := &nodehealthcheck.Contact{Clock: clock.RealClock{}}
	watched := *mgr.GetHTTPClient() // the same connections
	watched.Transport = contact.Around(watched.Transport)
	own, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: &watched, Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), DefaultTransform: nodehealthcheck.Slim,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Node{}:          {Transform: nodehealthcheck.SlimNode},
			&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{o.nodeLeaseNamespace: {}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the cache of nodes: %w", err)
	}
	if err := mgr.Add(nodeCache{own}); err != nil {
		return nil, fmt.Errorf("set up the cache of nodes: %w", err)
	}
	whole, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		Cache: &client.CacheOptions{Reader: own, Unstructured: true},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the client of the NodeHealthCheck controller: %w", err)
	}
	writer := client.WithFieldOwner(whole, mendv1.FieldOwner)
	// The nodes of this cluster may have their Machines in any namespace. They are read when a node is unhealthy, and for no other.
	management := client.Reader(mgr.GetClient())
	if o.namespace != "" {
		management = mgr.GetAPIReader()
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	kinds := remediationrequest.NewKinds(own, mgr.GetAPIReader(), "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	kinds.KeepWhileAny()
	kinds.AskFirst(remediationrequest.AskAPIServer(writer, mgr.GetRESTMapper()))
	r := &nodehealthcheck.Reconciler{
		Client: writer, Management: management, Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(),
		Kinds: kinds, Watches: kinds,
		Requests:  &remediationrequest.Requests{Client: writer, Live: mgr.GetAPIReader()},
		Discovery: api,
		Installed: services.Installed,
		Recorder:  mgr.GetEventRecorder("NodeHealthCheck"), Clock: clock.RealClock{}, Log: mgr.GetLogger(),
		Contact: contact, Grace: o.nodeGrace,
		LeaseNamespace: o.nodeLeaseNamespace, Resync: o.syncPeriod, Leaving: o.leave,
	}
	if o.webhookCertDir != "" {
		if err := admission.SetUp(mgr); err != nil {
			return nil, err
		}
	}
	start := func(ctx context.Context) error {
		if err := o.createDefaultNodeCheck(ctx, writer, mgr.GetAPIReader()); err != nil {
			return err
		}
		return r.SetupWithManager(mgr, own, controller.Options{MaxConcurrentReconciles: o.nodeCheckConcurrency})
	}
	service := crdgate.NodeHealthChecks(o.nodeHealthChecks)
	service.Role, service.Rights = crdgate.NodeRights(o.nodeLeaseNamespace)
	service.Start, service.Serve = start, r.Serve
	return service, nil
}

func (o *options) createDefaultNodeCheck(ctx context.Context, c client.Client, live client.Reader) error {
	if !o.defaultNodeCheck.IsSet() || o.leave {
		return nil
	}
	return nodehealthcheck.CreateDefault(ctx, c, live, o.defaultNodeCheck)
}

// nodeCache is started by the manager with its own caches.
type nodeCache struct{ cache.Cache }

// GetCache makes the manager know it for a cache.
func (c nodeCache) GetCache() cache.Cache { return c.Cache }
