package setup

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
)

// newCache returns the cache of the manager, which has of records the open ones alone, also where their kind is installed while the manager runs.
func newCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	o.ByObject = maps.Clone(o.ByObject)
	if o.ByObject == nil {
		o.ByObject = map[client.Object]cache.ByObject{}
	}
	o.ByObject[&mendv1.RemediationRecord{}] = records.CacheOptions()
	o.Mapper = knowsRecords{o.Mapper}
	return cache.New(cfg, o)
}

// knowsRecords is a mapper that knows RemediationRecords before they are installed: no cache can be set up for a kind that is not known. None is read from
// the cache before it is installed.
type knowsRecords struct{ meta.RESTMapper }

// RESTMapping is that of the API server or, of RemediationRecords that are not installed, the one that they will have.
func (m knowsRecords) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	is, err := m.RESTMapper.RESTMapping(kind, versions...)
	if record := mendv1.GroupVersion.WithKind("RemediationRecord"); meta.IsNoMatchError(err) && kind == record.GroupKind() {
		return &meta.RESTMapping{
			Resource: mendv1.GroupVersion.WithResource("remediationrecords"), GroupVersionKind: record, Scope: meta.RESTScopeNamespace,
		}, nil
	}
	return is, err
}

// newMetal returns a reader of hosts past the caches, which may have none; machines reads the Machines, of which there may be thousands.
func (p *program) newMetal(machines client.Reader) (*host.Hosts, error) {
	live, err := client.New(p.GetConfig(), client.Options{HTTPClient: p.GetHTTPClient(), Scheme: p.GetScheme(), Mapper: p.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("set up the reader of hosts: %w", err)
	}
	return &host.Hosts{Client: newHostReader(live, machines, clock.RealClock{}), Live: live}, nil
}

// hostReader reads past the caches, and lists Machines from where their controllers have them. Of hundreds of remediations that begin at
// once each asks for all Metal3Machines of its namespace: these are listed once in a few seconds.
type hostReader struct {
	client.Client
	recent, machines client.Reader
}

func newHostReader(live client.Client, machines client.Reader, now clock.PassiveClock) hostReader {
	return hostReader{live, &records.Recent{Live: live, Clock: now}, machines}
}

// List lists Machines from machines, and everything else past the caches.
func (r hostReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, are := list.(*clusterv1.MachineList); are {
		return r.machines.List(ctx, list, options...)
	}
	return r.recent.List(ctx, list, options...)
}
