package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	"github.com/kubemend/kubemend/test/builders"
)

var _ = Describe("Stale caches", func() {
	It("W8: a request that cannot be read does not count as absent", func(ctx SpecContext) {
		g := newPassage(management)
		startManager(ctx, "w8", g.kubeconfig(), "--watch-filter=w8", "--unclaimed-machine-health-checks=act")
		s := newEnvironment(ctx, seenBy("w8"))
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("reboot"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		p := g.Expect(s.cluster.Namespace, 0, "")
		p.RefuseReads("metal3remediations")

		s.fallsSilent(ctx, "a")
		Eventually(s.external(ctx, "a")).Should(Equal("False/RemediationRequestCreationFailed"))
		Expect(conditions.GetMessage(s.get(ctx, "a"), "ExternallyRemediated")).To(ContainSubstring("look for Metal3Remediation"))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 1}), "the reconcile continues without it")
		done, _ := p.Written()
		Expect(done).NotTo(ContainElement(HavePrefix("POST")))

		p.Refuse(nil)
		Eventually(s.requested(ctx)).Should(ConsistOf("a"))
		s.isRequested(ctx, "a")
	})

	It("W8: a request that the cache lacks is found before a second one is made", func(ctx SpecContext) {
		g := newPassage(management)
		startManager(ctx, "w8-stale", g.kubeconfig(), "--watch-filter=w8-stale", "--unclaimed-machine-health-checks=act")
		s := newEnvironment(ctx, seenBy("w8-stale"))
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("reboot"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Eventually(s.of(ctx, "check", "RemediationTemplateAvailable")).Should(Equal("True/TemplateFound"))
		goOn := g.stall("metal3remediations")
		p := g.Expect(s.cluster.Namespace, 0, "")
		uid := s.byHand(ctx, "a", clonedFrom("reboot")).GetUID()

		s.fallsSilent(ctx, "a")
		Eventually(s.health(ctx, "a")).Should(Equal(silent))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 1}))
		Expect(s.external(ctx, "a")()).To(Equal(asked), "the request is there, and could be ours")
		goOn()

		Eventually(func() map[string]string { return s.request(ctx, "a").GetAnnotations() }).Should(HaveKeyWithValue("kubemend.io/made-by", "check"))
		Expect(s.uid(ctx, "a")()).To(BeEquivalentTo(uid))
		done, _ := p.Written()
		Expect(done).NotTo(ContainElement(HavePrefix("POST")))
		Expect(done).To(ContainElement("PATCH metal3remediations/a"))
	})

	It("W8: a node that the cache lacks does not count as deleted", func(ctx SpecContext) {
		g := newPassage(workload)
		s := &environment{cluster: builders.Cluster(newNamespace(ctx), "stale")}
		s.kubeconfig(ctx, g.kubeconfig())
		s.worker(ctx, "a")
		s.begin(ctx)
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		goOn := g.stall("nodes")

		s.worker(ctx, "b")
		Eventually(number(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check", `state="unknown"`)...)).Should(BeEquivalentTo(1))
		Consistently(s.health(ctx, "b")).Should(Equal(nothing))
		Expect(there.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node("a")}})).To(Succeed())
		s.machine(ctx, "c", s.hasNode("c"))
		Eventually(s.health(ctx, "c")).Should(Equal("False/NodeDeleted False/NodeNotFound"), "there never was such a node, says the cluster itself")
		Expect(s.health(ctx, "a")()).To(Equal(well), "that this one is gone is not known yet")

		goOn()
		Eventually(s.health(ctx, "b")).Should(Equal(well))
		Eventually(s.health(ctx, "a")).Should(Equal("False/NodeDeleted False/NodeNotFound"))
		Expect(s.events(ctx, "b", "MachineMarkedUnhealthy")()).To(BeZero())
	})
})
