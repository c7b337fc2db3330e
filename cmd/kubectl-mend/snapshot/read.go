package snapshot

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/nodehealthcheck"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Scope is how much of a management cluster is read.
type Scope struct {
	// Namespace is that of Cluster API's objects; all if it is empty. What NodeHealthChecks name is read wherever it is.
	Namespace string
	// Cluster is the one whose machines and checks are read; those of all if it is empty.
	Cluster string
	// Node leaves out the nodes of clusters in which no Machine names a node of that name.
	Node string
	// Machine is the one that is explained, of Cluster. The others are left out where the manager has written how it is.
	Machine string
	// Restless leaves out the machines of clusters whose checks say that all are healthy: a manager that runs has written that. It leaves
	// out closed RemediationRecords as well.
	Restless bool
	// AllMachines says that the machines of the cluster are read whatever is in the status of their checks.
	AllMachines bool
	// Judge says that the machines are judged here whatever the manager has written: all of them and their nodes are read.
	Judge bool
	// Records says that RemediationRecords are read at once.
	Records bool
	// Everything says that all is read at once that a page may ask for beside what the controllers do: of a file nothing can be asked
	// later.
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

// source is a management cluster whose answers are remembered in a snapshot.
type source struct {
	Scope
	snapshot *Snapshot
	client   client.Client
	// workload reads a workload cluster.
	workload func(context.Context, client.ObjectKey) (client.Reader, error)

	// one says that of Machines, Metal3Machines and hosts those are read that are asked for by name or by labels, calm that no other
	// Machines are read than those that were.
	one, calm bool
}

// Read reads a management cluster, and the nodes of its workload clusters, with the rights of the user: here what a scope is made from, and
// later what is asked for, once. What may not be read, or does not answer, is Missing in the snapshot; it is an error only if the
// management cluster cannot be asked for anything, or ctx ends.
func Read(ctx context.Context, config *rest.Config, now clock.PassiveClock, scope Scope) (*Snapshot, error) {
	r, err := begin(ctx, rest.CopyConfig(config), now, scope)
	if err != nil {
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.read(ctx)
}

func (r *source) read(ctx context.Context) (*Snapshot, error) {
	r.readScope(ctx)
	if err := ctx.Err(); err != nil { // what was not read then, is not what the user may not read
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.snapshot, nil
}

// begin asks the API server which kinds it serves, and installs those that it lists; but no caller of a snapshot is given Secrets and
// ConfigMaps.
func begin(ctx context.Context, config *rest.Config, now clock.PassiveClock, scope Scope) (*source, error) {
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
	s := empty()
	s.Taken, s.Clock = now.Now().UTC(), now
	c, err := client.New(config, client.Options{Scheme: Scheme, HTTPClient: httpClient, Mapper: restmapper.NewDiscoveryRESTMapper(groups)})
	if err != nil {
		return nil, err
	}
	for _, group := range groups {
		for _, version := range append([]metav1.GroupVersionForDiscovery{group.Group.PreferredVersion}, group.Group.Versions...) {
			for _, resource := range group.VersionedResources[version.Version] {
				gvk := schema.GroupVersionKind{Group: group.Group.Name, Version: version.Version, Kind: resource.Kind}
				if slices.Contains(resource.Verbs, "list") && !strings.Contains(resource.Name, "/") && !hidden(gvk.GroupKind()) {
					s.kindFor(gvk, resource.Name, resource.Namespaced).live = true
				}
			}
		}
	}
	s.source = &source{Scope: scope, snapshot: s, client: c}
	s.source.workload = func(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
		return WorkloadReader(ctx, c, cluster)
	}
	return s.source, nil
}

func discover(ctx context.Context, config *rest.Config, httpClient *http.Client) ([]*restmapper.APIGroupResources, error) {
	interruptible := *httpClient // the discovery client itself takes no context
	interruptible.Transport = RoundTripper(func(request *http.Request) (*http.Response, error) {
		return httpClient.Transport.RoundTrip(request.WithContext(ctx))
	})
	api, err := discovery.NewDiscoveryClientForConfigAndClient(config, &interruptible)
	if err != nil {
		return nil, err
	}
	return restmapper.GetAPIGroupResources(api)
}

// RoundTripper is a function that carries out requests.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

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

// scoped are the kinds that are read in the namespace of a scope; others are read wherever they are.
var scoped = []schema.GroupVersionKind{
	clusterGVK, machineCheckGVK, machineGVK, machineSetGVK, machineDeploymentGVK, controlPlaneGVK,
	metal3MachineGVK, hostGVK, recordGVK, eventGVK,
}

// managerBindings selects the bindings of managers.
var managerBindings = labels.Set(managerlease.BindingLabels).String()

// reads are lists of several kinds.
type reads map[schema.GroupVersionKind][]question

// readScope reads the managers, and the clusters and checks in scope with their remediations, which tell whose machines and nodes have to
// be read; and these.
func (r *source) readScope(ctx context.Context) {
	bindings := []question{{Labels: managerBindings}}
	r.all(ctx, reads{
		nodeCheckGVK: {{}}, leaseGVK: {{Name: managerlease.LeaseName}}, roleBindingGVK: bindings, clusterRoleBindingGVK: bindings,
	})
	if r.Everything {
		r.all(ctx, reads{policyGVK: {{}}})
	}
	if len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 { // it judges nodes by the Machines of all clusters
		r.AllMachines = true
	}
	r.all(ctx, reads{clusterGVK: {{}}, machineCheckGVK: {{}}})
	requests := reads{}
	for _, gvk := range r.requestKinds() {
		requests[gvk] = []question{{Namespace: r.Namespace}}
	}
	r.all(ctx, requests)
	wanted, written := r.reads, r.written(ctx)
	switch {
	case r.Machine != "" || r.Node != "":
		wanted = r.aroundMachine(ctx, written)
	case r.Restless && !r.AllMachines && !r.Judge:
		r.restless(ctx, written)
	}
	inParallel([]func(){
		func() { r.all(ctx, r.rest()) },
		func() {
			clusters := slices.DeleteFunc(All[clusterv1.Cluster](r.snapshot, ""), func(cluster *clusterv1.Cluster) bool {
				key := client.ObjectKeyFromObject(cluster)
				checks := r.snapshot.ChecksOf(key)
				unwritten := slices.DeleteFunc(slices.Clone(checks), written)
				_, counted := r.snapshot.Counted(key)
				return !wanted(key) || !r.Everything && (counted || len(checks) > 0 && len(unwritten) == 0)
			})
			inParallel(clusters, func(cluster *clusterv1.Cluster) { r.readNodesOf(ctx, cluster) })
		},
	}, func(read func()) { read() })
}

// all reads several lists at the same time. The snapshot remembers why one could not be read.
func (r *source) all(ctx context.Context, lists reads) {
	var asks []func()
	for gvk, questions := range lists {
		for _, q := range questions {
			asks = append(asks, func() { _ = r.load(ctx, gvk, q) })
		}
	}
	inParallel(asks, func(ask func()) { ask() })
}

// requestKinds are the kinds of the requests that MachineHealthChecks make, and of those made from former templates: of every kind of
// remediation that has a template.
func (r *source) requestKinds() []schema.GroupVersionKind {
	kinds := map[schema.GroupKind]bool{
		infrav1.GroupVersion.WithKind("Metal3Remediation").GroupKind(): true, mendv1.GroupVersion.WithKind("HostRemediation").GroupKind(): true,
	}
	for _, check := range All[clusterv1.MachineHealthCheck](r.snapshot, "") {
		template := remediationrequest.TemplateKind(check.Spec.Remediation.TemplateRef)
		if check.Spec.Remediation.TemplateRef.IsDefined() && remediationrequest.Refusal(template) == nil {
			kinds[remediationrequest.KindOf(template).GroupKind()] = true
		}
	}
	var found []schema.GroupVersionKind
	for _, k := range r.snapshot.installed() {
		if kinds[k.GroupKind] || strings.HasSuffix(k.Kind, "Remediation") && r.snapshot.templated(k) {
			found = append(found, k.WithVersion(k.Versions[0]))
		}
	}
	return found
}

// rest is what is read without being asked for: the machines in scope, what records tell of them, and, for a file, all that a page may ask
// for beside what the controllers do.
func (r *source) rest() reads {
	lists := reads{machineGVK: {{}}}
	if r.Records {
		lists[recordGVK] = []question{{}}
	}
	if !r.Everything {
		return lists
	}
	for _, gvk := range scoped {
		lists[gvk] = []question{{}}
	}
	if r.Namespace != "" {
		lists[namespaceGVK] = []question{{Name: r.Namespace}}                                   // it may be being deleted
		lists[eventGVK] = append(lists[eventGVK], question{Namespace: metav1.NamespaceDefault}) // where those are about what has no namespace
	}
	if r.AllMachines && r.snapshot.served(nodehealthcheck.ClusterVersions.GroupKind()) != nil { // what a NodeHealthCheck looks at
		etcd := []question{{Namespace: nodehealthcheck.EtcdNamespace}}
		lists[nodehealthcheck.OpenShiftMachines], lists[budgetGVK], lists[podGVK] = []question{{}}, etcd, etcd
	}
	for _, p := range All[mendv1.RemediationPolicy](r.snapshot, "") {
		if p.Spec.Selector.Namespaces != nil {
			lists[namespaceGVK] = append(lists[namespaceGVK], question{})
		}
	}
	lists[overrideGVK], lists[definitionGVK] = []question{{}}, []question{{Name: crdgate.NodeCheckCRD}} // whose it is, a simulation asks
	return lists
}
