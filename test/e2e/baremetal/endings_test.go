package baremetal

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
)

var _ = Describe("A power cycle", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("that is cancelled releases host and node", func(ctx SpecContext) {
		name, host := fixture.aWorker(ctx)
		attacher.Stick(true) // so that the workload does not move meanwhile
		DeferCleanup(func() { attacher.Stick(false) })
		host.Take(simulator.Times{PowerOn: 300 * time.Millisecond})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		rem := fixture.byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())

		Expect(here.Delete(ctx, rem)).To(Succeed())

		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).Should(BeTrue())
		Eventually(powered(host)).Should(BeTrue())
		fixture.nothingIsLeft(ctx, host, name)
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
	}, SpecTimeout(specPatience))

	It("goes on where it was when the manager is killed at any time", func(ctx SpecContext) {
		name, host := fixture.aWorker(ctx)
		host.Take(simulator.Times{PowerOff: time.Second, PowerOn: time.Second, Boot: time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		began := time.Now()
		rem := fixture.byHand(ctx, name)
		for _, at := range []string{"PoweringOff", "MovingWorkload", "PoweringOn", "Booting"} {
			Eventually(step(ctx, rem)).Should(Or(Equal(at), Equal("Succeeded")))
			manager.Kill()
			startManager(ctx)
		}

		ends(ctx, rem, "Succeeded")
		Expect(host.History().Since(began)).To(HaveLen(2), "off and on, once")
		Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
		Expect(rem.Status.Attempt).To(BeEquivalentTo(1))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))

	// docs/high-availability.md says how long that takes: the lease, and the periods in which it is renewed and tried for.
	It("goes on under the other replica when the one that acts loses its power", func(ctx SpecContext) {
		manager.Kill()
		DeferCleanup(func(ctx SpecContext) { startManager(ctx) })
		replica := func(name string) *rig.Kubemend {
			r, err := management.Kubemend(ctx, name, account, "--leader-elect", "--leader-elect-namespace="+rig.Namespace)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(r.Kill)
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
		name, host := fixture.aWorker(ctx)
		host.Take(simulator.Times{PowerOff: time.Second, PowerOn: time.Second, Boot: time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		began := time.Now()
		rem := fixture.byHand(ctx, name)
		Eventually(powered(host)).Should(BeFalse())
		Expect(leads(other)()).To(BeFalse())

		first.Kill()

		lost := time.Now()
		Eventually(leads(other)).Should(BeTrue())
		taken := time.Since(lost)
		AddReportEntry("taken over after", taken.String())
		Expect(taken).To(BeNumerically(">", 10*time.Second), "a lease that runs out is waited for")
		ends(ctx, rem, "Succeeded")
		Expect(host.History().Since(began)).To(HaveLen(2), "off and on, once")
		Expect(here.Get(ctx, client.ObjectKeyFromObject(rem), rem)).To(Succeed())
		Expect(rem.Status.Attempt).To(BeEquivalentTo(1))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})
