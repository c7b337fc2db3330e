package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/rig"
)

// pausedAs gives a check the annotation cluster.x-k8s.io/paused with a value.
func pausedAs(value string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	}
}

var _ = Describe("Paused", func() {
	It("is False while kubemend acts on an unclaimed check, and has a reason when it is True", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("False/NotPaused"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))

		s.changeCheck(ctx, "check", pausedAs("true"))
		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("True/Paused"))
		Expect(s.message(ctx, "check", "Paused")()).To(Equal("MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))
		s.pause(ctx, true)
		Eventually(s.message(ctx, "check", "Paused")).Should(Equal(
			"Cluster spec.paused is set to true, MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))

		s.fallsSilent(ctx, "a")
		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		Eventually(s.message(ctx, "check", "Paused")).Should(Equal("Cluster spec.paused is set to true"))
		Expect(s.health(ctx, "a")()).To(Equal(well))
		Expect(exported(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())

		s.pause(ctx, false)
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("False/NotPaused"))
	})

	It("is the only condition of a check that is paused from the start", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.fallsSilent(ctx, "a")
		s.check(ctx, "check", pausedAs("true"))

		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("True/Paused"))
		c := s.getCheck(ctx, "check")
		Expect(c.Labels).NotTo(HaveKey(clusterv1.ClusterNameLabel))
		Expect(c.OwnerReferences).To(BeEmpty())
		Expect(c.Status.Conditions).To(HaveLen(1))
		Consistently(s.health(ctx, "a")).Should(Equal(nothing))
	})

	It("keeps requests and conditions", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.worker(ctx, "a")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a")
		s.isRequested(ctx, "a")

		s.changeCheck(ctx, "check", pausedAs("true"))
		Eventually(s.of(ctx, "check", "Paused")).Should(Equal("True/Paused"))
		s.comesBack(ctx, "a")
		Consistently(s.requested(ctx)).Should(ConsistOf("a"))

		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		Eventually(s.requested(ctx)).Should(BeEmpty())
		Eventually(s.health(ctx, "a")).Should(Equal(well))
	})

	It("is written by Cluster API on a claimed check", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check", builders.Claimed)
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Eventually(func() error { // the condition of Cluster API core, which its reason identifies
			c := s.getCheck(ctx, "check")
			c.Status.Conditions = append(c.Status.Conditions, condition(clusterv1.PausedCondition, metav1.ConditionTrue, long))
			return here.Status().Update(ctx, c)
		}).Should(Succeed())

		s.fallsSilent(ctx, "a")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 0, 0}))
		Expect(s.of(ctx, "check", "Paused")()).To(Equal("True/Test"))
		s.pause(ctx, true)
		Eventually(exported(ctx, manager, "kubemend_machinehealthcheck_targets", s.labels("check")...)).Should(BeZero())
		s.comesBack(ctx, "a")
		Consistently(s.health(ctx, "a")).Should(Equal(silent), "a paused Cluster stops us too")
		Expect(s.of(ctx, "check", "Paused")()).To(Equal("True/Test"))
	})
})

var _ = Describe("Unclaimed checks", func() {
	It("are judged and counted in mode observe, without a write but of records", func(ctx SpecContext) {
		const asked = 3
		m := ownManager(ctx, "observe", "--unclaimed-machine-health-checks=observe")
		Eventually(writes(ctx, m)).Should(BeEquivalentTo(asked), "it asks whether it may power-cycle hosts, and list and watch Namespaces, each of which is a POST")
		s := newEnvironment(ctx, seenBy("observe"))
		s.template(ctx, "reboot")
		s.workers(ctx, "good", "bad")
		s.worker(ctx, "once-failed", everFailed)
		s.byHand(ctx, "once-failed", clonedFrom("reboot"))
		s.fallsSilent(ctx, "bad")
		s.check(ctx, "check", by("reboot"))
		versions := s.versions(ctx)()
		Eventually(s.records(ctx)).Should(ConsistOf("bad Observed Request, blocked by \"\"", "once-failed Observed Request, blocked by \"Healthy\""))
		state := func(name string) func() float64 {
			return number(ctx, m, "kubemend_machinehealthcheck_targets", s.labels("check", `state="`+name+`"`)...)
		}

		Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		Eventually(state("healthy")).Should(BeEquivalentTo(2))
		isSaid := func(mode string) {
			GinkgoHelper()
			Eventually(number(ctx, m, "kubemend_machinehealthcheck_mode", s.labels("check", `mode="`+mode+`"`)...)).Should(BeEquivalentTo(1))
			Expect(exported(ctx, m, "kubemend_machinehealthcheck_mode", s.labels("check")...)()).To(Equal(1))
		}
		isSaid("observing")
		s.comesBack(ctx, "bad")
		s.fallsSilent(ctx, "good")
		s.losesNode(ctx, "once-failed")
		Eventually(state("unhealthy")).Should(BeEquivalentTo(2))
		Eventually(s.records(ctx)).Should(ContainElement("good Observed Request, blocked by \"\""))
		Expect(s.versions(ctx)()).To(Equal(versions))
		Expect(number(ctx, m, "kubemend_remediations_started_total")()).To(BeZero())

		By("claiming the check")
		s.changeCheck(ctx, "check", builders.Claimed)
		Eventually(s.requested(ctx)).Should(ConsistOf("good", "once-failed"))
		Eventually(s.health(ctx, "bad")).Should(Equal(well))
		s.isRequested(ctx, "good")
		Expect(s.of(ctx, "check", "Paused")()).To(Equal("-"))
		isSaid("acting")

		By("releasing the check")
		before := s.settles(ctx, m)
		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) })
		Eventually(reconciles(ctx, m)).Should(BeNumerically(">", before))
		s.comesBack(ctx, "good")
		Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		Consistently(s.requested(ctx)).Should(ConsistOf("good", "once-failed"), "Cluster API acts on it now")
	})

	It("are not read in mode ignore, unlike claimed ones", func(ctx SpecContext) {
		m := ownManager(ctx, "ignore", "--unclaimed-machine-health-checks=ignore")
		s := newEnvironment(ctx, seenBy("ignore"))
		s.workers(ctx, "a")
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.fallsSilent(ctx, "a", "b")
		s.check(ctx, "check")
		s.check(ctx, "claimed", builders.Claimed, func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })

		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))
		Consistently(s.health(ctx, "a")).Should(Equal(nothing))
		Expect(s.getCheck(ctx, "check").Status.Conditions).To(BeEmpty())
		Expect(exported(ctx, m, "kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())
		Eventually(exported(ctx, m, "kubemend_machinehealthcheck_targets", s.labels("claimed")...)).ShouldNot(BeZero())
	})

	It("are neither judged nor counted in mode observe while they are paused for everybody", func(ctx SpecContext) {
		m := ownManager(ctx, "observe-paused", "--unclaimed-machine-health-checks=observe")
		s := newEnvironment(ctx, seenBy("observe-paused"))
		s.worker(ctx, "a")
		s.fallsSilent(ctx, "a")
		s.check(ctx, "check", pausedAs("true"))
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check(ctx, "other", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		before := s.versions(ctx)()

		Eventually(exported(ctx, m, "kubemend_machinehealthcheck_targets", s.labels("other")...)).ShouldNot(BeZero())
		Consistently(s.versions(ctx)).Should(Equal(before))
		Expect(exported(ctx, m, "kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())
	})
})

var _ = Describe("A manager with a filter", func() {
	It("works in the namespace of --namespace alone", func(ctx SpecContext) {
		s, elsewhere := newEnvironment(ctx, seenBy("part")), newEnvironment(ctx, seenBy("part"))
		start := func() *rig.Kubemend {
			return startManager(ctx, "part", nil, "--namespace="+s.cluster.Namespace, "--watch-filter=part", "--unclaimed-machine-health-checks=act")
		}
		m := start()
		for _, in := range []*environment{s, elsewhere} {
			in.template(ctx, "reboot")
			in.workers(ctx, "a", "b")
			in.check(ctx, "check", by("reboot"))
			in.fallsSilent(ctx, "a", "b")
		}
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")
		s.comesBack(ctx, "a")
		Eventually(s.requested(ctx)).Should(ConsistOf("b"))
		Expect(elsewhere.health(ctx, "a")()).To(Equal(nothing))

		m.Kill()
		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		start()
		Eventually(s.requested(ctx)).Should(BeEmpty(), "what is orphaned is found there too")
		Eventually(s.health(ctx, "b")).Should(Equal(nothing))
	})

	It("finds checks without a label of their own through that of their Cluster, as it changes", func(ctx SpecContext) {
		east := ownManager(ctx, "east")
		west := ownManager(ctx, "west")
		s := newEnvironment(ctx, seenBy("east"))
		s.worker(ctx, "a")
		s.fallsSilent(ctx, "a")
		s.check(ctx, "check")
		s.changeCheck(ctx, "check", func(c *clusterv1.MachineHealthCheck) { c.Labels = nil })
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check(ctx, "own", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		s.changeCheck(ctx, "own", func(c *clusterv1.MachineHealthCheck) { c.Labels[clusterv1.WatchLabel] = "nowhere" })
		seen := func(m *rig.Kubemend, check string) func() int {
			return exported(ctx, m, "kubemend_machinehealthcheck_targets", s.labels(check)...)
		}
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(seen(east, "check")).ShouldNot(BeZero())
		Consistently(seen(west, "check")).Should(BeZero())

		moved := s.cluster.DeepCopy()
		moved.Labels[clusterv1.WatchLabel] = "west"
		Expect(here.Patch(ctx, moved, client.MergeFrom(s.cluster))).To(Succeed())
		Eventually(seen(west, "check")).ShouldNot(BeZero())
		Eventually(seen(east, "check")).Should(BeZero())
		s.comesBack(ctx, "a")
		Eventually(s.health(ctx, "a")).Should(Equal(well), "the other manager judges it")
		Expect(seen(east, "own")()+seen(west, "own")()).To(BeZero(), "its own label counts before that of its Cluster")
	})

	It("ignores Clusters and checks without the label of --watch-filter, also when it releases machines", func(ctx SpecContext) {
		m := ownManager(ctx, "one")
		s := newEnvironment(ctx, seenBy("one"))
		s.template(ctx, "reboot")
		s.workers(ctx, "a")
		s.worker(ctx, "b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		s.isRequested(ctx, "a")
		unlabelled := builders.MachineHealthCheck(s.cluster, "unlabelled", func(c *clusterv1.MachineHealthCheck) {
			c.Labels = map[string]string{clusterv1.WatchLabel: ""}
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "b"}}
		})
		Expect(here.Create(ctx, unlabelled)).To(Succeed())
		m.Kill()

		Expect(here.Delete(ctx, s.getCheck(ctx, "check"))).To(Succeed())
		Consistently(s.requested(ctx)).Should(ConsistOf("a"), "the shared manager runs, and this is not its cluster")
		Expect(s.health(ctx, "a")()).To(Equal(silent))
		ownManager(ctx, "one")
		Eventually(s.requested(ctx)).Should(BeEmpty())
		Expect(s.health(ctx, "b")()).To(Equal(nothing))
		Expect(s.getCheck(ctx, "unlabelled").Status.Conditions).To(BeEmpty())
	})
})
