package nodes

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var ladders = mode{escalating: true}

var _ = Describe("A node that stays unhealthy", func() {
	inEveryMode("C51: is reported once per remediation", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		req := s.request("w1")
		once := []string{`Normal [remediation] Node matches unhealthy condition. Node "w1", condition type "Ready", condition status "Unknown"`}
		Eventually(s.events("check", "DetectedUnhealthy")).Should(Equal(once))
		s.says(req, nhcv1.ProcessingCondition, metav1.ConditionTrue)
		s.settle("check")
		s.reports("w1", corev1.NodeReady, corev1.ConditionFalse)
		s.settle("check")
		s.leaps(patience)
		s.settle("check")
		Expect(s.events("check", "DetectedUnhealthy")()).To(Equal(once))

		s.recovers("w1")
		Eventually(s.phase("check")).Should(Equal(enabled))
		s.reports("w1", corev1.NodeReady, corev1.ConditionFalse)
		s.leaps(long)
		s.request("w1")
		Eventually(s.events("check", "DetectedUnhealthy")).Should(HaveLen(2))
		Eventually(s.events("check", "RemediationRemoved")).Should(ConsistOf(HavePrefix(
			"Normal [remediation] Deleted remediation CR of kind RebootRemediation with name w1")))
		Eventually(s.events("check", "RemediationCreated")).Should(HaveEach("Normal [remediation] Created remediation object for node w1"))
	})

	in(ladders, "W20: gets its steps by their order, whatever their place in the list, and the status is not written again and again", func(s *environment) {
		s.workers(3)
		s.check("check", escalating(s.template(reboot, "soft"), s.template(replace, "hard")), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.EscalatingRemediations[0].Order, c.Spec.EscalatingRemediations[1].Order = 7, -3
		})
		s.fails("w1")
		Eventually(s.requested("w1")).Should(Equal([]string{"Replace/hard"}))
		Eventually(s.phase("check")).Should(Equal(remediating))
		s.settle("check")
		before := s.getCheck("check").ResourceVersion
		s.settle("check")
		Expect(s.getCheck("check").ResourceVersion).To(Equal(before))
		Expect(s.getCheck("check").Spec.EscalatingRemediations[0].Order).To(Equal(7))
	})
})
