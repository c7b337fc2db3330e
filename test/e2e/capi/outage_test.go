package capi

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
)

var _ = Describe("A node that went bad and recovered while the owners did not run", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("is not replaced by owners that start after kubemend took its verdict back", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		shared.check(ctx, worker)
		before := shared.identities(ctx)
		bad := []string{shared.names(ctx, controlPlane)[0], shared.names(ctx, worker)[0]}
		owners := []rig.Provider{rig.KubeadmControlPlane, rig.Core}
		for _, p := range owners {
			Expect(management.StopProvider(p)).To(Succeed())
		}
		for _, name := range bad {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}
		for _, name := range bad {
			Eventually(shared.said(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/UnhealthyNode"))
			shared.turn(ctx, name, corev1.ConditionTrue)
			Eventually(shared.said(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(HavePrefix("True/"))
		}
		for _, p := range owners {
			Expect(management.StartProvider(ctx, p)).To(Succeed())
		}
		By("having the owners look at their machines")
		shared.remediation(ctx, `{"maxRetry":3}`)
		DeferCleanup(func(ctx SpecContext) { shared.remediation(ctx, `null`) })
		Eventually(func(g Gomega) {
			owner := shared.owner(ctx)
			g.Expect(owner.Status.ObservedGeneration).To(Equal(owner.Generation))
		}).Should(Succeed())
		shared.scale(ctx, shared.controlPlanes, shared.workers+1)
		DeferCleanup(func(ctx SpecContext) { shared.scale(ctx, shared.controlPlanes, shared.workers-1) })
		shared.allHealthy(ctx)
		for name, m := range shared.machines(ctx) {
			if _, was := before[name]; !was {
				continue
			}
			Expect(m.UID).To(Equal(before[name]), name)
			Expect(conditions.Has(m, clusterv1.MachineOwnerRemediatedCondition)).To(BeFalse(), name)
			delete(before, name)
		}
		Expect(before).To(BeEmpty(), "none was replaced")
	}, SpecTimeout(specPatience))
})

// remediation sets spec.remediation of the control plane, and nothing else of it. The topology leaves alone what is not in the class.
func (env *environment) remediation(ctx context.Context, is string) {
	GinkgoHelper()
	Expect(here.Patch(ctx, env.owner(ctx), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"remediation":`+is+`}}`)))).To(Succeed())
}
