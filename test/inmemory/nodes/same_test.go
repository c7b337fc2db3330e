package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("As medik8s does,", func() {
	inEveryMode("C32, seed 0.3, 0.16, 0.17, 0.18, 0.19, 0.21, 0.22, 0.23: a node is remediated from the moment its condition has lasted for its duration, until its request is gone",
		func(ctx context.Context, s *environment) {
			template := s.template(ctx, reboot, "soft")
			s.workers(ctx, 3)
			check := s.check(ctx, "check", s.by(template))
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
			Expect(s.counts(ctx, "check")()).To(Equal([]int{3, 3}))

			s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionUnknown)
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}), "a node that may be unhealthy soon is not healthy")
			Expect(s.nodesRequested(ctx)()).To(BeEmpty())
			s.clock.Step(patience - time.Minute)
			s.settle("check")
			Expect(s.nodesRequested(ctx)()).To(BeEmpty())
			s.clock.Step(time.Minute)

			req := s.request(ctx, "w1")
			Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
			Expect(req.GetNamespace()).To(Equal(s.name))
			if s.several {
				Expect(req.GetName()).To(HavePrefix(s.called("w1") + "-"))
			} else {
				Expect(req.GetName()).To(Equal(s.called("w1")))
			}
			annotations := req.GetAnnotations()
			delete(annotations, mendv1.RecordAnnotation) // which is there where RemediationRecords are
			Expect(annotations).To(Equal(map[string]string{
				"remediation.medik8s.io/node-name": s.called("w1"), "remediation.medik8s.io/template-name": "soft",
				mendv1.MadeByNodeCheckAnnotation: s.called("check"),
			}))
			Expect(req.GetLabels()).To(Equal(map[string]string{
				"app.kubernetes.io/part-of": "node-healthcheck-controller", mendv1.MadeByNodeCheckUIDLabel: string(check.UID),
			}))
			no := false
			Expect(req.GetOwnerReferences()).To(Equal([]metav1.OwnerReference{{
				APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: s.called("check"), UID: check.UID, Controller: &no,
			}}))
			Expect(req.GetFinalizers()).To(BeEmpty())

			Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
			entry := s.entry(ctx, "check", "w1")
			Expect(entry.Remediations).To(HaveLen(1))
			is := entry.Remediations[0]
			Expect(is.Resource).To(Equal(corev1.ObjectReference{
				APIVersion: "test.kubemend.io/v1alpha1", Kind: "RebootRemediation", Namespace: s.name, Name: req.GetName(), UID: req.GetUID(),
			}))
			born := req.GetCreationTimestamp()
			Expect(is.Started.Equal(&born)).To(BeTrue())
			Expect(is.TemplateName).To(Equal("soft"))
			Expect(is.TimedOut).To(BeNil())
			Expect(entry.ConditionsHealthyTimestamp).To(BeNil())
			Expect(entry.HealthyDelayed).To(BeNil())

			s.keeps(ctx, req)
			s.recovers(ctx, "w1")
			Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
			Eventually(func() *metav1.Time { return s.entry(ctx, "check", "w1").ConditionsHealthyTimestamp }).ShouldNot(BeNil())
			Expect(s.counts(ctx, "check")()).To(Equal([]int{3, 2}), "its remediation is not over")
			Expect(s.phase(ctx, "check")()).To(Equal(remediating))
			since := s.entry(ctx, "check", "w1").ConditionsHealthyTimestamp
			s.clock.Step(time.Minute)
			s.settle("check")
			Expect(s.entry(ctx, "check", "w1").ConditionsHealthyTimestamp).To(Equal(since))

			s.removesFinalizers(ctx, req)
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))
			Eventually(s.listed(ctx, "check")).Should(BeEmpty())
		})

	inEveryMode("C33, seed 2.10: with too few healthy nodes nothing starts, and the unhealthy ones are listed", func(ctx context.Context, s *environment) {
		s.workers(ctx, 7)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"while nodes fail one by one"} })
		Eventually(s.allowed(ctx, "check")).Should(HavePrefix("False/PauseRequested"))
		s.fails(ctx, "w1", "w2", "w3", "w4")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{7, 3}))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = nil })

		Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.message(ctx, "check", nhcv1.RemediationAllowedCondition)()).To(HavePrefix(
			"Skipped remediation because the number of healthy nodes selected by the selector is 3 and should equal or exceed 4"))
		Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1", "w2", "w3", "w4"}))
		Expect(s.phase(ctx, "check")()).To(Equal(enabled))
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
		Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ContainElement(HavePrefix(
			"Warning [remediation] Skipped remediation because the number of healthy nodes selected by the selector is 3 and should equal or exceed 4")))
	})

	inEveryMode("C34, seed 0.4, 0.5, 2.9: the request of a node that recovers is deleted, other clients' requests are not, and another node is remediated",
		func(ctx context.Context, s *environment) {
			template := s.template(ctx, reboot, "soft")
			s.workers(ctx, 3)
			foreign := reboot.object(s.name, s.called("w3"))
			Expect(s.here.Create(ctx, foreign)).To(Succeed())
			s.check(ctx, "check", s.by(template))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			s.keeps(ctx, req)
			s.fails(ctx, "w2")
			Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))

			s.recovers(ctx, "w1")
			Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 1}))
			Expect(s.about(ctx, "w2")).To(BeEmpty())
			s.removesFinalizers(ctx, req)
			s.request(ctx, "w2")
			Expect(s.isGone(ctx, foreign)()).To(BeFalse())
			Expect(s.isLeaving(ctx, foreign)()).To(BeFalse())
		})

	inEveryMode("C35, seed 2.12: a request older than 48 hours is flagged and counted once", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		flag := s.annotation(ctx, req, "nodehealthcheck.medik8s.io/old-remediation-cr-flag")
		series := map[string]string{"name": s.called("w1"), "namespace": s.name}

		s.clock.Step(48*time.Hour - time.Minute)
		s.settle("check")
		Expect(flag()).To(BeEmpty())
		s.clock.Step(2 * time.Minute)
		Eventually(flag).Should(Equal("flagon"))
		Eventually(s.metric).WithArguments("nodehealthcheck_old_remediation_cr", series).Should(BeEquivalentTo(1))
		s.clock.Step(48 * time.Hour)
		s.settle("check")
		Expect(s.metric("nodehealthcheck_old_remediation_cr", series)).To(BeEquivalentTo(1))
	})

	inModes("C36, W24: a request of another client blocks the node, is not touched, and is reported", modes[:1],
		func(ctx context.Context, s *environment) {
			template := s.template(ctx, reboot, "soft")
			s.workers(ctx, 3)
			foreign := reboot.object(s.name, s.called("w1"))
			foreign.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: s.called("w1"), nhcv1.TemplateNameAnnotation: "soft"})
			foreign.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: s.called("w1"), UID: s.getNode(ctx, "w1").UID}})
			Expect(s.here.Create(ctx, foreign)).To(Succeed())
			s.check(ctx, "check", s.by(template))
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))

			s.fails(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
			Expect(s.about(ctx, "w1")).To(HaveLen(1))
			Expect(s.again(ctx, foreign).GetResourceVersion()).To(Equal(foreign.GetResourceVersion()))
			Expect(s.lease(ctx, "w1")).To(BeNil())
			Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ConsistOf(And(ContainSubstring("w1"), ContainSubstring("RebootRemediation"))))
			s.recovers(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(BeEmpty())
			Expect(s.isLeaving(ctx, foreign)()).To(BeFalse())

			s.fails(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
			s.settle("check")
			s.isDeleted(ctx, foreign)
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft"}))
		})
})
