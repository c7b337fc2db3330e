package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/gateway"
	"github.com/kubemend/kubemend/test/rig"
)

// passage is a gateway for the length of a spec.
type passage struct{ *gateway.Gateway }

func newGateway(to *rig.ControlPlane) passage {
	GinkgoHelper()
	g, err := gateway.New(to.Config(), counts)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(g.Close)
	return passage{g}
}

// counts reports whether c is a write that has an effect on the world. Events and leases have none.
func counts(c gateway.Call) bool {
	return c.Resource == "machines" || c.Resource == "machinehealthchecks" || c.Resource == "metal3remediations"
}

func (p passage) kubeconfig() []byte {
	GinkgoHelper()
	content, err := p.Kubeconfig()
	Expect(err).NotTo(HaveOccurred())
	return content
}

// stall keeps back what watches of a resource would tell, until the returned function is called or the spec has ended.
func (p passage) stall(resource string) (goOn func()) {
	GinkgoHelper()
	goOn = p.Stall(resource)
	DeferCleanup(goOn)
	return goOn
}
