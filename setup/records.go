package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/process"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// newCache returns the cache of the manager. It keeps only open RemediationRecords, even if their CRD is installed later.
func newCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	o.ByObject = maps.Clone(o.ByObject)
	if o.ByObject == nil {
		o.ByObject = map[client.Object]cache.ByObject{}
	}
	o.ByObject[&mendv1.RemediationRecord{}] = records.CacheOptions()
	o.Mapper = knowsOurs{o.Mapper}
	return cache.New(cfg, o)
}

// knowsOurs is a mapper that knows cached kinds of kubemend before they are installed, because a cache cannot be set up with options for an
// unknown kind. The CRD gate ensures that nothing reads them from the cache before they are installed.
type knowsOurs struct{ meta.RESTMapper }

var cachedKinds = map[string]string{"RemediationRecord": "remediationrecords", "RemediationPolicy": "remediationpolicies",
	"RemediationOverride": "remediationoverrides"}

// RESTMapping returns the mapping of the API server or, for a kind of kubemend that is not installed, the mapping that it will have.
func (m knowsOurs) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.RESTMapper.RESTMapping(kind, versions...)
	resource, ours := cachedKinds[kind.Kind]
	if ours && meta.IsNoMatchError(err) && kind.Group == mendv1.GroupVersion.Group {
		return &meta.RESTMapping{
			Resource: mendv1.GroupVersion.WithResource(resource), GroupVersionKind: mendv1.GroupVersion.WithKind(kind.Kind),
			Scope: meta.RESTScopeNamespace,
		}, nil
	}
	return mapping, err
}

// newHosts returns the reader of hosts for checks and records.
func (p *program) newHosts() *host.Hosts {
	reader := hostReader{
		Client: p.live, recent: records.NewRecent(p.live, clock.RealClock{}), caches: p.GetClient(), namespace: p.o.namespace,
		watched: p.hostsWatched.Load,
	}
	return &host.Hosts{Client: reader, Live: p.live}
}

// hostReader reads Machines from the caches. Hosts and Metal3Machines are in the caches only while the controllers of power cycles watch
// them; otherwise it gets them from the API server, and lists them at most once in a few seconds, because hundreds of remediations that
// begin at once each list all Metal3Machines of their namespace.
type hostReader struct {
	client.Client  // reads from the API server
	recent, caches client.Reader
	namespace      string      // of the caches; empty for all
	watched        func() bool // whether hosts and Metal3Machines are in the caches
}

func (r hostReader) has(obj runtime.Object, namespace string) bool {
	_, machines := obj.(*clusterv1.MachineList)
	return (r.namespace == "" || r.namespace == namespace) && (machines || r.watched())
}

// Get implements client.Reader.
func (r hostReader) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	if r.has(obj, key.Namespace) {
		return r.caches.Get(ctx, key, obj, options...)
	}
	return r.Client.Get(ctx, key, obj, options...)
}

// List implements client.Reader.
func (r hostReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if r.has(list, (&client.ListOptions{}).ApplyOptions(options).Namespace) {
		return r.caches.List(ctx, list, options...)
	}
	return r.recent.List(ctx, list, options...)
}

// recordService returns the service that follows remediations by their records, for the CRD gate.
func (p *program) recordService() *crdgate.Service {
	r := &records.Reconciler{
		Records: p.records, Recent: records.NewRecent(p.GetAPIReader(), clock.RealClock{}), Mapper: p.GetRESTMapper(),
		Cached: p.caches, NodeCache: p.nodeCache, HostLists: p.hosts.Client, Namespace: p.o.namespace,
		Finds: p.checks.Finds, StepLeft: p.stepLeft,
		Recorder: p.GetEventRecorder("kubemend"), WatchFilterValue: p.o.watchFilter,
		Nodes:           p.o.gates.Enabled(nodeHealthCheck) && p.o.nodeChecks != crdgate.Off,
		ActsOnUnclaimed: p.o.machineHealthChecks.Unclaimed == machinehealthcheck.Act, Retention: p.o.records,
		ActsOnNodes: func() bool {
			return slices.Contains(p.services.Kinds(), managerlease.Kind{CRD: crdgate.NodeCheckCRD})
		},
	}
	return &crdgate.Service{CRD: crdgate.RecordCRD, Choice: crdgate.Auto, Start: func(ctx context.Context) error {
		return r.SetupWithManager(ctx, p, controller.Options{MaxConcurrentReconciles: 10})
	}}
}

// policies returns the namespace whose RemediationPolicies apply in all namespaces that the manager watches.
func (o *Options) policies(self process.Replica) string {
	return cmp.Or(o.policyNamespace, o.namespace, o.election.namespace, self.Namespace)
}

// policyService returns the service that reads RemediationPolicies, for the CRD gate.
func (p *program) policyService() *crdgate.Service {
	service := &crdgate.Service{CRD: crdgate.PolicyCRD, Needs: []string{crdgate.OverrideCRD}, Choice: crdgate.Auto}
	for _, namespace := range slices.Compact([]string{p.o.namespace, p.o.policies(p.self)}) {
		if p.o.namespace != "" { // a manager of all namespaces has this right by its ClusterRoleBinding
			service.Rights = append(service.Rights, authorizationv1.ResourceAttributes{
				Verb: "watch", Group: mendv1.GroupVersion.Group, Resource: "remediationpolicies", Namespace: namespace,
			})
			service.Role = "kubemend-manager-role"
		}
	}
	service.Start = func(ctx context.Context) error {
		r := &policy.Reconciler{
			Client: p.writer(), Ledger: p.ledger, Everywhere: p.o.policies(p.self), Ahead: p.server.Ahead, Live: p.GetAPIReader(),
		}
		if err := errors.Join(metrics.Registry.Register(p.ledger), r.SetupWithManager(p)); err != nil {
			return err
		}
		open, err := p.GetCache().GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("cache RemediationRecords: %w", err)
		}
		return p.ledger.FollowRecords(open)
	}
	return service
}
