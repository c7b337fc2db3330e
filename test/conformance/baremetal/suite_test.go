// Package baremetal tests what of the remediation of hosts only an API server knows: the policy that protects what kubemend remembers.
// What is about order, time, faults and restarts is in test/faults/hosts, in memory; conversion and admission are in the suite above this
// folder; the manager beside real controllers is in test/e2e/baremetal.
package baremetal

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/suite"
)

var (
	scheme = runtime.NewScheme()
	plane  *rig.ControlPlane
	here   client.Client
)

func TestBareMetalConformance(t *testing.T) {
	suite.Run(t, "Bare-metal conformance", suite.Patience{Eventually: suite.Wait, Consistently: time.Second, Polling: 50 * time.Millisecond})
}

var _ = BeforeSuite(func(ctx SpecContext) {
	var err error
	plane, err = suite.Rig(ctx).Management(ctx, rig.ManagementOptions{Own: true})
	Expect(err).NotTo(HaveOccurred())
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, bmov1alpha1.AddToScheme, mendv1.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	here, _ = suite.Mapped(suite.Unhurried(plane.Config()), scheme)
}, NodeTimeout(suite.SpecPatience))
