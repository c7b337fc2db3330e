package capi

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("A machine whose node stops being ready", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("is replaced by its MachineDeployment if it is a worker, and no other one is", func(ctx SpecContext) {
		check := shared.check(ctx, worker)
		before, lost := shared.identities(ctx), shared.names(ctx, worker)[0]

		shared.turn(ctx, lost, corev1.ConditionFalse)

		shared.replaced(ctx, before, lost)
		shared.toldOnce(ctx, check, lost)
	}, SpecTimeout(specPatience))

	It("is replaced by its KubeadmControlPlane if it is of the control plane, and its etcd member is removed", func(ctx SpecContext) {
		check := shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[0]
		Expect(shared.members(ctx)).To(ContainElement(lost))

		written := shared.written(ctx)
		shared.turn(ctx, lost, corev1.ConditionFalse)

		said := func(kind string) (all []string) {
			for _, m := range written() {
				if m.Name == lost {
					all = append(all, saidOf(m, kind))
				}
			}
			return all
		}
		Eventually(said).WithArguments(clusterv1.MachineOwnerRemediatedCondition).Should(
			ContainElement("False/" + controlplanev1.KubeadmControlPlaneMachineRemediationMachineDeletingReason))
		verdicts := said(clusterv1.MachineHealthCheckSucceededCondition)
		Expect(verdicts[slices.Index(verdicts, "False/UnhealthyNode"):]).To(HaveEach("False/UnhealthyNode"), "why it is replaced, not that its node goes with it")
		shared.replaced(ctx, before, lost)
		Expect(shared.members(ctx)).To(HaveLen(3))
		Expect(shared.members(ctx)).NotTo(ContainElement(lost))
		shared.toldOnce(ctx, check, lost)
	}, SpecTimeout(specPatience))
})

var _ = Describe("Two machines of the control plane whose nodes stop being ready together", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("are replaced one after the other, since the KubeadmControlPlane puts off the second", func(ctx SpecContext) {
		check := shared.check(ctx, controlPlane)
		before, lost := shared.identities(ctx), shared.names(ctx, controlPlane)[:2]

		for _, name := range lost {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}

		By("waiting for the second to be put off")
		Eventually(func(g Gomega) {
			i := slices.IndexFunc(lost, func(name string) bool {
				return shared.said(ctx, name, clusterv1.MachineOwnerRemediatedCondition)() == "False/"+controlplanev1.KubeadmControlPlaneMachineRemediationDeferredReason
			})
			g.Expect(i).NotTo(Equal(-1), "none is put off")
			e := shared.explained(ctx, lost[i])
			g.Expect(e.Message).To(HavePrefix("UNHEALTHY, PUT OFF BY ITS OWNER: RemediationDeferred "))
			g.Expect(e.Next.Message).To(HavePrefix("KubeadmControlPlane " + shared.owner(ctx).Name + " tries again by itself"))
			g.Expect(e.Next.Manual).To(BeFalse())
		}).Should(Succeed())

		By("waiting until both are replaced")
		Eventually(func(g Gomega) {
			Expect(shared.deleting(ctx)).To(BeNumerically("<=", 1), "never two at once")
			g.Expect(shared.identities(ctx)).NotTo(Or(HaveKey(lost[0]), HaveKey(lost[1])))
		}).Should(Succeed())
		shared.replaced(ctx, before, lost...)
		for _, name := range lost {
			shared.toldOnce(ctx, check, name)
		}
	}, SpecTimeout(specPatience))
})

// toldOnce expects of a check one event of the verdict and one of the remediation, each under the name of the machine.
func (env *environment) toldOnce(ctx context.Context, check *clusterv1.MachineHealthCheck, machine string) {
	GinkgoHelper()
	for _, reason := range []string{mendv1.EventMachineMarkedUnhealthy, mendv1.EventRemediationStarted} {
		Eventually(func() int { return about(env.eventsOf(ctx, check, reason), machine) }).Should(Equal(1), reason)
	}
}

// deleting is how many machines of the control plane are being deleted.
func (env *environment) deleting(ctx context.Context) int {
	GinkgoHelper()
	number := 0
	for _, m := range env.machines(ctx) {
		if _, is := m.Labels[clusterv1.MachineControlPlaneLabel]; is && !m.DeletionTimestamp.IsZero() {
			number++
		}
	}
	return number
}
