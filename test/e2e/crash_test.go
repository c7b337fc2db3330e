package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"

	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A manager that is killed and started again", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("finishes a replacement that was under way, and does nothing twice", func(ctx SpecContext) {
		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": together})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := shared.identities(ctx), shared.workerNames(ctx)[0]

		By("killing it while the machine is pending")
		shared.fallSilent(lost)
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("4 of 5"))
		Expect(suite.Ready(ctx, shared.there, lost)).To(Equal(corev1.ConditionUnknown))
		manager.Kill()
		Expect(shared.saidOf(ctx, lost, clusterv1.MachineHealthCheckSucceededCondition)()).To(Equal("True/HealthCheckSucceeded"))
		startManager(ctx)

		By("killing it when it has handed the machine over")
		Eventually(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		manager.Kill()
		startManager(ctx)

		shared.replaced(ctx, before, lost)
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		shared.allHealthy(ctx)
		shared.replaced(ctx, before, lost)
		Expect(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		Eventually(shared.said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("True/RemediationAllowed"))
	}, SpecTimeout(specPatience))

	It("keeps a short-circuit, and does not report it again", func(ctx SpecContext) {
		check := shared.applyTemplate(ctx, "machine-health-check-workers.yaml", map[string]string{"NODE_UNHEALTHY_TIMEOUT": together})
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := shared.identities(ctx), shared.workerNames(ctx)[:3]

		shared.fallSilent(lost...)
		for _, name := range lost {
			Eventually(shared.events(ctx, check, name, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
		}
		Eventually(shared.events(ctx, check, check.Name, mendv1.EventRemediationRestricted)).Should(Equal(1))
		Eventually(shared.message(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(ContainSubstring("unhealthy: 3,"))
		Eventually(shared.message(ctx, check.Name, clusterv1.PausedCondition)).Should(ContainSubstring(clusterv1.PausedAnnotation), "core has its say, in its own time")
		stored := shared.getCheck(ctx, check.Name).ResourceVersion
		manager.Kill()
		startManager(ctx)

		Eventually(suite.Metric(ctx, manager, targets, `name="`+check.Name+`"`, `state="unhealthy"`)).Should(Equal("3"))
		Consistently(func(g Gomega) {
			shared.untouched(ctx, before)(g)
			g.Expect(shared.getCheck(ctx, check.Name).ResourceVersion).To(Equal(stored), "a steady state causes no writes, not even after a start")
		}).Should(Succeed())
		for _, name := range lost {
			shared.kubelet(name).Start()
		}

		Eventually(shared.said(ctx, check.Name, clusterv1.MachineHealthCheckRemediationAllowedCondition)).Should(Equal("True/RemediationAllowed"))
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Expect(shared.events(ctx, check, check.Name, mendv1.EventRemediationRestricted)()).To(Equal(1))
		for _, name := range lost {
			Expect(shared.events(ctx, check, name, mendv1.EventMachineMarkedUnhealthy)()).To(Equal(1))
		}
	}, SpecTimeout(specPatience))
})
