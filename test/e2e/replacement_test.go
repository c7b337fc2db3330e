package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("A worker whose kubelet falls silent", func() {
	BeforeEach(func(ctx SpecContext) { allWell(ctx) })
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("is replaced by its MachineSet, while Cluster API's own controller stands back", func(ctx SpecContext) {
		check := applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(said(ctx, check.Name, clusterv1.PausedCondition)).Should(Equal("True/Paused"))
		before := identities(ctx)
		lost := workerNames(ctx)[0]

		fallSilent(lost)

		Eventually(events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		replaced(ctx, before, lost)
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		allWell(ctx)
		Expect(events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		Expect(events(ctx, check, check.Name, mendv1.EventRemediationStarted)()).To(Equal(1))
		Expect(writers(getCheck(ctx, check.Name))["capi-core"]).To(MatchJSON(
			`{"f:status":{".":{},"f:conditions":{".":{},"k:{\"type\":\"Paused\"}":{".":{},` +
				`"f:lastTransitionTime":{},"f:message":{},"f:observedGeneration":{},"f:reason":{},"f:status":{},"f:type":{}}}}}`))
	}, SpecTimeout(specPatience))
})

var _ = Describe("Three workers of five whose kubelets fall silent", func() {
	BeforeEach(func(ctx SpecContext) { allWell(ctx) })
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("are not replaced, since that is more than 40%, and are judged again when they are back", func(ctx SpecContext) {
		check := applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before := identities(ctx)
		lost := workerNames(ctx)[:3]

		fallSilent(lost...)

		for _, name := range lost {
			Eventually(saidOf(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/UnhealthyNode"))
		}
		Eventually(message(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(And(
			HavePrefix("Remediation is not allowed, the number of not started or unhealthy machines exceeds maxUnhealthy "+
				"(total: 5, unhealthy: 3, maxUnhealthy: 40%)"),
			ContainSubstring("3 of 5 targets are not healthy: 3 unhealthy"), HaveSuffix("40% of 5 allows 2")))
		Expect(said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)()).To(Equal("False/TooManyUnhealthy"))
		Expect(counts(ctx, check.Name)()).To(Equal("2 of 5"))
		Eventually(events(ctx, check, check.Name, mendv1.EventRemediationRestricted)).Should(Equal(1))
		Consistently(untouched(ctx, before)).Should(Succeed())
		Expect(events(ctx, check, check.Name, mendv1.EventRemediationRestricted)()).To(Equal(1), "once, not at every pass")

		for _, name := range lost {
			kubelet(name).Start()
		}

		Eventually(said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("True/RemediationAllowed"))
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(events(ctx, check, check.Name, mendv1.EventRemediationAllowed)).Should(Equal(1))
	}, SpecTimeout(specPatience))
})
