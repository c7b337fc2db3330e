package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/faultproxy"
	"github.com/kubemend/kubemend/test/rig"
)

// passage is a proxy that a spec closes at its end.
type passage struct{ *faultproxy.Proxy }

func newPassage(to *rig.ControlPlane) passage {
	GinkgoHelper()
	g, err := faultproxy.New(to.Config(), counts)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(g.Close)
	return passage{g}
}

// counts reports whether c is a write that changes the state of a cluster. Events and leases do not.
func counts(c faultproxy.Call) bool {
	return c.Resource == "machines" || c.Resource == "machinehealthchecks" || c.Resource == "metal3remediations"
}

func (p passage) kubeconfig() []byte {
	GinkgoHelper()
	content, err := p.Kubeconfig()
	Expect(err).NotTo(HaveOccurred())
	return content
}

// stall delays the events of watches of a resource, until the returned function is called or the spec has ended.
func (p passage) stall(resource string) (goOn func()) {
	GinkgoHelper()
	goOn = p.Stall(resource)
	DeferCleanup(goOn)
	return goOn
}
