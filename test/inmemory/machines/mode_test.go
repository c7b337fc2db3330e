package machines

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/test/builders"
)

// pausedAs gives a check the annotation cluster.x-k8s.io/paused with a value.
func pausedAs(value string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Annotations = map[string]string{clusterv1.PausedAnnotation: value}
	}
}

func TestPausedIsFalseWhileKubemendActsOnAnUnclaimedCheckAndHasAReasonWhenItIsTrue(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.of("check", "Paused")).Should(Equal("False/NotPaused"))
		s.Eventually(s.health("a")).Should(Equal(well))

		s.changeCheck("check", pausedAs("true"))
		s.Eventually(s.of("check", "Paused")).Should(Equal("True/Paused"))
		s.Expect(s.message("check", "Paused")()).To(Equal("MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))
		s.pause(true)
		s.Eventually(s.message("check", "Paused")).Should(Equal(
			"Cluster spec.paused is set to true, MachineHealthCheck has the cluster.x-k8s.io/paused annotation"))

		s.fallsSilent("a")
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.message("check", "Paused")).Should(Equal("Cluster spec.paused is set to true"))
		s.Expect(s.health("a")()).To(Equal(well))
		s.Expect(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())

		s.pause(false)
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(s.of("check", "Paused")).Should(Equal("False/NotPaused"))
	})
}

func TestPausedIsTheOnlyConditionOfACheckThatIsPausedFromTheStart(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.fallsSilent("a")
		s.check("check", pausedAs("true"))

		s.Eventually(s.of("check", "Paused")).Should(Equal("True/Paused"))
		c := s.getCheck("check")
		s.Expect(c.Labels).NotTo(HaveKey(clusterv1.ClusterNameLabel))
		s.Expect(c.OwnerReferences).To(BeEmpty())
		s.Expect(c.Status.Conditions).To(HaveLen(1))
		s.Consistently(s.health("a")).Should(Equal(nothing))
	})
}

func TestPausedKeepsRequestsAndConditions(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.worker("a")
		s.check("check", by("reboot"))
		s.fallsSilent("a")
		s.isRequested("a")

		s.changeCheck("check", pausedAs("true"))
		s.Eventually(s.of("check", "Paused")).Should(Equal("True/Paused"))
		s.comesBack("a")
		s.Consistently(s.requested()).Should(ConsistOf("a"))

		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { c.Annotations = nil })
		s.Eventually(s.requested()).Should(BeEmpty())
		s.Eventually(s.health("a")).Should(Equal(well))
	})
}

func TestPausedIsWrittenByClusterAPIOnAClaimedCheck(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check", builders.Claimed)
		s.Eventually(s.health("a")).Should(Equal(well))
		s.Eventually(func() error { // the condition of Cluster API core, which its reason identifies
			c := s.getCheck("check")
			c.Status.Conditions = append(c.Status.Conditions, condition(clusterv1.PausedCondition, metav1.ConditionTrue, long))
			return s.here.Status().Update(s.ctx, c)
		}).Should(Succeed())

		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 0, 0}))
		s.Expect(s.of("check", "Paused")()).To(Equal("True/Test"))
		s.pause(true)
		s.Eventually(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)).Should(BeZero())
		s.comesBack("a")
		s.Consistently(s.health("a")).Should(Equal(silent), "a paused Cluster stops us too")
		s.Expect(s.of("check", "Paused")()).To(Equal("True/Test"))
	})
}

func TestUnclaimedChecksAreJudgedAndCountedInModeObserveWithoutAWriteButOfRecords(t *testing.T) {
	runWith(t, observing, func(s *environment) {
		s.template("reboot")
		s.workers("good", "bad")
		s.worker("once-failed", everFailed)
		s.byHand("once-failed", clonedFrom("reboot"))
		s.fallsSilent("bad")
		s.check("check", by("reboot"))
		versions := s.versions()
		s.Eventually(s.records()).Should(ConsistOf("bad Observed Request, blocked by \"\"", "once-failed Observed Request, blocked by \"Healthy\""))
		state := func(name string) func() float64 {
			return s.number("kubemend_machinehealthcheck_targets", s.labels("check", `state="`+name+`"`)...)
		}

		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		s.Eventually(state("healthy")).Should(BeEquivalentTo(2))
		isSaid := func(mode string) {
			s.Eventually(s.number("kubemend_machinehealthcheck_mode", s.labels("check", `mode="`+mode+`"`)...)).Should(BeEquivalentTo(1))
			s.Expect(s.exported("kubemend_machinehealthcheck_mode", s.labels("check")...)()).To(Equal(1))
		}
		isSaid("observing")
		s.comesBack("bad")
		s.fallsSilent("good")
		s.losesNode("once-failed")
		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(2))
		s.Eventually(s.records()).Should(ContainElement("good Observed Request, blocked by \"\""))
		s.Expect(s.versions()).To(Equal(versions))
		s.Expect(s.number("kubemend_remediations_started_total", s.labels("check")...)()).To(BeZero())

		// Claiming the check.
		s.changeCheck("check", builders.Claimed)
		s.Eventually(s.requested()).Should(ConsistOf("good", "once-failed"))
		s.Eventually(s.health("bad")).Should(Equal(well))
		s.isRequested("good")
		s.Expect(s.of("check", "Paused")()).To(Equal("-"))
		isSaid("acting")

		// Releasing the check.
		before := s.settles()
		s.changeCheck("check", func(c *clusterv1.MachineHealthCheck) { delete(c.Annotations, clusterv1.PausedAnnotation) })
		s.Eventually(s.reconciles).Should(BeNumerically(">", before))
		s.comesBack("good")
		s.Eventually(state("unhealthy")).Should(BeEquivalentTo(1))
		s.Consistently(s.requested()).Should(ConsistOf("good", "once-failed"), "Cluster API acts on it now")
	})
}

func TestUnclaimedChecksAreNotReadInModeIgnoreUnlikeClaimedOnes(t *testing.T) {
	runWith(t, ignoring, func(s *environment) {
		s.workers("a")
		s.worker("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.fallsSilent("a", "b")
		s.check("check")
		s.check("claimed", builders.Claimed, func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })

		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
		s.Consistently(s.health("a")).Should(Equal(nothing))
		s.Expect(s.getCheck("check").Status.Conditions).To(BeEmpty())
		s.Expect(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())
		s.Eventually(s.exported("kubemend_machinehealthcheck_targets", s.labels("claimed")...)).ShouldNot(BeZero())
	})
}

func TestUnclaimedChecksAreNeitherJudgedNorCountedInModeObserveWhileTheyArePausedForEverybody(t *testing.T) {
	runWith(t, observing, func(s *environment) {
		s.worker("a")
		s.fallsSilent("a")
		s.check("check", pausedAs("true"))
		s.worker("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check("other", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		before := s.versions()

		s.Eventually(s.exported("kubemend_machinehealthcheck_targets", s.labels("other")...)).ShouldNot(BeZero())
		s.Consistently(s.versions).Should(Equal(before))
		s.Expect(s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)()).To(BeZero())
	})
}

func TestAManagerWithAFilterFindsChecksWithoutALabelThroughThatOfTheirClusterAsItChanges(t *testing.T) {
	alone(t, func(s *environment) {
		s.labelled("east")
		s.start(flags{unclaimed: machinehealthcheck.Act, filter: "east"})
		s.worker("a")
		s.fallsSilent("a")
		s.check("check", unlabelled)
		s.worker("b", func(m *clusterv1.Machine) { m.Labels["pool"] = "b" })
		s.check("own", func(c *clusterv1.MachineHealthCheck) { c.Spec.Selector.MatchLabels["pool"] = "b" })
		s.changeCheck("own", func(c *clusterv1.MachineHealthCheck) { c.Labels = map[string]string{clusterv1.WatchLabel: "nowhere"} })
		seen := s.exported("kubemend_machinehealthcheck_targets", s.labels("check")...)
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(seen).ShouldNot(BeZero())

		s.labelled("west")
		s.Eventually(seen).Should(BeZero())
		s.comesBack("a")
		s.Consistently(s.health("a")).Should(Equal(silent), "it is another manager's affair")
		s.start(flags{unclaimed: machinehealthcheck.Act, filter: "west"})
		s.Eventually(s.health("a")).Should(Equal(well), "the other manager judges it")
		s.Eventually(seen).ShouldNot(BeZero())
		s.Expect(s.exported("kubemend_machinehealthcheck_targets", s.labels("own")...)()).To(BeZero(), "its own label counts before that of its Cluster")
	})
}

// labelled says which manager looks after the Cluster.
func (s *environment) labelled(filter string) {
	s.t.Helper()
	before := s.cluster.DeepCopy()
	s.cluster.Labels = map[string]string{clusterv1.WatchLabel: filter}
	s.Expect(s.here.Patch(s.ctx, s.cluster, client.MergeFrom(before))).To(Succeed())
}

func unlabelled(c *clusterv1.MachineHealthCheck) { c.Labels = nil }
