package setup

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	authorizationv1 "k8s.io/api/authorization/v1"
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
	"github.com/kubemend/kubemend/controllers/claims"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck/admission"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// addMachineHealthChecks adds the controllers that remediate, claim and release MachineHealthChecks.
func (p *program) addMachineHealthChecks(ctx context.Context) error {
	writer := p.writer()
	requests := &remediationrequest.Requests{Client: writer, Live: p.GetAPIReader()}
	kinds := remediationrequest.NewKinds(p.GetCache(), p.GetAPIReader(), p.o.namespace, remediationrequest.NewMetadata)
	p.cached(p.o.namespace, kinds.Cached)
	newHost := func() *bmov1alpha1.BareMetalHost { return &bmov1alpha1.BareMetalHost{} }
	hosts := remediationrequest.NewKinds(p.GetCache(), p.GetAPIReader(), p.o.namespace, newHost)
	recorder := p.GetEventRecorder("kubemend")
	p.checks = &machinehealthcheck.Reconciler{
		Client: writer, Live: p.GetAPIReader(), Clusters: p.clusters,
		Requests: requests, Kinds: kinds, Hosts: hosts, Recorder: recorder, Clock: clock.RealClock{},
		Installed: p.services.Installed, Records: p.records, Metal: p.hosts, Verify: p.clusters.Verify,
		Unclaimed: p.o.machineHealthChecks.Unclaimed, WatchFilterValue: p.o.watchFilter, Resync: p.o.syncPeriod, Ledger: p.ledger,
	}
	releaser := &machinehealthcheck.Releaser{
		Client: writer, Live: p.GetAPIReader(), Requests: requests, Kinds: kinds, Recorder: recorder,
		Discovery: p.discovery, Unclaimed: p.o.machineHealthChecks.Unclaimed, WatchFilterValue: p.o.watchFilter,
	}
	claiming := &claims.Reconciler{
		Client: p.GetClient(), Ledger: p.ledger, Recorder: recorder, Clock: clock.RealClock{}, WatchFilterValue: p.o.watchFilter,
	}
	concurrent := controller.Options{MaxConcurrentReconciles: p.o.machineHealthChecks.Concurrency}
	ten := controller.Options{MaxConcurrentReconciles: 10}
	return errors.Join(
		p.checks.SetupWithManager(ctx, p, p.connections, concurrent), claiming.SetupWithManager(p, ten), releaser.SetupWithManager(p, ten),
	)
}

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
	service.Role, service.Rights = "kubemend-nodes", []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: "remediation.medik8s.io", Resource: "nodehealthchecks"}, {Verb: "watch", Resource: "nodes"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: o.nodeHealthChecks.LeaseNamespace},
	}
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
