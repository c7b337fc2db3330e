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

// Scope selects what is read of a management cluster.
type Scope struct {
	// Namespace limits the objects of Cluster API to one namespace; empty means all. Objects that NodeHealthChecks name are always read.
	Namespace string
	// Cluster limits machines and checks to one Cluster; empty means all.
	Cluster string
	// Node is the explained node. Nodes of clusters without a Machine whose nodeRef has that name are not read.
	Node string
	// Machine is the explained machine of Cluster. Other machines are not read if the manager has written the verdict on this one.
	Machine string
	// Restless leaves out closed RemediationRecords, and the machines of clusters whose checks say that all machines are healthy, if a
	// running manager wrote that.
	Restless bool
	// AllMachines reads the machines in scope whatever the status of their checks says.
	AllMachines bool
	// Judge reads all machines in scope and their nodes, to judge them here instead of repeating what the manager wrote.
	Judge bool
	// Records reads RemediationRecords at once.
	Records bool
	// Everything reads at once all that a page may need, for a record, from which nothing can be read on demand later.
	Everything bool
}

// reads reports whether a Cluster is in scope.
func (s *Scope) reads(cluster client.ObjectKey) bool {
	return (s.Namespace == "" || s.Namespace == cluster.Namespace) && (s.Cluster == "" || s.Cluster == cluster.Name)
}

const (
	// patience is the timeout of one request to the management cluster. A list of thousands of machines takes some seconds.
	patience = 30 * time.Second
	// The client's limits: requests per second, burst, and requests at the same time. A thousand workload clusters need some thousand
	// requests.
	requestsPerSecond = 200
	requestBurst      = 400
	atOnce            = 32
)

// source is a management cluster whose answers are remembered in a snapshot.
type source struct {
	Scope
	snapshot *Snapshot
	client   client.Client
	// workload returns a reader of a workload cluster.
	workload func(context.Context, client.ObjectKey) (client.Reader, error)

	// one limits reads of Machines, Metal3Machines and hosts to those that are asked for by name or labels.
	one bool
}

// Read reads what the scope selects of a management cluster and its workload clusters, with the user's rights. The snapshot reads other
// objects when they are asked for. Missing has what could not be read; Read returns an error only if the API server does not answer at all,
// or if ctx ends.
func Read(ctx context.Context, config *rest.Config, now clock.PassiveClock, scope Scope) (*Snapshot, error) {
	r, err := begin(ctx, rest.CopyConfig(config), now, scope)
	if err != nil {
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.read(ctx)
}

func (r *source) read(ctx context.Context) (*Snapshot, error) {
	r.readScope(ctx)
	if err := ctx.Err(); err != nil { // else an interrupted read would look like missing rights
		return nil, fmt.Errorf("read the management cluster: %w", err)
	}
	return r.snapshot, nil
}

// begin asks the API server which kinds it serves, and installs those that can be listed, except Secrets and ConfigMaps.
func begin(ctx context.Context, config *rest.Config, now clock.PassiveClock, scope Scope) (*source, error) {
	config.QPS, config.Burst, config.Timeout = requestsPerSecond, requestBurst, patience
	config.WarningHandler = rest.NoWarnings{} // a user who only reads need not see that a version is deprecated
	groups, err := discover(ctx, config)
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: Scheme, Mapper: restmapper.NewDiscoveryRESTMapper(groups)})
	if err != nil {
		return nil, err
	}
	s := empty()
	s.Namespace, s.Taken, s.Clock = scope.Namespace, now.Now().UTC(), now
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

func discover(ctx context.Context, config *rest.Config) ([]*restmapper.APIGroupResources, error) {
	interruptible := rest.CopyConfig(config) // GetAPIGroupResources takes no context
	interruptible.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) { return next.RoundTrip(request.WithContext(ctx)) })
	})
	api, err := discovery.NewDiscoveryClientForConfig(interruptible)
	if err != nil {
		return nil, err
	}
	return restmapper.GetAPIGroupResources(api)
}

// RoundTripper makes a function an http.RoundTripper.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// inParallel calls do for all things, at most atOnce at the same time, and returns the first error.
func inParallel[T any](things []T, do func(T) error) error {
	var work errgroup.Group
	work.SetLimit(atOnce)
	for _, thing := range things {
		work.Go(func() error { return do(thing) })
	}
	return work.Wait()
}

// scoped are the kinds that are read only in the namespace of the scope.
var scoped = []schema.GroupVersionKind{
	clusterGVK, machineCheckGVK, machineGVK, machineSetGVK, machineDeploymentGVK, controlPlaneGVK,
	metal3MachineGVK, hostGVK, recordGVK, eventGVK,
}

// reads are questions of several kinds.
type reads map[schema.GroupVersionKind][]question

// readScope reads the managers, then the clusters, checks and remediations in scope, and then the machines and nodes that these show to be
// needed.
func (r *source) readScope(ctx context.Context) {
	var managers []managerlease.Manager
	r.all(ctx, reads{nodeCheckGVK: {{}}}, func() (err error) {
		managers, err = managerlease.Of(ctx, r.snapshot, r.snapshot.Taken) // a manager that the user may not see does not count
		return err
	})
	if len(r.snapshot.Objects(nodeCheckGVK, "")) > 0 { // a NodeHealthCheck needs the Machines of all clusters
		r.AllMachines = true
	}
	r.all(ctx, reads{clusterGVK: {{}}, machineCheckGVK: {{}}})
	requests := reads{}
	for _, gvk := range r.requestKinds() {
		requests[gvk] = []question{{Namespace: r.Namespace}}
	}
	r.all(ctx, requests)
	writes := r.snapshot.WrittenBy(managers)
	written := func(check *clusterv1.MachineHealthCheck) bool {
		cluster := One[clusterv1.Cluster](r.snapshot, client.ObjectKey{Namespace: check.Namespace, Name: check.Spec.ClusterName})
		return !r.Judge && cluster != nil && writes(check, cluster)
	}
	switch {
	case r.AllMachines || r.Judge:
	case r.Machine != "":
		r.readMachine(ctx, written)
	case r.Restless:
		r.restless(ctx, written)
	}
	wanted := r.reads
	if r.Node != "" {
		wanted = r.withNode(ctx)
	}
	r.all(ctx, r.rest(), func() error {
		clusters := slices.DeleteFunc(All[clusterv1.Cluster](r.snapshot, ""), func(cluster *clusterv1.Cluster) bool {
			key := client.ObjectKeyFromObject(cluster)
			checks := r.snapshot.ChecksOf(key)
			_, counted := r.snapshot.Counted(key)
			allWritten := len(checks) > 0 && len(slices.DeleteFunc(checks, written)) == 0
			return !wanted(key) || !r.Everything && (counted || allWritten)
		})
		return inParallel(clusters, func(cluster *clusterv1.Cluster) error { return r.readNodesOf(ctx, cluster) })
	})
}

// withNode reads the machines in scope. It returns a function that reports whether a machine of a cluster names the explained node.
func (r *source) withNode(ctx context.Context) func(client.ObjectKey) bool {
	r.all(ctx, reads{machineGVK: {{}}})
	clusters := map[client.ObjectKey]bool{}
	for _, machine := range All[clusterv1.Machine](r.snapshot, "") {
		if machine.Status.NodeRef.Name == r.Node {
			clusters[clusterOf(machine)] = true
		}
	}
	return func(cluster client.ObjectKey) bool { return clusters[cluster] }
}

// all lists several questions, and calls others, at the same time. The snapshot remembers the errors.
func (r *source) all(ctx context.Context, lists reads, others ...func() error) {
	for gvk, questions := range lists {
		for _, q := range questions {
			others = append(others, func() error { return r.load(ctx, gvk, q) })
		}
	}
	_ = inParallel(others, func(read func() error) error { return read() })
}

// requestKinds returns the kinds of requests that MachineHealthChecks create now, or may have created from former templates: every kind
// whose name ends with Remediation and that has a template kind.
func (r *source) requestKinds() []schema.GroupVersionKind {
	kinds := map[schema.GroupKind]bool{
		infrav1.GroupVersion.WithKind("Metal3Remediation").GroupKind(): true,
		mendv1.GroupVersion.WithKind("HostRemediation").GroupKind():    true,
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

// rest returns what readScope lists last: the machines in scope, records if the scope has them, and, for a record file, all that a page may
// need.
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
		lists[namespaceGVK] = []question{{Name: r.Namespace}}                                   // shows whether it is being deleted
		lists[eventGVK] = append(lists[eventGVK], question{Namespace: metav1.NamespaceDefault}) // has the events of cluster-scoped objects
	}
	if r.AllMachines && r.snapshot.served(nodehealthcheck.ClusterVersions.GroupKind()) != nil { // on OpenShift, NodeHealthChecks read these
		etcd := []question{{Namespace: nodehealthcheck.EtcdNamespace}}
		lists[nodehealthcheck.OpenShiftMachines], lists[budgetGVK], lists[podGVK] = []question{{}}, etcd, etcd
	}
	lists[overrideGVK], lists[definitionGVK] = []question{{}}, []question{{Name: crdgate.NodeCheckCRD}} // simulate asks who owns the CRD
	return lists
}
