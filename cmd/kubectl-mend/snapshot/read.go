package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Source is a management cluster that can be read.
type Source struct {
	// Config says which cluster, and the user.
	Config *rest.Config
	// Clock says when it is read; the real one if nil.
	Clock clock.PassiveClock
}

// Scope is how much of a management cluster is read.
type Scope struct {
	// Namespace is that of Cluster API's objects; all if it is empty. What NodeHealthChecks name is read wherever it is.
	Namespace string
	// Cluster is the one whose machines and checks are read; those of all if it is empty.
	Cluster string
	// Nodes says that the nodes of workload clusters are read.
	Nodes bool
	// Node leaves out the nodes of clusters in which no Machine names a node of that name. They are read after the Machines then.
	Node string
	// Machine is the one that is explained, of Cluster. The other machines are left out, and counted by the status of its check; where that does not
	// do, all of the cluster are read.
	Machine string
	// Host is the one that is explained, if it says that it belongs to Machine. That may name another one.
	Host string
	// Restless leaves out the machines and nodes of clusters whose checks say that all are healthy: a manager that runs has written that.
	Restless bool
	// AllMachines says that the machines of the cluster are read whatever is in the status of their checks.
	AllMachines bool
	// Owners says that what makes machines is read, and what their hosts have to be like.
	Owners bool
	// Events says that events are read.
	Events bool
	// Records says that RemediationRecords are read, OpenRecords that those are which are not closed.
	Records     bool
	OpenRecords bool
	// LeaseNamespace is where the leases on nodes are; the default of the manager's flag if it is empty.
	LeaseNamespace string
	// Templates are read besides those that the checks name, with the requests of their kinds.
	Templates []corev1.ObjectReference
	// Spares says that a check waits for spare hosts that was not read.
	Spares bool
	// NodeChecks says that what NodeHealthChecks look at is read also if there is none.
	NodeChecks bool
}

// How many requests are sent in a second, at first, and at the same time. A management cluster with a thousand workload clusters needs some thousand.
const (
	requestsPerSecond = 200
	requestBurst      = 400
	atOnce            = 32
)

// reading is a snapshot that is being read.
type reading struct {
	Scope
	snapshot *Snapshot
	client   client.Client
	served   map[schema.GroupKind]served
}

// Read reads a management cluster, and the nodes of its workload clusters, with the rights of the user. What may not be read, or does not answer,
// is Missing in the snapshot; it is an error only if the management cluster cannot be asked for anything, or ctx ends before all is read.
func Read(ctx context.Context, from Source, scope Scope) (*Snapshot, error) {
	if from.Clock == nil {
		from.Clock = clock.RealClock{}
	}
	if scope.LeaseNamespace == "" {
		scope.LeaseNamespace = nhcv1.DefaultLeaseNamespace
	}
	r, err := begin(ctx, from, scope)
	if err != nil {
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	r.all(ctx)
	if err := ctx.Err(); err != nil { // what was not read then, is not what the user may not read
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.snapshot, nil
}

// all reads what is in scope, each step from what the steps before have found.
func (r *reading) all(ctx context.Context) {
	r.each(ctx, r.first())
	r.each(ctx, slices.Concat(r.vouching(), r.nodeChecks(), r.openRecords()))
	r.each(ctx, r.elsewhere())
	r.each(ctx, r.named())
	lists := slices.Concat(r.machines(), r.hosts(), r.owners(), r.records())
	wanted := func(*clusterv1.Cluster) bool { return true }
	switch {
	case r.Machine != "" || r.Node != "":
		r.oneMachine(ctx, lists)
		lists, wanted = nil, r.concerned()
	case r.Restless:
		lists, wanted = r.restless(ctx, lists)
	}
	inParallel([]func(){ // the nodes are most of what is read beside the machines
		func() {
			if r.Nodes {
				r.workloads(ctx, wanted)
			}
		},
		func() {
			r.each(ctx, lists)
			r.each(ctx, r.controlPlanes())
		},
	})
}

// begin asks the API server which kinds it serves.
func begin(ctx context.Context, from Source, scope Scope) (*reading, error) {
	config := rest.CopyConfig(from.Config)
	config.QPS, config.Burst, config.Timeout = requestsPerSecond, requestBurst, patience
	config.WarningHandler = rest.NoWarnings{} // that a version is deprecated is not for who looks
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	groups, err := discover(ctx, config, httpClient)
	if err != nil {
		return nil, err
	}
	w := New()
	w.Taken, w.Clock, w.live = from.Clock.Now().UTC(), from.Clock, map[client.ObjectKey]client.Reader{}
	w.kinds = map[schema.GroupKind]*kind{} // only what is served is installed
	c, err := client.New(config, client.Options{Scheme: w.scheme, HTTPClient: httpClient, Mapper: restmapper.NewDiscoveryRESTMapper(groups)})
	if err != nil {
		return nil, err
	}
	r := &reading{Scope: scope, snapshot: w, client: c, served: servedOf(groups)}
	for _, usual := range always {
		r.install(usual.GroupKind())
	}
	return r, nil
}

func discover(ctx context.Context, config *rest.Config, httpClient *http.Client) ([]*restmapper.APIGroupResources, error) {
	interruptible := *httpClient // the discovery client itself takes no context
	interruptible.Transport = roundTripper(func(request *http.Request) (*http.Response, error) {
		return httpClient.Transport.RoundTrip(request.WithContext(ctx))
	})
	api, err := discovery.NewDiscoveryClientForConfigAndClient(config, &interruptible)
	if err != nil {
		return nil, err
	}
	return restmapper.GetAPIGroupResources(api)
}

// served is what an API server serves of a kind.
type served struct {
	versions   []string // the preferred one first
	plural     string
	namespaced bool
}

// servedOf are the kinds that can be listed.
func servedOf(groups []*restmapper.APIGroupResources) map[schema.GroupKind]served {
	kinds := map[schema.GroupKind]served{}
	for _, g := range groups {
		for _, v := range append([]metav1.GroupVersionForDiscovery{g.Group.PreferredVersion}, g.Group.Versions...) {
			for _, resource := range g.VersionedResources[v.Version] {
				gk := schema.GroupKind{Group: g.Group.Name, Kind: resource.Kind}
				k := kinds[gk]
				if !strings.Contains(resource.Name, "/") && slices.Contains(resource.Verbs, "list") && !slices.Contains(k.versions, v.Version) {
					kinds[gk] = served{append(k.versions, v.Version), resource.Name, resource.Namespaced}
				}
			}
		}
	}
	return kinds
}

// Installed reports whether there is a kind whose CustomResourceDefinition is of that name, also where those may not be read themselves.
func (w *Snapshot) Installed(_ context.Context, crd string) (bool, error) {
	plural, group, _ := strings.Cut(crd, ".")
	w.mu.RLock()
	defer w.mu.RUnlock()
	for gk, k := range w.kinds {
		if gk.Group == group && k.plural == plural && len(k.versions) > 0 {
			return true, nil
		}
	}
	return false, nil
}
