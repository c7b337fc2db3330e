package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

var _ = Describe("As medik8s does, a check", func() {
	inEveryMode("C30, seed 0.20, 2.6, bad input: is disabled while its template does not exist", func(ctx context.Context, s *environment) {
		soft := s.template(ctx, reboot, "soft")
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(soft))
		unknown, nowhere, homeless := soft, soft, soft
		unknown.APIVersion, unknown.Kind = uninvited.kind.GroupVersion().String(), uninvited.templates().Kind
		nowhere.Namespace, homeless.Namespace = s.missing, ""
		s.check(ctx, "unknown", s.by(unknown))
		s.check(ctx, "nowhere", s.by(nowhere))
		s.check(ctx, "homeless", s.by(homeless))
		for check, says := range map[string]string{
			"unknown": "no matches for kind", "nowhere": "not found", "homeless": "it is namespaced, but no namespace is provided",
		} {
			Eventually(s.of(ctx, check, nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
			Expect(s.message(ctx, check, nhcv1.DisabledCondition)()).To(And(HavePrefix(`Remediation template not found: "`), ContainSubstring(says)))
			Expect(s.phase(ctx, check)()).To(And(
				HavePrefix("Disabled: NHC is disabled: RemediationTemplateNotFound: "), ContainSubstring("failed to get"), ContainSubstring(says)))
			Expect(s.allowed(ctx, check)()).To(Equal("False/HealthCheckDisabled"))
			Eventually(s.events(ctx, check, "Disabled")).Should(ConsistOf(HavePrefix(
				"Warning [remediation] Disabling NHC. Reason: RemediationTemplateNotFound, Message: Remediation template not found: ")))
		}
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Expect(s.message(ctx, "check", nhcv1.DisabledCondition)()).To(Equal("No issues found, NodeHealthCheck is enabled."))
		Eventually(s.events(ctx, "check", "Enabled")).Should(Equal([]string{"Normal [remediation] No issues found, NodeHealthCheck is enabled."}))

		s.deleteTemplate(ctx, reboot, "soft")
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.fails(ctx, "w1")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.template(ctx, reboot, "soft")
		s.request(ctx, "w1")
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Eventually(s.events(ctx, "check", "Enabled")).Should(HaveLen(2))
	})

	inEveryMode("C60: leaves a node alone that has the exclude label with the value true, and no other", func(ctx context.Context, s *environment) {
		const label = "remediation.medik8s.io/exclude-from-remediation"
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.node(ctx, "out", labelled(label, "true"))
		s.node(ctx, "in", labelled(label, "false"))
		s.node(ctx, "empty", labelled(label, ""))
		for _, name := range []string{"a", "b", "c", "d"} {
			s.node(ctx, name)
		}
		s.fails(ctx, "out", "in", "empty")
		s.request(ctx, "in")
		s.request(ctx, "empty")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"empty: RebootRemediation/soft", "in: RebootRemediation/soft", "out"}))
		Expect(s.about(ctx, "out")).To(BeEmpty())
		Expect(s.counts(ctx, "check")()).To(Equal([]int{7, 4}), "it is unhealthy all the same")
		Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ConsistOf(
			"Warning [remediation] Remediation skipped on node out: node has Exclude from Remediation label"))
		Eventually(s.events(ctx, "check", "InvalidNodeLabel")).Should(ConsistOf("Warning [remediation] Node empty has exclude-from-remediation " +
			"label with empty value, label will be ignored. Set value to 'true' to exclude node from remediation"))
		s.changeNode(ctx, "out", func(n *corev1.Node) { delete(n.Labels, label) })
		s.request(ctx, "out")
	})

	inEveryMode("C63, seed 2.16: keeps the request of a deleted node until it has succeeded, if its remediator expects the deletion",
		func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(s.template(ctx, deletion, "delete")))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			s.says(ctx, req, nhcv1.ProcessingCondition, metav1.ConditionTrue)
			s.says(ctx, req, "PermanentNodeDeletionExpected", metav1.ConditionTrue)
			s.loses(ctx, "w1")
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
			s.settle("check")
			Expect(s.isLeaving(ctx, req)()).To(BeFalse())
			Expect(s.isGone(ctx, req)()).To(BeFalse())
			Expect(s.phase(ctx, "check")()).To(Equal(remediating))
			s.says(ctx, req, nhcv1.SucceededCondition, metav1.ConditionTrue)
			Eventually(s.isGone(ctx, req)).Should(BeTrue())
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
			Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
			Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1"}))
			s.clock.Step(time.Second)
			s.node(ctx, "w4")
			Eventually(s.listed(ctx, "check")).Should(BeEmpty())
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))
		})

	inEveryMode("C67, W12, gap, seed 0.4, 1.5, 2.8: starts nothing while it is paused, and still cleans up and counts", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"one", "two"} })
		Eventually(s.phase(ctx, "check")).Should(Equal("Paused: NHC is paused: one,two"))
		s.fails(ctx, "w2")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{5, 3}))
		Expect(s.about(ctx, "w2")).To(BeEmpty())
		Expect(s.isLeaving(ctx, req)()).To(BeFalse(), "what has started continues")
		Expect(s.allowed(ctx, "check")()).To(Equal("False/PauseRequested"))
		Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ConsistOf(
			"Normal [remediation] Postponing potential remediations because of pause requests"))

		s.recovers(ctx, "w1")
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{5, 4}))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = nil })
		s.request(ctx, "w2")
		Eventually(s.allowed(ctx, "check")).Should(Equal(yes))
	})

	inEveryMode("C71: waits for its cooldown after a storm, which starts again with the next storm", func(ctx context.Context, s *environment) {
		s.workers(ctx, 7)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), minHealthy("4"), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.StormCooldownDuration = &metav1.Duration{Duration: 3 * time.Minute}
		})
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Expect(s.of(ctx, "check", "StormActive")()).NotTo(HavePrefix("True"))

		s.storm(ctx, "check", "w1", "w2", "w3", "w4")
		Eventually(s.of(ctx, "check", "StormActive")).Should(Equal("True/HealthyNodeThresholdChange"))
		Expect(s.message(ctx, "check", "StormActive")()).To(Equal(
			"Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired"))
		Expect(s.of(ctx, "check", "StormCooldownActive")()).To(Equal("False/HealthyNodeThresholdChange"))
		Eventually(s.events(ctx, "check", "StormRecoveryStarted")).Should(Equal([]string{
			"Warning [remediation] Storm recovery mode activated - delaying remediation until threshold is reached"}))
		before := s.about(ctx, "w4")

		s.recovers(ctx, "w1")
		Eventually(s.of(ctx, "check", "StormCooldownActive")).Should(Equal("True/HealthyNodeThresholdChange"))
		Expect(s.message(ctx, "check", "StormCooldownActive")()).To(Equal("Storm cooldown delay started - waiting before resuming normal remediation"))
		Expect(s.allowed(ctx, "check")()).To(Equal("False/StormRecovery"))
		Eventually(s.events(ctx, "check", "StormRecoveryCooldownStarted")).Should(Equal([]string{
			"Warning [remediation] Storm recovery mode will exit after cooldown delay"}))
		Expect(s.about(ctx, "w4")).To(HaveLen(len(before)))
		s.clock.Step(2 * time.Minute)
		s.settle("check")
		Expect(s.of(ctx, "check", "StormActive")()).To(HavePrefix("True"))

		s.fails(ctx, "w1")
		Eventually(s.of(ctx, "check", "StormCooldownActive")).Should(HavePrefix("False"))
		s.clock.Step(2 * time.Minute)
		s.settle("check")
		Expect(s.allowed(ctx, "check")()).To(Equal("False/TooManyUnhealthy"))
		s.recovers(ctx, "w1")
		Eventually(s.of(ctx, "check", "StormCooldownActive")).Should(HavePrefix("True"))
		s.clock.Step(2 * time.Minute)
		s.settle("check")
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
		s.clock.Step(time.Minute)
		Eventually(s.nodesRequested(ctx)).Should(ConsistOf("w2", "w3", "w4"))
		Eventually(s.of(ctx, "check", "StormActive")).Should(HavePrefix("False"))
		Expect(s.message(ctx, "check", "StormActive")()).To(Equal("Storm mode is deactivated, remediation can occur normally"))
		Expect(s.of(ctx, "check", "StormCooldownActive")()).To(HavePrefix("False"))
		Expect(s.message(ctx, "check", "StormCooldownActive")()).To(Equal("Storm cooldown completed"))
		Eventually(s.events(ctx, "check", "StormRecoveryEnded")).Should(Equal([]string{
			"Normal [remediation] Storm recovery mode deactivated - normal remediation resumed"}))
	})
})

// storm makes nodes unhealthy at one moment, when all are healthy: their conditions have lasted long enough only when the check has
// observed all of them.
func (s *environment) storm(ctx context.Context, check string, names ...string) {
	GinkgoHelper()
	observed := s.counts(ctx, check)()[0]
	for _, name := range names {
		s.reports(ctx, name, corev1.NodeReady, corev1.ConditionUnknown)
	}
	Eventually(s.counts(ctx, check)).Should(Equal([]int{observed, observed - len(names)}))
	s.clock.Step(patience)
}

// deleteTemplate deletes a template.
func (s *environment) deleteTemplate(ctx context.Context, r remediator, name string) {
	GinkgoHelper()
	t := &unstructured.Unstructured{}
	t.SetGroupVersionKind(r.templates())
	t.SetName(name)
	t.SetNamespace(s.name)
	Expect(s.here.Delete(ctx, t)).To(Succeed())
}
