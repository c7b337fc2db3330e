// Package baremetal tests the remediation of hosts against a real API server, for both kinds of remediations: what has to be as with
// CAPM3 (C1 to C12), what has to be stricter (N1 to N15). Of the faults there are samples here: every write that fails, every kill and every
// order of events is tried in memory, in test/faults/hosts.
//
// The controllers run in this process, so that a test can give them a clock and kill them between two writes. Hosts and kubelets are
// simulated. One API server plays the management cluster and all workload clusters: its resource versions then put what happens in
// both into one order. No other controller runs: the tests do to nodes and pods what kube-controller-manager would do.
//
// Not here, because it is shown elsewhere: C9 and C10, conversion and admission, are in the suite above this folder, where their webhooks
// run. That Cluster API's own MachineSet replaces the machine after an owner remediation request (the second half of N1), and that no machine gets the bad host,
// is in test/e2e/baremetal, where these controllers run. N14 has the calls of one remediation here; a thousand hosts are a matter of
// test/e2e and test/bench.
package baremetal

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

// What all specs share.
var (
	scheme  = runtime.NewScheme()
	plane   *rig.ControlPlane
	here    client.Client     // goes to the API server itself
	way     *faultproxy.Proxy // which the controllers go through
	mapper  meta.RESTMapper
	hosts   *simulator.Hosts
	history *chronicle
)

func TestBareMetalConformance(t *testing.T) {
	suite.Run(t, "Bare-metal conformance", suite.Patience{Eventually: suite.Wait, Consistently: 700 * time.Millisecond, Polling: 50 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	plane, err = suite.Rig(ctx).Management(ctx, rig.ManagementOptions{Own: true})
	Expect(err).NotTo(HaveOccurred())

	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, clusterv1.AddToScheme, bmov1alpha1.AddToScheme, infrav1.AddToScheme, mendv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	config := suite.Unhurried(plane.Config())
	here, mapper = suite.Mapped(config, scheme)
	way, err = faultproxy.New(config, counts)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(way.Close)
	way.Expect("", 0, "").Refuse(misdirected) // for objects of no namespace

	history = newChronicle(config)
	hosts, err = simulator.NewHosts(suite.Unhurried(plane.Config()), simulator.HostsOptions{})
	Expect(err).NotTo(HaveOccurred())
	suite.Beside(hosts.Start)
}, NodeTimeout(suite.SpecPatience))

// counts reports whether c is a write that changes the state of a cluster. Events do not.
func counts(c faultproxy.Call) bool {
	switch c.Resource {
	case "metal3remediations", "hostremediations", "baremetalhosts", "machines", "nodes":
		return true
	}
	return false
}

// misdirected refuses what is asked of the wrong cluster, which would be answered all the same, since there is but one. (CAPM3 looked
// for the volume attachments of nodes in the management cluster.)
func misdirected(c faultproxy.Call) int {
	ofWorkload := c.Resource == "nodes" || c.Resource == "pods" || c.Resource == "volumeattachments" || c.Resource == "leases"
	if c.Resource != "" && ofWorkload != c.Workload {
		return 421 // Misdirected Request
	}
	return 0
}
