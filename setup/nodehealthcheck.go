package setup

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/clockerror"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeCluster reads the cluster that the manager runs in for the NodeHealthCheck controller.
//
// It has a cache of its own: requests and templates may be in any namespace, whatever --namespace says of Cluster API's objects, and
// of requests the controller reads more than metadata. Unstructured objects come from that cache as well.
func nodeCluster(mgr ctrl.Manager, contact *nodehealthcheck.Contact, o *Options) (cluster.Cluster, error) {
	watched := *mgr.GetHTTPClient() // the same connections
	watched.Transport = contact.Around(watched.Transport)
	own, err := cluster.New(mgr.GetConfig(), func(c *cluster.Options) {
		c.HTTPClient, c.Scheme = mgr.GetHTTPClient(), mgr.GetScheme()
		c.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
		c.Client.Cache = &client.CacheOptions{Unstructured: true}
		c.Cache = cache.Options{
			HTTPClient: &watched, DefaultTransform: nodehealthcheck.Slim,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}:          {Transform: nodehealthcheck.SlimNode},
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{o.nodeHealthChecks.LeaseNamespace: {}}},
			},
		}
	})
	if err == nil {
		err = mgr.Add(own)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the cache of nodes: %w", err)
	}
	return own, nil
}

// nodeHealthService is the NodeHealthCheck controller, to be started when its kind is there and free.
func nodeHealthService(
	mgr ctrl.Manager, services *crdgate.Reconciler, server *clockerror.Server, kept *records.Records, caches *requestCaches, o *Options,
) (*crdgate.Service, error) {
	contact := &nodehealthcheck.Contact{Clock: clock.RealClock{}, Server: server}
	own, err := nodeCluster(mgr, contact, o)
	if err != nil {
		return nil, err
	}
	writer := client.WithFieldOwner(own.GetClient(), mendv1.FieldOwner)
	// The nodes of this cluster may have their Machines in any namespace. They are read when a node is unhealthy, and for no other.
	management := client.Reader(mgr.GetClient())
	if o.namespace != "" {
		management = mgr.GetAPIReader()
	}
	api, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	metal, err := newMetal(mgr, management)
	if err != nil {
		return nil, err
	}
	kinds := remediationrequest.NewKinds(own.GetCache(), mgr.GetAPIReader(), "", func() *unstructured.Unstructured { return &unstructured.Unstructured{} })
	kinds.KeepWhileAny()
	caches.add("", kinds.Cached)
	caches.nodes = own.GetClient()
	kinds.AskFirst(remediationrequest.MayWatchAll(writer, mgr.GetRESTMapper()))
	r := &nodehealthcheck.Reconciler{
		Client: writer, Management: management, Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(),
		Kinds: kinds, Watches: kinds,
		Requests:  &remediationrequest.Requests{Client: writer, Live: mgr.GetAPIReader()},
		Records:   kept,
		Metal:     metal,
		Discovery: api,
		Gate:      &begin.Gate{Clock: clock.RealClock{}},
		Installed: services.Installed,
		Recorder:  mgr.GetEventRecorder("NodeHealthCheck"), Clock: clock.RealClock{}, Log: mgr.GetLogger(),
		Contact: contact, Grace: o.nodeHealthChecks.Grace,
		LeaseNamespace: o.nodeHealthChecks.LeaseNamespace, Resync: o.syncPeriod, Teardown: o.teardown.Enabled,
	}
	if o.endpoints.WebhookCertDir != "" {
		if err := admission.SetUp(mgr); err != nil {
			return nil, err
		}
	}
	start := func(ctx context.Context) error {
		if template := o.nodeHealthChecks.DefaultTemplate; template.IsSet() && !o.teardown.Enabled {
			if err := nodehealthcheck.CreateDefault(ctx, writer, mgr.GetAPIReader(), template); err != nil {
				return err
			}
		}
		return r.SetupWithManager(mgr, own.GetCache(), controller.Options{MaxConcurrentReconciles: o.nodeHealthChecks.Concurrency})
	}
	service := crdgate.NodeHealthChecks(o.kinds.NodeHealthChecks)
	service.Role, service.Rights = crdgate.NodeRights(o.nodeHealthChecks.LeaseNamespace)
	service.Start, service.Serve = start, r.Serve
	return service, nil
}
