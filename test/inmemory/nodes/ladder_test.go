package nodes

import (
	"context"
	"time"

	"github.com/kubemend/kubemend/test/suite"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/policy"
)

var ladders = mode{escalating: true}

var _ = Describe("A node that stays unhealthy", func() {
	in(ladders, "begins when a policy has a place for it, also after a restart, and its ladder goes on", func(ctx context.Context, s *environment) {
		racks := &mendv1.RemediationPolicy{}
		racks.Spec.Limits = []mendv1.PolicyLimit{{Name: "all", MaxInFlight: ptr.To(intstr.FromInt32(1))}}
		s.policies = []*policy.Policy{policy.Read(racks, "")}
		s.kill()
		s.start()
		soft, hard := s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")
		for _, name := range []string{"a", "b"} {
			s.node(ctx, name, labelled("of", name))
			s.check(ctx, name, selecting("of", name), minHealthy("0"), ladder(step, soft, hard))
		}
		s.fails(ctx, "a", "b")
		Expect(s.requested(ctx, "a")()).To(Equal([]string{"RebootRemediation/soft"}))
		s.kill()
		s.start()
		s.clock.Step(step)
		Expect(s.requested(ctx, "a")()).To(Equal([]string{"RebootRemediation/soft", "ReplaceRemediation/hard"}))
		Expect(s.requested(ctx, "b")()).To(BeEmpty())
		Expect(s.events(ctx, "b", "RemediationSkipped")()).To(ContainElement(ContainSubstring("The limit all of RemediationPolicy")))
		s.recovers(ctx, "a")
		Expect(s.requested(ctx, "b")()).To(Equal([]string{"RebootRemediation/soft"}))
	})

	in(ladders, "C50, seed 2.17, 2.18: keeps its request and its step while its condition changes, until it is healthy",
		func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Eventually(s.phase(ctx, "check")).Should(Equal(remediating))

			s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
			s.settle("check")
			s.clock.Step(step + 30*time.Second) // less than the condition may last, more than the step
			s.settle("check")
			Expect(s.requested(ctx, "w1")()).To(Equal([]string{"RebootRemediation/soft"}))
			Expect(s.timedOut(ctx, req)()).To(BeEmpty())
			Expect(s.isLeaving(ctx, req)()).To(BeFalse())
			Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1: RebootRemediation/soft"}))
			Expect(s.counts(ctx, "check")()).To(Equal([]int{3, 2}))

			s.clock.Step(30 * time.Second)
			Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"RebootRemediation/soft", "ReplaceRemediation/hard"}))
			s.recovers(ctx, "w1")
			Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
			Eventually(s.listed(ctx, "check")).Should(BeEmpty())
		})

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

	in(ladders, "C53, W1, gap, seed 2.13, 2.15: gets all steps one after the other, also several of one kind, each for its own timeout",
		func(ctx context.Context, s *environment) {
			templates := []corev1.ObjectReference{
				s.template(ctx, reboot, "soft", several), s.template(ctx, replace, "new"),
				s.template(ctx, reboot, "hard", several), s.template(ctx, reboot, "harder", several),
			}
			s.workers(ctx, 3)
			s.check(ctx, "check", ladder(time.Minute, templates...), func(c *nhcv1.NodeHealthCheck) {
				for i := range c.Spec.EscalatingRemediations {
					c.Spec.EscalatingRemediations[i].Timeout.Duration = time.Duration(i+1) * time.Minute
				}
			})
			s.fails(ctx, "w1")
			all := []string{"RebootRemediation/soft", "ReplaceRemediation/new", "RebootRemediation/hard", "RebootRemediation/harder"}
			for i := range templates {
				timeout := time.Duration(i+1) * time.Minute
				req := s.latest(ctx, "w1", i+1)
				Expect(s.requested(ctx, "w1")()).To(Equal(all[:i+1]))
				Eventually(func() time.Duration {
					return time.Duration(*s.lease(ctx, "w1").Spec.LeaseDurationSeconds) * time.Second
				}).Should(Equal(timeout + time.Minute))
				s.clock.Step(timeout - 30*time.Second)
				s.settle("check")
				Expect(s.timedOut(ctx, req)()).To(BeEmpty())
				before := s.clock.Now()
				s.clock.Step(30 * time.Second)
				Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
				at := suite.Must(time.Parse(time.RFC3339, s.timedOut(ctx, req)()))
				Expect(at).To(BeTemporally(">=", before.Truncate(time.Second)))
				Expect(at).To(BeTemporally("<=", s.clock.Now()))
				Eventually(s.isListedAsTimedOut).WithArguments(ctx, "check", "w1", i).Should(BeTrue())
			}
			Eventually(s.events(ctx, "check", "NoTemplateLeft")).Should(ConsistOf(
				"Warning [remediation] Remediation timed out, and no template left to try. didn't find a template to use for NHC check and node w1"))
			s.settle("check")
			Expect(s.requested(ctx, "w1")()).To(Equal(all))
			s.recovers(ctx, "w1")
			Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
			Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
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

// isListedAsTimedOut reports whether a check says that its nth request for a node was given up.
func (s *environment) isListedAsTimedOut(ctx context.Context, check, node string, nth int) bool {
	entry := s.entry(ctx, check, node)
	return entry != nil && len(entry.Remediations) > nth && entry.Remediations[nth].TimedOut != nil
}
