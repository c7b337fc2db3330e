package capi

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("A rolling upgrade of the cluster", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("replaces all machines without a false verdict on one that goes or comes", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		shared.check(ctx, worker)
		before, began := shared.identities(ctx), time.Now()

		shared.topology(ctx, func(t *clusterv1.Topology) { t.Version = "v1.35.1" })

		Eventually(func(g Gomega) {
			for name, m := range shared.machines(ctx) {
				g.Expect(m.Spec.Version).To(Equal("v1.35.1"), name)
				g.Expect(before).NotTo(HaveKey(name))
			}
		}).WithContext(ctx).WithTimeout(specPatience).Should(Succeed())
		shared.allHealthy(ctx)
		Expect(shared.verdicts(began, "")).NotTo(ContainElement(HavePrefix("False/")))
	}, SpecTimeout(specPatience))
})

// Last: its cluster comes up beside the other specs.
var _ = Describe("A control plane of one machine", SpecPriority(-1), func() {
	It("is left after scaling down without a false verdict, and its machine is not replaced, which explain says", func(ctx SpecContext) {
		shrinks.allHealthy(ctx)
		DeferCleanup(shrinks.remove)
		shrinks.check(ctx, controlPlane)
		shrinks.check(ctx, worker)
		began := time.Now()

		By("scaling down")
		shrinks.scale(ctx, 1, 1)
		shrinks.allHealthy(ctx)
		Expect(shrinks.verdicts(began, "")).NotTo(ContainElement(HavePrefix("False/")))

		By("losing the last one")
		last := shrinks.names(ctx, controlPlane)[0]
		before := shrinks.identities(ctx)
		shrinks.turn(ctx, last, corev1.ConditionFalse)
		Eventually(shrinks.said(ctx, last, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e := shrinks.explained(ctx, last)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Next.Manual).To(BeTrue())
		Expect(e.Next.Text).To(ContainSubstring("from replacing the machine, or replace it by hand"))
		Expect(shrinks.identities(ctx)).To(Equal(before))

		By("having it recover")
		shrinks.turn(ctx, last, corev1.ConditionTrue)
		Eventually(shrinks.untouched(ctx, before)).Should(Succeed())
		Expect(conditions.IsTrue(shrinks.machines(ctx)[last], clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue())
	}, SpecTimeout(specPatience))
})

// verdicts are what kubemend has written of the health of a machine since a moment, or of all machines if it has no name, as
// "Status/Reason".
func (env *environment) verdicts(since time.Time, machine string) (said []string) {
	GinkgoHelper()
	for _, write := range suite.Writes(management, since, "machines") {
		if write.ObjectRef.Namespace != env.namespace || machine != "" && machine != write.ObjectRef.Name {
			continue
		}
		m := &clusterv1.Machine{}
		Expect(json.Unmarshal(write.RequestObject.Raw, m)).To(Succeed())
		if conditions.Has(m, clusterv1.MachineHealthCheckSucceededCondition) {
			said = append(said, saidOf(m, clusterv1.MachineHealthCheckSucceededCondition))
		}
	}
	return said
}

// topology changes the topology of the cluster.
func (env *environment) topology(ctx context.Context, change func(*clusterv1.Topology)) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(env.cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	change(&cluster.Spec.Topology)
	Expect(here.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// scale changes how many machines the cluster has.
func (env *environment) scale(ctx context.Context, controlPlanes, workers int32) {
	GinkgoHelper()
	env.controlPlanes, env.workers = controlPlanes, workers
	env.topology(ctx, func(t *clusterv1.Topology) {
		t.ControlPlane.Replicas = &controlPlanes
		t.Workers.MachineDeployments[0].Replicas = &workers
	})
}
