package setup

import (
	"context"
	"fmt"
	"net/http"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// nodeCluster returns the manager's own cluster for the NodeHealthCheck controller, with a cache of its own. The manager's cache has only
// the objects in --namespace, while requests and templates may be in any namespace, and of requests it has only metadata. Reads of
// unstructured objects use the new cache too.
func (p *program) nodeCluster(contact *nodehealthcheck.Contact) (cluster.Cluster, error) {
	watched := *p.GetHTTPClient() // shares the connections
	contact.Next, watched.Transport = watched.Transport, contact
	own, err := cluster.New(p.GetConfig(), func(c *cluster.Options) {
		c.HTTPClient, c.Scheme = p.GetHTTPClient(), p.GetScheme()
		c.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.GetRESTMapper(), nil }
		c.Client.Cache = &client.CacheOptions{Unstructured: true}
		c.Cache = cache.Options{
			HTTPClient: &watched, DefaultTransform: nodehealthcheck.Slim,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}:          {Transform: nodehealthcheck.SlimNode},
				&coordinationv1.Lease{}: {Namespaces: map[string]cache.Config{p.o.nodeHealthChecks.LeaseNamespace: {}}},
			},
		}
	})
	if err == nil {
		err = p.Add(own)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the cache of nodes: %w", err)
	}
	return own, nil
}

// nodeService returns the service of NodeHealthChecks as the flags configure it.
func nodeService(o *Options) *crdgate.Service {
	service := crdgate.NodeHealthChecks(o.nodeChecks)
	service.Role, service.Rights = crdgate.NodeRights(o.nodeHealthChecks.LeaseNamespace)
	if !o.gates.Enabled(nodeHealthCheck) {
		service.Choice, service.Gate = crdgate.Off, nodeHealthCheck
	}
	return service
}

// setUpNodeHealthChecks sets up the NodeHealthCheck controller. The CRD gate starts it.
func (p *program) setUpNodeHealthChecks(service *crdgate.Service) error {
	contact := &nodehealthcheck.Contact{Clock: clock.RealClock{}, Ahead: p.server.Ahead}
	own, err := p.nodeCluster(contact)
	if err != nil {
		return err
	}
	writer := client.WithFieldOwner(own.GetClient(), mendv1.FieldOwner)
	// The Machines of nodes may be in any namespace. The controller reads only the Machines of unhealthy nodes.
	management := client.Reader(p.GetClient())
	if p.o.namespace != "" {
		management = p.GetAPIReader()
	}
	empty := func() *unstructured.Unstructured { return &unstructured.Unstructured{} }
	kinds := remediationrequest.NewKinds(own.GetCache(), p.GetAPIReader(), "", empty)
	p.cached("", kinds.Cached)
	p.nodeCache = own.GetClient()
	kinds.AskFirst(remediationrequest.MayWatchAll(writer, p.GetRESTMapper()))
	r := &nodehealthcheck.Reconciler{
		Client: writer, Management: management, Live: p.GetAPIReader(), Mapper: p.GetRESTMapper(),
		Kinds: kinds, Watches: kinds,
		Requests:  &remediationrequest.Requests{Client: writer, Live: p.GetAPIReader()},
		Records:   p.records,
		Discovery: p.discovery,
		Gate:      &begin.Gate{Clock: clock.RealClock{}}, Ledger: p.ledger, Cached: p.GetClient(),
		Installed: p.services.Installed,
		Recorder:  p.GetEventRecorder("NodeHealthCheck"), Clock: clock.RealClock{}, Log: p.GetLogger(),
		Contact: contact, Grace: p.o.nodeHealthChecks.Grace,
		LeaseNamespace: p.o.nodeHealthChecks.LeaseNamespace, Resync: p.o.syncPeriod, Teardown: p.o.teardown,
	}
	p.stepLeft = r.StepLeft
	if p.o.webhooks.CertDir != "" {
		if err := admission.SetUp(p); err != nil {
			return err
		}
	}
	service.Serve, service.Start = r.Serve, func(ctx context.Context) error {
		if template := p.o.nodeHealthChecks.DefaultTemplate; template != nil && !p.o.teardown {
			if err := nodehealthcheck.CreateDefault(ctx, writer, p.GetAPIReader(), template); err != nil {
				return err
			}
		}
		return r.SetupWithManager(p, own.GetCache(), controller.Options{MaxConcurrentReconciles: p.o.nodeHealthChecks.Concurrency})
	}
	return nil
}
