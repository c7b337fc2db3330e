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

})

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

// Here are those that need a controller. The rows of nodehealthcheck and decide/escalation that begin with their ids show the others, and
// the tests of nodehealthcheck, of its admission and of the docs those that are about these.
var _ = Describe("Unlike medik8s', a check", func() {
	inEveryMode("W8, seed 0.24: forgets a node that is gone together with its request, once a replacement has joined", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, deletion, "delete")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.says(ctx, req, "PermanentNodeDeletionExpected", metav1.ConditionTrue)
		s.loses(ctx, "w1")
		s.settle("check")
		Expect(s.isGone(ctx, req)()).To(BeFalse())
		s.isDeleted(ctx, req)
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1"}))
		s.clock.Step(time.Second)
		s.node(ctx, "w4")
		Eventually(s.listed(ctx, "check")).Should(BeEmpty())
		Expect(s.about(ctx, "w1")).To(BeEmpty())
	})
})
