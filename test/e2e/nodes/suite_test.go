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
	"path/filepath"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
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
	var err error
	plane, err = control.Management(ctx, rig.ManagementOptions{
		Core: true, Controllers: slices.Concat(rig.NodeControllers(), rig.RoleControllers()), Own: true, Webhooks: true, Audit: true,
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { suite.NothingForbidden([]*rig.ControlPlane{plane}, pill.Group, agent.Group) })
	here = suite.Client(plane.Config(), clusterv1.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme)
	for _, kind := range []schema.GroupVersionKind{pill, agent} {
		Expect(simulator.InstallRemediator(plane.Config(), kind)).To(Succeed())
	}
	account, err = plane.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	startCluster()
	startManager(ctx)
	build(ctx)
	create(ctx, "testdata/self-node-remediator.yaml")
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed.
func startManager(ctx context.Context) {
	GinkgoHelper()
	var err error
	manager, err = plane.Kubemend(ctx, "nodes", account, plane.WebhookFlags()...)
	Expect(err).NotTo(HaveOccurred())
}

// startCluster starts the simulators of what this machine cannot have.
func startCluster() {
	GinkgoHelper()
	_, provider = suite.Hardware(plane.Config())
	for _, o := range []simulator.RemediatorOptions{
		{Kind: pill, Takes: time.Second, Remediate: restart}, {Kind: agent, Takes: agentTakes},
	} {
		remediator, err := simulator.NewRemediator(plane.Config(), o)
		Expect(err).NotTo(HaveOccurred())
		suite.Beside(remediator.Start)
	}
}

// restart starts the kubelet of a node again.
func restart(node string) bool {
	kubelet := provider.Kubelet(client.ObjectKey{Namespace: namespace, Name: node})
	if kubelet != nil {
		kubelet.Start()
	}
	return kubelet != nil
}
