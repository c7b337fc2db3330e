package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("A manager that is killed and started again", func() {
	BeforeEach(func(ctx SpecContext) { allWell(ctx) })
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("ends a replacement that was under way, and does nothing twice", func(ctx SpecContext) {
		check := applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "6s"})
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := identities(ctx), workerNames(ctx)[0]

		By("killing it while the machine is suspect")
		fallSilent(lost)
		Eventually(counts(ctx, check.Name)).Should(Equal("4 of 5"))
		Expect(nodeReady(ctx, lost)).To(Equal(corev1.ConditionUnknown))
		manager.Kill()
		Expect(saidOf(ctx, lost, clusterv1.MachineHealthCheckSucceededCondition)()).To(Equal("True/HealthCheckSucceeded"))
		startManager(ctx)

		By("killing it when it has handed the machine over")
		Eventually(events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		manager.Kill()
		startManager(ctx)

		replaced(ctx, before, lost)
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		allWell(ctx)
		replaced(ctx, before, lost)
		Expect(events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		Expect(said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)()).To(Equal("True/RemediationAllowed"))
	}, SpecTimeout(specPatience))

	It("holds a short-circuit up, and does not announce it again", func(ctx SpecContext) {
		check := applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": "4s"})
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := identities(ctx), workerNames(ctx)[:3]

		fallSilent(lost...)
		for _, name := range lost {
			Eventually(events(ctx, check, name, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		}
		Eventually(events(ctx, check, check.Name, mendv1.EventRemediationRestricted)).Should(Equal(1))
		stored := getCheck(ctx, check.Name).Status
		manager.Kill()
		startManager(ctx)

		Eventually(metric(ctx, targets, `name="`+check.Name+`"`, `state="unhealthy"`)).Should(Equal("3"))
		Consistently(func(g Gomega) {
			untouched(ctx, before)(g)
			g.Expect(getCheck(ctx, check.Name).Status).To(Equal(stored), "a steady world causes no writes, not even after a start")
		}).Should(Succeed())
		for _, name := range lost {
			kubelet(name).Start()
		}

		Eventually(said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("True/RemediationAllowed"))
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Expect(events(ctx, check, check.Name, mendv1.EventRemediationRestricted)()).To(Equal(1))
		for _, name := range lost {
			Expect(events(ctx, check, name, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		}
	}, SpecTimeout(specPatience))
})
