// Package conformance tests the built manager against a real API server: every rule of the wire, and every weakness of
// Cluster API's own controller that this one does not share. Nothing here is simulated but machines and nodes, whose
// status the tests write themselves.
package conformance

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// What all specs share: one management cluster without Cluster API's controllers, one workload cluster without controllers for its nodes, and
// one manager that acts on every check of a Cluster that is labelled for it, which an environment's is unless the spec brings a manager of its own.
var (
	control    *rig.Rig
	management *rig.ControlPlane
	workload   *rig.ControlPlane
	manager    *rig.Kubemend
	here       client.Client // the management cluster
	there      client.Client // the workload cluster
)

// acting is the label cluster.x-k8s.io/watch-filter of what the shared manager acts on.
const acting = "act"

func TestConformance(t *testing.T) {
	// A connection, or the lookup of a kind, that fails is retried after 30 s.
	suite.Run(t, "Conformance", suite.Patience{Eventually: suite.Wait, Consistently: time.Second, Polling: 50 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	control = suite.Rig(ctx)
	var err error
	management, err = control.Management(ctx, rig.ManagementOptions{CRDs: []string{recordManifest}})
	Expect(err).NotTo(HaveOccurred())
	workload, err = control.Workload(ctx, "workload", rig.WorkloadOptions{Bare: true})
	Expect(err).NotTo(HaveOccurred())

	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(clusterv1.AddToScheme(scheme)).To(Succeed())
	Expect(mendv1.AddToScheme(scheme)).To(Succeed())
	here, err = client.New(management.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	there, err = client.New(workload.Config(), client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())

	prepareNamespaces(ctx, 100)

	manager, err = management.Kubemend(ctx, acting, nil, "--watch-filter="+acting, "--unclaimed-machine-health-checks=act", "-v=2")
	Expect(err).NotTo(HaveOccurred())
})
