package baremetal

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A power cycle", func() {
	It("moves the workload, and continues under the other replica when the one that acts is killed", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		const app = "stateful"
		workload := append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))
		Expect(builders.Apply(ctx, fixture.There, workload...)).To(Succeed())
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) })
		replica := func(name string) *rig.Kubemend {
			r, err := management.Kubemend(ctx, name, account, "--leader-elect", "--leader-elect-namespace="+rig.Namespace)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(func() {
				r.Kill()
				suite.LogOf("the "+name+" replica", r, CurrentSpecReport())
			})
			return r
		}
		leads := func(r *rig.Kubemend) func() (bool, error) {
			return func() (bool, error) {
				page, err := r.Scrape(ctx)
				return strings.Contains(page, `leader_election_master_status{name="leader.kubemend.io"} 1`), err
			}
		}
		first := replica("first")
		Eventually(leads(first)).Should(BeTrue())
		other := replica("other")
		name := fixture.nodeOf(ctx, app)
		host, began := fixture.Host(name), time.Now()
		attacher.Stick(true) // a volume that is not detached keeps the host off until the other replica leads
		DeferCleanup(func() { attacher.Stick(false) })
		rem := fixture.byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())
		Expect(leads(other)()).To(BeFalse())

		first.Kill()
		Eventually(leads(other)).Should(BeTrue())
		attacher.Stick(false)

		Eventually(func(g Gomega) {
			g.Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
			g.Expect(rem.Status.Step).To(Equal("Succeeded"))
		}).Should(Succeed())
		Expect(rem.Status.Attempt).To(BeEquivalentTo(1))
		Expect(fixture.nodeOf(ctx, app)).NotTo(Equal(name))
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})
