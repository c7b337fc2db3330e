package baremetal

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
	"github.com/kubemend/kubemend/test/simulator"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A worker whose kubelet hangs", func() {
	// A Metal3Remediation does the same: see the manifests of the documentation.
	It("is power-cycled by a HostRemediation, and its workload runs elsewhere meanwhile", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		app := strings.ToLower(ours.name)
		Expect(builders.Apply(ctx, fixture.There, append(builders.Volume("default", app), builders.Deployment("default", app, 1, builders.WithVolume(app)))...)).To(Succeed())
		name := fixture.nodeOf(ctx, app)
		identity := fixture.Machine(ctx, name).UID
		fixture.watched(ctx, ours)
		host := fixture.Host(name)
		// If the node were back before its host is reported on, its request would be deleted before that event.
		host.Take(simulator.Times{Boot: 5 * time.Second})
		DeferCleanup(func() { host.Take(simulator.Times{}) })
		began := time.Now()

		host.Kubelet().Stop()

		Eventually(func() string { return fixture.nodeOf(ctx, app) }).ShouldNot(Equal(name))
		Eventually(func() simulator.History { return host.History().Since(began) }).Should(HaveLen(2), "off and on")
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, name) }).Should(Equal(corev1.ConditionTrue))
		Eventually(func() bool { return fixture.gone(ctx, ours, name) }).Should(BeTrue())
		fixture.nothingIsLeft(ctx, host, name)
		Expect(fixture.Machine(ctx, name).UID).To(Equal(identity), "the machine was not replaced")
		Eventually(fixture.recordedEvents(ctx, ours.name, name, began)).Should(And(
			HaveKey("PowerOffRequested"), HaveKey("Fenced"), HaveKey("PowerOnRequested"), HaveKey("PoweredOn")))
		Eventually(fixture.recordedEvents(ctx, "BareMetalHost", host.Key().Name, began)).Should(HaveKey("PowerOffRequested"))
	}, SpecTimeout(specPatience))
})

var _ = Describe("A power cycle", func() {
	It("continues under the other replica when the one that acts is killed", func(ctx SpecContext) {
		fixture.AllWell(ctx)
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
		name, host := fixture.aWorker(ctx)
		began := time.Now()
		attacher.Stick(true) // a workload that does not move keeps the host off until the other one leads
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
		Expect(changes(host.History().Since(began))).To(Equal([]simulator.Power{simulator.Off, simulator.On}))
		fixture.nothingIsLeft(ctx, host, name)
	}, SpecTimeout(specPatience))
})
