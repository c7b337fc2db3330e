package capi

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/rig"
)

// program is one of the managers that an outage takes away.
type program string

const (
	core     program = "core"
	provider program = "the control-plane provider"
	ours     program = "kubemend"
)

// stop kills a manager, as a crash would.
func (p program) stop() {
	GinkgoHelper()
	switch p {
	case ours:
		manager.Kill()
	case core:
		Expect(management.StopProvider(rig.Core)).To(Succeed())
	case provider:
		Expect(management.StopProvider(rig.KubeadmControlPlane)).To(Succeed())
	}
}

func (p program) start(ctx context.Context) {
	GinkgoHelper()
	switch p {
	case ours:
		startManager(ctx)
	case core:
		Expect(management.StartProvider(ctx, rig.Core)).To(Succeed())
	case provider:
		Expect(management.StartProvider(ctx, rig.KubeadmControlPlane)).To(Succeed())
	}
}

// An outage of two timeouts, during which a worker and a control-plane machine go bad and recover.
var _ = Describe("A node that went bad and recovered", func() {
	BeforeEach(func(ctx SpecContext) {
		shared.allHealthy(ctx)
		shared.check(ctx, controlPlane)
		shared.check(ctx, worker)
	})
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	DescribeTable("is not replaced", func(ctx SpecContext, stopped []program, orders ...[]program) {
		for _, order := range orders {
			before := shared.identities(ctx)
			bad := []string{shared.names(ctx, controlPlane)[0], shared.names(ctx, worker)[0]}
			for _, p := range stopped {
				p.stop()
			}
			for _, name := range bad {
				shared.turn(ctx, name, corev1.ConditionFalse)
			}
			<-time.After(2 * patience) // that nothing happens is no event that could be waited for
			for _, name := range bad {
				shared.turn(ctx, name, corev1.ConditionTrue)
			}
			for _, p := range order {
				p.start(ctx)
			}
			Consistently(shared.sameMachines(ctx, before)).Should(Succeed())
			Eventually(shared.untouched(ctx, before)).Should(Succeed(), "started in the order %v", order)
			for _, name := range bad {
				Expect(conditions.IsTrue(shared.machines(ctx)[name], clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue(), name)
			}
		}
	},
		Entry("while kubemend was stopped", SpecTimeout(specPatience), []program{ours}, []program{ours}),
		Entry("while core, the control-plane provider and kubemend were stopped, in whatever order they start", SpecTimeout(specPatience),
			[]program{core, provider, ours}, []program{core, provider, ours}, []program{ours, provider, core}, []program{provider, ours, core}),
	)

	It("is not replaced by owners that start after kubemend took its verdict back", func(ctx SpecContext) {
		before := shared.identities(ctx)
		bad := []string{shared.names(ctx, controlPlane)[0], shared.names(ctx, worker)[0]}
		core.stop()
		provider.stop()
		for _, name := range bad {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}
		for _, name := range bad {
			Eventually(shared.said(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(Equal("False/UnhealthyNode"))
			shared.turn(ctx, name, corev1.ConditionTrue)
			Eventually(shared.said(ctx, name, clusterv1.MachineHealthCheckSucceededCondition)).Should(HavePrefix("True/"))
		}
		provider.start(ctx)
		core.start(ctx)
		Consistently(shared.sameMachines(ctx, before)).Should(Succeed())
		Eventually(shared.untouched(ctx, before)).Should(Succeed())
	}, SpecTimeout(specPatience))
})

// sameMachines checks that no machine was made, and that none is being deleted.
func (env *environment) sameMachines(ctx context.Context, before any) func(Gomega) {
	return func(g Gomega) {
		g.Expect(env.identities(ctx)).To(Equal(before))
		for name, m := range env.machines(ctx) {
			g.Expect(m.DeletionTimestamp).To(BeNil(), name)
		}
	}
}

var _ = Describe("Nodes that recovered while their cluster was paused", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) {
		shared.pause(ctx, false)
		shared.leaveAsFound(ctx)
	})

	It("are healthy after the pause, whatever conditions their Machines still have", func(ctx SpecContext) {
		long := func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: clusterv1.MachineNodeReadyCondition, Status: "False", TimeoutSeconds: ptr.To(int32(pausedPatience / time.Second))},
			}
			for i := range c.Spec.Checks.UnhealthyNodeConditions {
				c.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To(int32(pausedPatience / time.Second))
			}
		}
		shared.check(ctx, controlPlane, long)
		shared.check(ctx, worker, long)
		before := shared.identities(ctx)
		bad := []string{shared.names(ctx, controlPlane)[0], shared.names(ctx, worker)[0]}
		for _, name := range bad {
			shared.turn(ctx, name, corev1.ConditionFalse)
		}
		for _, name := range bad {
			Eventually(shared.said(ctx, name, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("False/"))
		}

		shared.pause(ctx, true)
		for _, name := range bad {
			Eventually(shared.said(ctx, name, clusterv1.PausedCondition)).Should(HavePrefix("True/"))
			shared.turn(ctx, name, corev1.ConditionTrue)
		}
		for _, name := range bad {
			Eventually(func() bool {
				c := conditions.Get(shared.machines(ctx)[name], clusterv1.MachineNodeReadyCondition)
				return c.Status == "False" && time.Since(c.LastTransitionTime.Time) > pausedPatience
			}).Should(BeTrue(), "what Cluster API says of the node would be due")
		}

		shared.pause(ctx, false)
		Consistently(shared.untouched(ctx, before), "10s").Should(Succeed())
		for _, name := range bad {
			Eventually(shared.said(ctx, name, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("True/"))
		}
		Expect(shared.identities(ctx)).To(Equal(before))
	}, SpecTimeout(specPatience))
})

// pausedPatience is longer than it takes to pause a cluster after its nodes went bad.
const pausedPatience = 40 * time.Second

// pause sets or clears spec.paused of the Cluster.
func (env *environment) pause(ctx context.Context, paused bool) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(env.cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(paused)
	Expect(here.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}
