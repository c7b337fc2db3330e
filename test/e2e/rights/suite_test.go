// Package rights tests that kubemend needs every right that it ships with, and no other.
//
// The manager runs as it is installed: as its ServiceAccount, with a kubeconfig of its own for the workload cluster. The specs run, in
// order and as briefly as possible, the cases that together need every right: the other suites show whether each of them ends as it should.
// The last one compares what was granted with what the API server has noted. One control plane is management and workload cluster at the
// same time; the user of a request says which one is meant.
package rights

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

const specPatience = suite.SpecPatience

// ownKinds is the folder of the CRDs that ship; others are those of OpenShift.
var (
	ownKinds = filepath.Join("..", "..", "..", "config", "crd", "bases")
	others   = filepath.Join("testdata", "openshift.yaml")
)

// agent is the kind of requests of a remediator that brings its rights along, with the label for aggregation. No controller serves it: nodes
// recover by themselves.
var agent = schema.GroupVersionKind{Group: "self-node-remediation.medik8s.io", Version: "v1alpha1", Kind: "SelfNodeRemediation"}

// What all specs share.
var (
	control  *rig.Rig
	plane    *rig.ControlPlane
	here     client.Client
	provider *simulator.Infrastructure
	manager  *rig.Kubemend
	account  []byte // the manager's kubeconfig
)

func TestRights(t *testing.T) {
	suite.Run(t, "Rights", suite.Patience{Eventually: suite.Wait, Polling: 100 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	Expect(filepath.Join("..", "..", "..", "bin", "manager")).To(BeAnExistingFile(), "run make build")
	control = suite.Rig(ctx)
	var err error
	plane, err = control.Management(ctx, rig.ManagementOptions{
		Core: true, Controllers: slices.Concat(rig.NodeControllers(), rig.RoleControllers()), Own: true, CRDs: []string{others}, Webhooks: true, Audit: true,
	})
	Expect(err).NotTo(HaveOccurred())
	here = suite.Client(plane.Config(), apiextensionsv1.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme, nhcv1.AddToScheme)
	Expect(simulator.InstallRemediator(plane.Config(), agent)).To(Succeed())
	account, err = plane.Install(ctx, "standalone")
	Expect(err).NotTo(HaveOccurred())
	create(ctx, filepath.Join("..", "nodes", "testdata", "self-node-remediator.yaml"))
	Eventually(func() ([]rbacv1.PolicyRule, error) {
		collected := &rbacv1.ClusterRole{}
		err := here.Get(ctx, client.ObjectKey{Name: "kubemend-ext-remediation"}, collected)
		return collected.Rules, err
	}).ShouldNot(BeEmpty())
	_, provider = suite.Hardware(plane.Config())
	metal.Plane = plane
	metal.Build(ctx, here, provider)
	metal.AllWell(ctx)
}, NodeTimeout(specPatience))

var _ = ReportAfterEach(func(report SpecReport) { suite.LogOf("the manager", manager, report) })

// startManager starts the manager as it is installed, or starts it again after it was killed. It waits for the lease of who was killed. The leader may
// be late by nearly all of that time: on a busy machine one that has less ends.
func startManager(ctx context.Context, more ...string) {
	GinkgoHelper()
	var err error
	manager, err = plane.Kubemend(ctx, "rights", account, append(append(plane.WebhookFlags(),
		"--leader-elect", "--leader-elect-namespace="+rig.Namespace, "--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=14s",
		"--leader-elect-retry-period=1s", "--insecure-diagnostics=false"), more...)...)
	Expect(err).NotTo(HaveOccurred())
}
