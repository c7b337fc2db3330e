package nodes

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var ladders = mode{escalating: true}

var _ = Describe("A node that stays unhealthy", func() {
	inEveryMode("C51: is reported once per remediation", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		once := []string{`Normal [remediation] Node matches unhealthy condition. Node "w1", condition type "Ready", condition status "Unknown"`}
		Eventually(s.events(ctx, "check", "DetectedUnhealthy")).Should(Equal(once))
		s.says(ctx, req, nhcv1.ProcessingCondition, metav1.ConditionTrue)
		s.settle("check")
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		s.settle("check")
		s.clock.Step(patience)
		s.settle("check")
		Expect(s.events(ctx, "check", "DetectedUnhealthy")()).To(Equal(once))

		s.recovers(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		s.clock.Step(long)
		s.request(ctx, "w1")
		Eventually(s.events(ctx, "check", "DetectedUnhealthy")).Should(HaveLen(2))
		Eventually(s.events(ctx, "check", "RemediationRemoved")).Should(ConsistOf(HavePrefix(
			"Normal [remediation] Deleted remediation CR of kind RebootRemediation with name w1")))
		Eventually(s.events(ctx, "check", "RemediationCreated")).Should(HaveEach("Normal [remediation] Created remediation object for node w1"))
	})

	in(ladders, "W20: gets its steps by their order, whatever their place in the list, and the status is not written again and again", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.EscalatingRemediations[0].Order, c.Spec.EscalatingRemediations[1].Order = 7, -3
		})
		s.fails(ctx, "w1")
		Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"ReplaceRemediation/hard"}))
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.settle("check")
		before := s.get(ctx, "check").ResourceVersion
		s.settle("check")
		Expect(s.get(ctx, "check").ResourceVersion).To(Equal(before))
		Expect(s.get(ctx, "check").Spec.EscalatingRemediations[0].Order).To(Equal(7))
	})
})
