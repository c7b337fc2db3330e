// Package nodes tests the built manager where NodeHealthChecks are: in a cluster that manages itself, so that its Nodes and the Machines
// behind them are objects of one API server. Cluster API's own controllers and kube-controller-manager's run there; hosts, kubelets and the
// remediators of others are simulated.
//
// The manager has no rights but those that it ships with, and those that each remediator brings by the label for aggregation. What it does
// through the kubeconfig Secret of Cluster API, fencing above all, it does as a user who has the roles for workload clusters. The specs
// share the cluster, one control-plane node and four workers, and each leaves it as it found it: all healthy, no check, no request.
package nodes

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

const (
	specPatience = suite.SpecPatience
	// agentTakes is how long the agent on a node works until it has failed.
	agentTakes = time.Second
)

// The kinds of requests of the simulated remediators. The first one helps, by starting the kubelet again; the agent never does.
var (
	pill  = schema.GroupVersionKind{Group: "poison-pill.medik8s.io", Version: "v1alpha1", Kind: "PoisonPillRemediation"}
	agent = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}
	host  = mendv1.GroupVersion.WithKind("HostRemediation")
)

// What all specs share.
var (
	control  *rig.Rig
	plane    *rig.ControlPlane
	here     client.WithWatch
	provider *simulator.Infrastructure
	manager  *rig.Kubemend
	account  []byte // the manager's kubeconfig
)

func TestNodes(t *testing.T) {
	suite.Run(t, "Nodes", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)
	plane = suite.Must(control.Management(ctx, rig.ManagementOptions{
		Core: true, Controllers: slices.Concat(rig.NodeControllers(), rig.RoleControllers()), Own: true, Webhooks: true, Audit: true,
	}))
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{plane}, pill.Group, agent.Group) })
	here = suite.Client(plane.Config(), clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme)
	for _, kind := range []schema.GroupVersionKind{pill, agent} {
		Expect(simulator.InstallRemediator(plane.Config(), kind)).To(Succeed())
	}
	account = suite.Must(plane.Install(ctx, "standalone"))
	startCluster()
	startManager(ctx)
	build(ctx)
	create(ctx, "testdata/self-node-remediator.yaml")
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	manager = suite.Must(plane.Kubemend(ctx, "nodes", account, plane.WebhookFlags()...))
}

// startCluster starts the simulators of what this machine cannot have.
func startCluster() {
	GinkgoHelper()
	_, provider = suite.Hardware(plane.Config())
	for _, o := range []simulator.RemediatorOptions{
		{Kind: pill, Takes: time.Second, Remediate: restart}, {Kind: agent, Takes: agentTakes},
	} {
		remediator := suite.Must(simulator.NewRemediator(plane.Config(), o))
		suite.Beside(remediator.Start)
	}
}

func restart(node string) bool {
	kubelet := provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: node})
	if kubelet != nil {
		kubelet.Start()
	}
	return kubelet != nil
}

const (
	namespace = "metal"
	// workerRole is a label that an administrator gives to nodes; no kubelet may give it to itself.
	workerRole = "node-role.kubernetes.io/worker"
)

// metal is the cluster, whose kubeconfig points to the very API server that it is an object of.
var metal = &suite.Site{Namespace: namespace, Name: "itself", ControlPlanes: 1, Workers: 4}

func build(ctx context.Context) {
	GinkgoHelper()
	metal.Plane = plane
	metal.Build(ctx, here, provider)
	allHealthy(ctx)
	for _, name := range metal.WorkerNames(ctx) {
		label := fmt.Sprintf(`{"metadata":{"labels":{%q:""}}}`, workerRole)
		Expect(here.Patch(ctx, metal.Node(ctx, name), client.RawPatch("application/merge-patch+json", []byte(label)))).To(Succeed())
	}
}

// allHealthy waits until every machine runs and every node is ready, and says which machine it is on.
func allHealthy(ctx context.Context) {
	GinkgoHelper()
	metal.AllWell(ctx)
	Eventually(func(g Gomega) {
		for _, name := range slices.Concat(metal.ControlPlaneNames(ctx), metal.WorkerNames(ctx)) {
			g.Expect(metal.Node(ctx, name).Annotations).To(HaveKeyWithValue(clusterv1.MachineAnnotation, name))
		}
	}).Should(Succeed())
}

// leaveAsFound reverts what a spec did, and checks that it orphaned nothing.
func leaveAsFound(ctx context.Context) {
	GinkgoHelper()
	for _, name := range metal.WorkerNames(ctx) {
		restart(name)
	}
	allHealthy(ctx)
	Eventually(func(g Gomega) { // while a node is being remediated a check cannot be deleted
		for _, kind := range []schema.GroupVersionKind{pill, agent, host} {
			g.Expect(requests(ctx, kind)).To(BeEmpty())
		}
		g.Expect(here.DeleteAllOf(ctx, &nhcv1.NodeHealthCheck{})).To(Succeed())
	}).Should(Succeed())
	nothingIsLeft(ctx)
}

// nothingIsLeft checks that nothing of a remediation is on nodes and hosts, and that no lease has a holder.
func nothingIsLeft(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		leases, nodes, hosts := &coordinationv1.LeaseList{}, &corev1.NodeList{}, &bmov1alpha1.BareMetalHostList{}
		g.Expect(here.List(ctx, leases, client.InNamespace(nhcv1.DefaultLeaseNamespace))).To(Succeed())
		g.Expect(leases.Items).To(BeEmpty())
		g.Expect(here.List(ctx, nodes)).To(Succeed())
		for i := range nodes.Items {
			n := &nodes.Items[i]
			g.Expect(n.Annotations).NotTo(HaveKey(fence.FencedByAnnotation), n.Name)
			g.Expect(n.Spec.Taints).NotTo(ContainElement(HaveField("Key", infrav1.OutOfServiceTaintKey)), n.Name)
		}
		g.Expect(here.List(ctx, hosts, client.InNamespace(namespace))).To(Succeed())
		for i := range hosts.Items {
			for key := range hosts.Items[i].Annotations {
				g.Expect(key).NotTo(Or(HavePrefix(infrav1.RebootAnnotation), HavePrefix("kubemend.io/"), HaveSuffix("/unhealthy")))
			}
		}
	}).Should(Succeed())
}

func silence(names ...string) {
	GinkgoHelper()
	for _, name := range names {
		kubelet := provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: name})
		Expect(kubelet).NotTo(BeNil(), name)
		kubelet.Stop()
	}
}

// longSilent hangs the kubelet of a node, until kube-controller-manager has found that out. Checks of the documentation wait for five
// minutes then, which no stamp shortens of a node that the manager has seen Ready: here the check waits for a second.
func longSilent(ctx context.Context, name, of string) {
	GinkgoHelper()
	c := check(ctx, of)
	before := c.DeepCopy()
	for i := range c.Spec.UnhealthyConditions {
		c.Spec.UnhealthyConditions[i].Duration.Duration = time.Second
	}
	Expect(here.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
	silence(name)
	Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionUnknown))
}

func check(ctx context.Context, name string) *nhcv1.NodeHealthCheck {
	GinkgoHelper()
	c := &nhcv1.NodeHealthCheck{}
	Expect(here.Get(ctx, client.ObjectKey{Name: name}, c)).To(Succeed())
	return c
}

// counts are a check's numbers, healthy of observed, as "4 of 4".
func counts(ctx context.Context, name string) func() string {
	return func() string {
		status := check(ctx, name).Status
		return fmt.Sprintf("%d of %d", ptr.Deref(status.HealthyNodes, -1), ptr.Deref(status.ObservedNodes, -1))
	}
}

// said is what a condition of a check says, as "Status/Reason".
func said(ctx context.Context, name, condition string) func() string {
	return func() string {
		c := meta.FindStatusCondition(check(ctx, name).Status.Conditions, condition)
		if c == nil {
			return "-"
		}
		return fmt.Sprintf("%s/%s", c.Status, c.Reason)
	}
}

func requests(ctx context.Context, kind schema.GroupVersionKind) []unstructured.Unstructured {
	GinkgoHelper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	Expect(here.List(ctx, list)).To(Succeed())
	return list.Items
}

func requested(ctx context.Context, kind schema.GroupVersionKind, where, name string) *unstructured.Unstructured {
	GinkgoHelper()
	request := &unstructured.Unstructured{}
	request.SetGroupVersionKind(kind)
	Eventually(func() error { return here.Get(ctx, client.ObjectKey{Namespace: where, Name: name}, request) }).Should(Succeed())
	return request
}

// none is empty when there is no request of these kinds.
func none(ctx context.Context, kinds ...schema.GroupVersionKind) func() []string {
	return func() (found []string) {
		for _, kind := range kinds {
			for _, r := range requests(ctx, kind) {
				found = append(found, kind.Kind+" "+r.GetName())
			}
		}
		return found
	}
}

// made are the requests that kubemend has made since a moment, in order, also those that are gone.
func made(since time.Time) (requests []string) {
	GinkgoHelper()
	for _, write := range suite.Writes(plane, since, "selfnoderemediations", "hostremediations") {
		if write.Verb == "create" && write.ResponseStatus.Code == http.StatusCreated {
			requests = append(requests, write.ObjectRef.Resource+" "+write.ObjectRef.Name)
		}
	}
	return requests
}

// told reports whether there is an event of a reason about a check.
func told(ctx context.Context, name, reason string) func() bool {
	return func() bool {
		list := &eventsv1.EventList{}
		Expect(here.List(ctx, list)).To(Succeed())
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Kind == "NodeHealthCheck" && e.Regarding.UID == check(ctx, name).UID && e.Reason == reason
		})
	}
}

// create creates the objects of a manifest as they are, until the spec or the suite that asks for it ends. Checks are deleted when all is
// healthy again.
func create(ctx context.Context, file string) {
	GinkgoHelper()
	createObjects(ctx, suite.Manifest(file))
}

func createObjects(ctx context.Context, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(here.Create(ctx, object, client.FieldValidation("Strict"))).To(Succeed(), object.GetName())
		switch object.GetKind() {
		case "NodeHealthCheck", "Namespace":
		default:
			DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, object)).To(Succeed()) })
		}
	}
}
