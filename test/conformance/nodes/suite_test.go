// Package nodes tests the NodeHealthCheck controller: the cases of medik8s' own tests (C30 to C71), the rows of the three seeds, and the weaknesses
// of medik8s that it does not share (W1 to W32). A spec is named after the case that it shows.
//
// Most specs run in memory (package inmemory), and need no control plane: go test -short runs these alone. A sample of each area runs at a
// real API server too, and what only that knows runs there alone. Package test/faults/nodes tries every write of every ladder.
//
// The controller runs in this process, so that a test can give it a clock and kill it between two writes. Nodes are objects whose status
// the tests write, the tests play the remediators, and no other controller runs: nothing is garbage-collected here.
//
// Not here, because it is shown elsewhere: C01 to C21 and what else is refused when it is written (admission and the CRD's own rules);
// C80 to C84 (tables of packages nodehealthcheck and budget), and seed 0.11 to 0.13, 1.10 in numbers; what cannot be stored (both thresholds,
// no template, a kind that is none of templates, W21, two steps of one order); seed 1.1, the default check (its flag); seed 1.12, which is a
// slip; seed 2.1, starting. C85 is about MachineHealthChecks of OpenShift, which no controller reconciles here.
package nodes

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

// What all specs share.
var (
	scheme = runtime.NewScheme()
	plane  *rig.ControlPlane
	here   client.Client     // goes to the API server itself
	way    *faultproxy.Proxy // which the controllers go through
	mapper meta.RESTMapper
)

func TestNodeConformance(t *testing.T) {
	// Less than the minute after which much is reconciled again anyway.
	config, reporter := GinkgoConfiguration()
	if testing.Short() {
		config.LabelFilter = "!" + needsServer[0]
	}
	suite.Run(t, "Node conformance", suite.Patience{Eventually: suite.Wait, Consistently: 700 * time.Millisecond, Polling: 50 * time.Millisecond}, config, reporter)
}

var _ = BeforeSuite(func(ctx SpecContext) {
	if testing.Short() {
		return
	}
	var err error
	plane, err = suite.Rig(ctx).Management(ctx, rig.ManagementOptions{Own: true})
	Expect(err).NotTo(HaveOccurred())

	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, nhcv1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	config := suite.Unhurried(plane.Config())
	here, mapper = suite.Mapped(config, scheme)
	way, err = faultproxy.New(config, counts)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(way.Close)

	var all []*apiextensionsv1.CustomResourceDefinition
	for _, r := range remediators {
		all = append(all, r.crds()...)
	}
	install(ctx, here, all...)
}, NodeTimeout(suite.SpecPatience))

// counts reports whether c is a write that has an effect on the versions. Events have none.
func counts(c faultproxy.Call) bool { return c.Resource != "events" && c.Resource != "" }
