package nodes

import (
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
		func(s *environment) {
			template := s.template(reboot, "soft")
			s.workers(3)
			check := s.check("check", s.by(template))
			Eventually(s.phase("check")).Should(Equal(enabled))
			Expect(s.counts("check")()).To(Equal([]int{3, 3}))

			s.reports("w1", corev1.NodeReady, corev1.ConditionUnknown)
			Eventually(s.counts("check")).Should(Equal([]int{3, 2}), "a node that may be unhealthy soon is not healthy")
			Expect(s.nodesRequested()()).To(BeEmpty())
			s.leaps(patience - time.Minute)
			s.settle("check")
			Expect(s.nodesRequested()()).To(BeEmpty())
			s.leaps(time.Minute)

			req := s.request("w1")
			Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
			Expect(req.GetNamespace()).To(Equal(s.namespace))
			if s.several {
				Expect(req.GetName()).To(HavePrefix("w1" + "-"))
			} else {
				Expect(req.GetName()).To(Equal("w1"))
			}
			annotations := req.GetAnnotations()
			delete(annotations, mendv1.RecordAnnotation) // which is there where RemediationRecords are
			Expect(annotations).To(Equal(map[string]string{
				"remediation.medik8s.io/node-name": "w1", "remediation.medik8s.io/template-name": "soft",
				mendv1.MadeByNodeCheckAnnotation: "check",
			}))
			Expect(req.GetLabels()).To(Equal(map[string]string{
				"app.kubernetes.io/part-of": "node-healthcheck-controller", mendv1.MadeByNodeCheckUIDLabel: string(check.UID),
			}))
			no := false
			Expect(req.GetOwnerReferences()).To(Equal([]metav1.OwnerReference{{
				APIVersion: "remediation.medik8s.io/v1alpha1", Kind: "NodeHealthCheck", Name: "check", UID: check.UID, Controller: &no,
			}}))
			Expect(req.GetFinalizers()).To(BeEmpty())

			Eventually(s.phase("check")).Should(Equal(remediating))
			entry := s.entry("check", "w1")
			Expect(entry.Remediations).To(HaveLen(1))
			is := entry.Remediations[0]
			Expect(is.Resource).To(Equal(corev1.ObjectReference{
				APIVersion: "test.kubemend.io/v1alpha1", Kind: "RebootRemediation", Namespace: s.namespace, Name: req.GetName(), UID: req.GetUID(),
			}))
			born := req.GetCreationTimestamp()
			Expect(is.Started.Equal(&born)).To(BeTrue())
			Expect(is.TemplateName).To(Equal("soft"))
			Expect(is.TimedOut).To(BeNil())
			Expect(entry.ConditionsHealthyTimestamp).To(BeNil())
			Expect(entry.HealthyDelayed).To(BeNil())

			s.holds(req, true)
			s.recovers("w1")
			Eventually(s.isLeaving(req)).Should(BeTrue())
			Eventually(func() *metav1.Time { return s.entry("check", "w1").ConditionsHealthyTimestamp }).ShouldNot(BeNil())
			Expect(s.counts("check")()).To(Equal([]int{3, 2}), "its remediation is not over")
			Expect(s.phase("check")()).To(Equal(remediating))
			since := s.entry("check", "w1").ConditionsHealthyTimestamp
			s.leaps(time.Minute)
			s.settle("check")
			Expect(s.entry("check", "w1").ConditionsHealthyTimestamp).To(Equal(since))

			s.holds(req, false)
			Eventually(s.phase("check")).Should(Equal(enabled))
			Eventually(s.counts("check")).Should(Equal([]int{3, 3}))
			Eventually(s.listed("check")).Should(BeEmpty())
		})

	inEveryMode("C33, seed 2.10: with too few healthy nodes nothing starts, and the unhealthy ones are listed", func(s *environment) {
		s.workers(7)
		s.check("check", s.by(s.template(reboot, "soft")))
		Eventually(s.phase("check")).Should(Equal(enabled))
		s.change("check", pausedBy("while nodes fail one by one"))
		Eventually(s.allowed("check")).Should(HavePrefix("False/PauseRequested"))
		s.fails("w1", "w2", "w3", "w4")
		Eventually(s.counts("check")).Should(Equal([]int{7, 3}))
		s.change("check", pausedBy())

		Eventually(s.allowed("check")).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.message("check", nhcv1.RemediationAllowedCondition)()).To(HavePrefix(
			"Skipped remediation because the number of healthy nodes selected by the selector is 3 and should equal or exceed 4"))
		Expect(s.listed("check")()).To(Equal([]string{"w1", "w2", "w3", "w4"}))
		Expect(s.phase("check")()).To(Equal(enabled))
		Expect(s.nodesRequested()()).To(BeEmpty())
		Eventually(s.events("check", "RemediationSkipped")).Should(ContainElement(HavePrefix(
			"Warning [remediation] Skipped remediation because the number of healthy nodes selected by the selector is 3 and should equal or exceed 4")))
	})

	inEveryMode("C34, seed 0.4, 0.5, 2.9: the request of a node that recovers is deleted, other clients' requests are not, and another node is remediated",
		func(s *environment) {
			template := s.template(reboot, "soft")
			s.workers(3)
			foreign := reboot.object(s.namespace, "w3")
			s.makes(foreign)
			s.check("check", s.by(template))
			s.fails("w1")
			req := s.request("w1")
			s.holds(req, true)
			s.fails("w2")
			Eventually(s.allowed("check")).Should(Equal("False/TooManyUnhealthy"))

			s.recovers("w1")
			Eventually(s.isLeaving(req)).Should(BeTrue())
			Eventually(s.counts("check")).Should(Equal([]int{3, 1}))
			Expect(s.of("w2")).To(BeEmpty())
			s.holds(req, false)
			s.request("w2")
			Expect(s.isGone(foreign)()).To(BeFalse())
			Expect(s.isLeaving(foreign)()).To(BeFalse())
		})

	inEveryMode("C35, seed 2.12: a request older than 48 hours is flagged and counted once", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		req := s.request("w1")
		Eventually(s.phase("check")).Should(Equal(remediating))
		flag := s.annotation(req, "nodehealthcheck.medik8s.io/old-remediation-cr-flag")
		series := map[string]string{"name": "w1", "namespace": s.namespace}

		s.leaps(48*time.Hour - time.Minute)
		s.settle("check")
		Expect(flag()).To(BeEmpty())
		s.leaps(2 * time.Minute)
		Eventually(flag).Should(Equal("flagon"))
		Eventually(s.metric).WithArguments("nodehealthcheck_old_remediation_cr", series).Should(BeEquivalentTo(1))
		s.leaps(48 * time.Hour)
		s.settle("check")
		Expect(s.metric("nodehealthcheck_old_remediation_cr", series)).To(BeEquivalentTo(1))
	})

})

var _ = Describe("As medik8s does, a check", func() {
	inEveryMode("C30, seed 0.20, 2.6, bad input: is disabled while its template does not exist", func(s *environment) {
		soft := s.template(reboot, "soft")
		s.workers(3)
		s.check("check", s.by(soft))
		unknown, nowhere, homeless := soft, soft, soft
		unknown.APIVersion, unknown.Kind = "absent.example.org/v1alpha1", "UninstalledRemediationTemplate"
		nowhere.Namespace, homeless.Namespace = s.missing, ""
		s.check("unknown", s.by(unknown))
		s.check("nowhere", s.by(nowhere))
		s.check("homeless", s.by(homeless))
		for check, says := range map[string]string{
			"unknown": "no matches for kind", "nowhere": "not found", "homeless": "it is namespaced, but no namespace is provided",
		} {
			Eventually(s.checkSays(check, nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
			Expect(s.message(check, nhcv1.DisabledCondition)()).To(And(HavePrefix(`Remediation template not found: "`), ContainSubstring(says)))
			Expect(s.phase(check)()).To(And(
				HavePrefix("Disabled: NHC is disabled: RemediationTemplateNotFound: "), ContainSubstring("failed to get"), ContainSubstring(says)))
			Expect(s.allowed(check)()).To(Equal("False/HealthCheckDisabled"))
			Eventually(s.events(check, "Disabled")).Should(ConsistOf(HavePrefix(
				"Warning [remediation] Disabling NHC. Reason: RemediationTemplateNotFound, Message: Remediation template not found: ")))
		}
		Eventually(s.checkSays("check", nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Expect(s.message("check", nhcv1.DisabledCondition)()).To(Equal("No issues found, NodeHealthCheck is enabled."))
		Eventually(s.events("check", "Enabled")).Should(Equal([]string{"Normal [remediation] No issues found, NodeHealthCheck is enabled."}))

		template := reboot.object(s.namespace, "soft")
		template.SetGroupVersionKind(reboot.templates())
		s.deletes(template)
		Eventually(s.checkSays("check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.fails("w1")
		Eventually(s.listed("check")).Should(Equal([]string{"w1"}))
		Expect(s.of("w1")).To(BeEmpty())
		s.template(reboot, "soft")
		s.request("w1")
		Eventually(s.checkSays("check", nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Eventually(s.events("check", "Enabled")).Should(HaveLen(2))
	})

	inEveryMode("C60: leaves a node alone that has the exclude label with the value true, and no other", func(s *environment) {
		const label = "remediation.medik8s.io/exclude-from-remediation"
		s.check("check", s.by(s.template(reboot, "soft")))
		s.node("out", labelled(label, "true"))
		s.node("in", labelled(label, "false"))
		s.node("empty", labelled(label, ""))
		for _, name := range []string{"a", "b", "c", "d"} {
			s.node(name)
		}
		s.fails("out", "in", "empty")
		s.request("in")
		s.request("empty")
		Eventually(s.listed("check")).Should(Equal([]string{"empty: Reboot/soft", "in: Reboot/soft", "out"}))
		Expect(s.of("out")).To(BeEmpty())
		Expect(s.counts("check")()).To(Equal([]int{7, 4}), "it is unhealthy all the same")
		Eventually(s.events("check", "RemediationSkipped")).Should(ConsistOf(
			"Warning [remediation] Remediation skipped on node out: node has Exclude from Remediation label"))
		Eventually(s.events("check", "InvalidNodeLabel")).Should(ConsistOf("Warning [remediation] Node empty has exclude-from-remediation " +
			"label with empty value, label will be ignored. Set value to 'true' to exclude node from remediation"))
		s.changeNode("out", func(n *corev1.Node) { delete(n.Labels, label) })
		s.request("out")
	})

	inEveryMode("C67, W12, gap, seed 0.4, 1.5, 2.8: starts nothing while it is paused, and still cleans up and counts", func(s *environment) {
		s.workers(5)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		req := s.request("w1")
		s.change("check", pausedBy("one", "two"))
		Eventually(s.phase("check")).Should(Equal("Paused: NHC is paused: one,two"))
		s.fails("w2")
		Eventually(s.counts("check")).Should(Equal([]int{5, 3}))
		Expect(s.of("w2")).To(BeEmpty())
		Expect(s.isLeaving(req)()).To(BeFalse(), "what has started continues")
		Expect(s.allowed("check")()).To(Equal("False/PauseRequested"))
		Eventually(s.events("check", "RemediationSkipped")).Should(ConsistOf(
			"Normal [remediation] Postponing potential remediations because of pause requests"))

		s.recovers("w1")
		Eventually(s.isGone(req)).Should(BeTrue())
		Eventually(s.leases).ShouldNot(HaveKey("w1"))
		Eventually(s.counts("check")).Should(Equal([]int{5, 4}))
		s.change("check", pausedBy())
		s.request("w2")
		Eventually(s.allowed("check")).Should(Equal(yes))
	})

	inEveryMode("C71: waits for its cooldown after a storm, which starts again with the next storm", func(s *environment) {
		s.workers(7)
		s.check("check", s.by(s.template(reboot, "soft")), minHealthy("4"), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.StormCooldownDuration = &metav1.Duration{Duration: 3 * time.Minute}
		})
		Eventually(s.phase("check")).Should(Equal(enabled))
		Expect(s.checkSays("check", "StormActive")()).NotTo(HavePrefix("True"))

		s.storm("check", "w1", "w2", "w3", "w4")
		Eventually(s.checkSays("check", "StormActive")).Should(Equal("True/HealthyNodeThresholdChange"))
		Expect(s.message("check", "StormActive")()).To(Equal(
			"Storm mode is activated - preventing any new remediation until the storm is over and cooldown duration expired"))
		Expect(s.checkSays("check", "StormCooldownActive")()).To(Equal("False/HealthyNodeThresholdChange"))
		Eventually(s.events("check", "StormRecoveryStarted")).Should(Equal([]string{
			"Warning [remediation] Storm recovery mode activated - delaying remediation until threshold is reached"}))
		before := s.of("w4")

		s.recovers("w1")
		Eventually(s.checkSays("check", "StormCooldownActive")).Should(Equal("True/HealthyNodeThresholdChange"))
		Expect(s.message("check", "StormCooldownActive")()).To(Equal("Storm cooldown delay started - waiting before resuming normal remediation"))
		Expect(s.allowed("check")()).To(Equal("False/StormRecovery"))
		Eventually(s.events("check", "StormRecoveryCooldownStarted")).Should(Equal([]string{
			"Warning [remediation] Storm recovery mode will exit after cooldown delay"}))
		Expect(s.of("w4")).To(HaveLen(len(before)))
		s.leaps(2 * time.Minute)
		s.settle("check")
		Expect(s.checkSays("check", "StormActive")()).To(HavePrefix("True"))

		s.fails("w1")
		Eventually(s.checkSays("check", "StormCooldownActive")).Should(HavePrefix("False"))
		s.leaps(2 * time.Minute)
		s.settle("check")
		Expect(s.allowed("check")()).To(Equal("False/TooManyUnhealthy"))
		s.recovers("w1")
		Eventually(s.checkSays("check", "StormCooldownActive")).Should(HavePrefix("True"))
		s.leaps(2 * time.Minute)
		s.settle("check")
		Expect(s.nodesRequested()()).To(BeEmpty())
		s.leaps(time.Minute)
		Eventually(s.nodesRequested()).Should(ConsistOf("w2", "w3", "w4"))
		Eventually(s.checkSays("check", "StormActive")).Should(HavePrefix("False"))
		Expect(s.message("check", "StormActive")()).To(Equal("Storm mode is deactivated, remediation can occur normally"))
		Expect(s.checkSays("check", "StormCooldownActive")()).To(HavePrefix("False"))
		Expect(s.message("check", "StormCooldownActive")()).To(Equal("Storm cooldown completed"))
		Eventually(s.events("check", "StormRecoveryEnded")).Should(Equal([]string{
			"Normal [remediation] Storm recovery mode deactivated - normal remediation resumed"}))
	})
})

// storm makes nodes unhealthy at one moment, when all are healthy: their conditions have lasted long enough only when the check has
// observed all of them.
func (e *environment) storm(check string, names ...string) {
	GinkgoHelper()
	observed := e.counts(check)()[0]
	for _, name := range names {
		e.reports(name, corev1.NodeReady, corev1.ConditionUnknown)
	}
	Eventually(e.counts(check)).Should(Equal([]int{observed, observed - len(names)}))
	e.leaps(patience)
}

// Here are those that need a controller. The rows of nodehealthcheck and decide/escalation that begin with their ids show the others, and
// the tests of nodehealthcheck, of its admission and of the docs those that are about these.
var _ = Describe("Unlike medik8s', a check", func() {
	inEveryMode("W8, seed 0.24: forgets a node that is gone together with its request, once a replacement has joined", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(deletion, "delete")))
		s.fails("w1")
		req := s.request("w1")
		Eventually(s.phase("check")).Should(Equal(remediating))
		s.says(req, "PermanentNodeDeletionExpected", metav1.ConditionTrue)
		s.loses("w1")
		s.settle("check")
		Expect(s.isGone(req)()).To(BeFalse())
		s.deletes(req)
		Eventually(s.phase("check")).Should(Equal(enabled))
		Eventually(s.leases).ShouldNot(HaveKey("w1"))
		Expect(s.listed("check")()).To(Equal([]string{"w1"}))
		s.leaps(time.Second)
		s.node("w4")
		Eventually(s.listed("check")).Should(BeEmpty())
		Expect(s.of("w1")).To(BeEmpty())
	})
})
