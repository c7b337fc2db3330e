package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
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
	// Node leaves out the nodes of clusters in which no Machine names a node of that name.
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

const (
	// patience is how long one answer of the management cluster is waited for: a list of thousands of machines takes some seconds.
	patience = 30 * time.Second
	// How many requests are sent in a second, at first, and at the same time. A management cluster with a thousand workload clusters needs
	// some thousand.
	requestsPerSecond = 200
	requestBurst      = 400
	atOnce            = 32
)

// reading is a management cluster whose answers are remembered in a snapshot.
type reading struct {
	Scope
	snapshot *Snapshot
	client   client.Client

	mu    sync.Mutex
	asked map[question]error // what was read, and why it was not
	// one says that of Machines, Metal3Machines and hosts those are read that are asked for by name or by labels, calm that no other
	// Machines are read than those that were.
	one, calm bool
	// target is the UID of the machine whose records alone are read; those of all are if it is empty.
	target string
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

// begin asks the API server which kinds it serves, and installs those that it lists; but nobody who asks a snapshot is given Secrets and
// ConfigMaps.
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
	w := empty(New().scheme)
	w.Taken, w.Clock = from.Clock.Now().UTC(), from.Clock
	c, err := client.New(config, client.Options{Scheme: w.scheme, HTTPClient: httpClient, Mapper: restmapper.NewDiscoveryRESTMapper(groups)})
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		for _, version := range append([]metav1.GroupVersionForDiscovery{group.Group.PreferredVersion}, group.Group.Versions...) {
			for _, resource := range group.VersionedResources[version.Version] {
				gvk := schema.GroupVersionKind{Group: group.Group.Name, Version: version.Version, Kind: resource.Kind}
				if slices.Contains(resource.Verbs, "list") && !strings.Contains(resource.Name, "/") && !hidden(gvk.GroupKind()) {
					w.kindFor(gvk, resource.Name, resource.Namespaced).live = true
				}
			}
		}
	}
	w.source = &reading{Scope: scope, snapshot: w, client: c, asked: map[question]error{}}
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

// roundTripper is a function that carries out requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// inParallel does something with each of several things at the same time, which says itself what fails.
func inParallel[T any](things []T, do func(T)) {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, thing := range things {
		work.Go(func() error {
			do(thing)
			return nil
		})
	}
	_ = work.Wait() // none returns an error
}
