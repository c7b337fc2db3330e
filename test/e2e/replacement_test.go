package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// onlyPaused are the managed fields of a client that wrote this condition, and nothing else.
const onlyPaused = `{"f:status": {"f:conditions": {"k:{\"type\":\"Paused\"}": {
	"f:type": {}, "f:status": {}, "f:reason": {}, "f:message": {}, "f:lastTransitionTime": {}, "f:observedGeneration": {}}}}}`

var _ = Describe("A worker whose kubelet falls silent", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("is replaced by its MachineSet, while Cluster API's own controller skips the check", func(ctx SpecContext) {
		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(shared.said(ctx, check.Name, clusterv1.PausedCondition)).Should(Equal("True/Paused"))
		before := shared.identities(ctx)
		lost := shared.workerNames(ctx)[0]

		shared.fallSilent(lost)

		Eventually(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		shared.replaced(ctx, before, lost)
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		shared.allHealthy(ctx)
		Expect(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		Eventually(shared.events(ctx, check, check.Name, mendv1.EventRemediationStarted)).Should(Equal(1))
		Eventually(func() string { return writers(shared.getCheck(ctx, check.Name))["capi-core"] }).Should(MatchJSON(onlyPaused))
	}, SpecTimeout(specPatience))
})

var _ = Describe("Three workers of five whose kubelets fall silent", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("are not replaced, since that is more than 40%, and are judged again when they are back", func(ctx SpecContext) {
		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": together})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before := shared.identities(ctx)
		lost := shared.workerNames(ctx)[:3]

		shared.fallSilent(lost...)

		for _, name := range lost {
			Eventually(shared.saidOf(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/UnhealthyNode"))
		}
		Eventually(shared.message(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(And(
			HavePrefix("Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo "+
				"(total: 5, unhealthy: 3, unhealthyLessThanOrEqualTo: 40%)"),
			ContainSubstring("3 of 5 targets are not healthy: 3 unhealthy"), HaveSuffix("40% of 5 allows 2")))
		Eventually(shared.said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("False/TooManyUnhealthy"))
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("2 of 5"))
		Eventually(shared.events(ctx, check, check.Name, mendv1.EventRemediationRestricted)).Should(Equal(1))
		Consistently(shared.untouched(ctx, before)).Should(Succeed())
		Expect(shared.events(ctx, check, check.Name, mendv1.EventRemediationRestricted)()).To(Equal(1), "once, not at every reconcile")

		for _, name := range lost {
			shared.kubelet(name).Start()
		}

		Eventually(shared.said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("True/RemediationAllowed"))
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(shared.events(ctx, check, check.Name, mendv1.EventRemediationAllowed)).Should(Equal(1))
	}, SpecTimeout(specPatience))
})
