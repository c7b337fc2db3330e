package machines

import (
	"testing"

	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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

func TestUnclaimedChecksAreJudgedAndCountedInModeObserveWithoutAWrite(t *testing.T) {
	runWith(t, observe, func(s *environment) {
		s.template("reboot")
		s.workers("good", "bad")
		s.worker("once-failed", everFailed)
		s.byHand("once-failed", clonedFrom("reboot"))
		s.fallsSilent("bad")
		s.check("check", by("reboot"))
		versions := s.versions()
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
		s.Expect(s.recorded()).To(BeEmpty())
		versions["Cluster/c1"] = s.versions()["Cluster/c1"] // on which is kept what answers
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
