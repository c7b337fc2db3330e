package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	// Machine is the one that is explained, of Cluster. The other machines are left out, and counted by the status of its check; where that
	// does not do, all of the cluster are read.
	Machine string
	// Restless leaves out the machines and nodes of clusters whose checks say that all are healthy: a manager that runs has written that.
	Restless bool
	// AllMachines says that the machines of the cluster are read whatever is in the status of their checks.
	AllMachines bool
	// Records says that RemediationRecords are read at once, OpenRecords that closed ones are never read.
	Records     bool
	OpenRecords bool
	// Everything says that all is read at once that a page may ask for beside what the controllers do: there is nobody to ask later.
	Everything bool
}

// reads reports whether a Cluster is in scope, and with it all that belongs to it.
func (s *Scope) reads(cluster client.ObjectKey) bool {
	return (s.Namespace == "" || s.Namespace == cluster.Namespace) && (s.Cluster == "" || s.Cluster == cluster.Name)
}

// How many requests are sent in a second, at first, and at the same time. A management cluster with a thousand workload clusters needs some
// thousand.
const (
	requestsPerSecond = 200
	requestBurst      = 400
	atOnce            = 32
)

// reading is a management cluster of which kinds are read when they are asked for.
type reading struct {
	Scope
	snapshot *Snapshot
	client   client.Client
	served   map[schema.GroupKind]served

	mu    sync.Mutex
	asked map[query]error // what was read, and why it was not
	// one says that the machines of the cluster are those that were read, and calm that those of calm clusters were not: others are not
	// listed.
	one, calm bool
	// target is the UID of the machine whose records alone are read; those of all are if it is empty.
	target string
	// siblings says that also those of its owner were read, to tell whether its capacity is back: the hosts that they may get are listed then.
	siblings atomic.Bool
	// live are the workload clusters that can be read past what was seen of them.
	live map[client.ObjectKey]client.Reader
}

// Read reads a management cluster, and the nodes of its workload clusters, with the rights of the user: here what a scope is made from, and
// later what is asked for, once. What may not be read, or does not answer, is Missing in the snapshot; it is an error only if the
// management cluster cannot be asked for anything, or ctx ends.
func Read(ctx context.Context, from Source, scope Scope) (*Snapshot, error) {
	if from.Clock == nil {
		from.Clock = clock.RealClock{}
	}
	r, err := begin(ctx, from, scope)
	if err != nil {
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	r.readScope(ctx)
	if err := ctx.Err(); err != nil { // what was not read then, is not what the user may not read
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.snapshot, nil
}

// readScope reads the clusters and checks in scope with their remediations, which tell whose machines and nodes have to be read, and these.
func (r *reading) readScope(ctx context.Context) {
	r.each(ctx, r.managers())
	if len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 { // it judges nodes by the Machines of all clusters
		r.AllMachines = true
	}
	r.each(ctx, []query{{gvk: clusterGVK}, {gvk: machineCheckGVK}})
	r.each(ctx, r.remediations())
	var wanted func(*clusterv1.Cluster) bool
	switch {
	case r.Machine != "" || r.Node != "":
		wanted = r.oneMachine(ctx)
	case r.Restless && !r.AllMachines:
		wanted = r.restless(ctx)
	default:
		wanted = func(c *clusterv1.Cluster) bool { return r.reads(client.ObjectKeyFromObject(c)) }
	}
	inParallel([]func(){ // the nodes are most of what is read beside the machines
		func() {
			if r.Nodes {
				r.workloads(ctx, wanted)
			}
		},
		func() { r.each(ctx, r.rest()) },
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
	w.Taken, w.Clock = from.Clock.Now().UTC(), from.Clock
	w.kinds = map[schema.GroupKind]*kind{} // only what is served is installed
	c, err := client.New(config, client.Options{Scheme: w.scheme, HTTPClient: httpClient, Mapper: restmapper.NewDiscoveryRESTMapper(groups)})
	if err != nil {
		return nil, err
	}
	w.source = &reading{
		Scope: scope, snapshot: w, client: c, served: servedOf(groups), asked: map[query]error{}, live: map[client.ObjectKey]client.Reader{},
	}
	for _, gk := range []schema.GroupKind{secretKind, configMapKind} { // nobody who asks a snapshot is given these
		delete(w.source.served, gk)
	}
	for gk, kind := range w.source.served {
		for _, version := range kind.versions {
			w.Install(gk.WithVersion(version), kind.plural, kind.namespaced)
		}
	}
	return w.source, nil
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

// each reads several lists at the same time.
func (r *reading) each(ctx context.Context, queries []query) {
	reads := make([]func(), 0, len(queries))
	for _, q := range queries {
		reads = append(reads, func() { _ = r.load(ctx, q) }) // the snapshot remembers why it could not be read
	}
	inParallel(reads)
}

// inParallel does several things at the same time, each of which says itself what fails.
func inParallel(tasks []func()) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, do := range tasks {
		work.Go(func() error {
			do()
			return nil
		})
	}
	_ = work.Wait() // none returns an error
}
