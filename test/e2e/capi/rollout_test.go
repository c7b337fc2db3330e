package capi

import (
	"context"
	"fmt"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/rig"
)

var _ = Describe("A rolling upgrade of the cluster", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	It("replaces all machines without a false verdict on one that goes or comes", func(ctx SpecContext) {
		shared.check(ctx, controlPlane)
		shared.check(ctx, worker)
		before, verdicts := shared.identities(ctx), shared.verdicts(ctx)

		shared.topology(ctx, func(t *clusterv1.Topology) { t.Version = "v1.35.1" })

		Eventually(func(g Gomega) {
			for name, m := range shared.machines(ctx) {
				g.Expect(m.Spec.Version).To(Equal("v1.35.1"), name)
				g.Expect(before).NotTo(HaveKey(name))
			}
		}).WithContext(ctx).WithTimeout(specPatience).Should(Succeed())
		shared.allHealthy(ctx)
		Expect(verdicts()).To(BeEmpty())
	}, SpecTimeout(specPatience))
})

// Last: its cluster comes up beside the other specs.
var _ = Describe("A control plane of one machine", SpecPriority(-1), func() {
	It("is left after scaling down without a false verdict, and its machine is not replaced, which explain says", func(ctx SpecContext) {
		shrinks.allHealthy(ctx)
		DeferCleanup(shrinks.remove)
		shrinks.check(ctx, controlPlane)
		shrinks.check(ctx, worker)
		verdicts := shrinks.verdicts(ctx)

		By("scaling down")
		shrinks.scale(ctx, 1, 1)
		shrinks.allHealthy(ctx)
		Expect(verdicts()).To(BeEmpty())

		By("losing the last one")
		last := shrinks.names(ctx, controlPlane)[0]
		before := shrinks.identities(ctx)
		shrinks.turn(ctx, last, corev1.ConditionFalse)
		Eventually(shrinks.said(ctx, last, clusterv1.MachineOwnerRemediatedCondition)).Should(Equal(refused))
		e := shrinks.explained(ctx, last)
		Expect(e.Message).To(HavePrefix("UNHEALTHY, NOT REMEDIATED: CannotBeRemediated "))
		Expect(e.Next.Manual).To(BeTrue())
		Expect(e.Next.Message).To(ContainSubstring("from replacing the machine, or replace it by hand"))
		Expect(shrinks.identities(ctx)).To(Equal(before))

		By("having it recover")
		shrinks.turn(ctx, last, corev1.ConditionTrue)
		Eventually(shrinks.untouched(ctx, before)).Should(Succeed())
		Expect(conditions.IsTrue(shrinks.machines(ctx)[last], clusterv1.MachineHealthCheckSucceededCondition)).To(BeTrue())
	}, SpecTimeout(specPatience))
})

// verdicts begins to watch the machines, and returns what there is of bad verdicts on them, and of events about them, from then on.
func (env *environment) verdicts(ctx context.Context) func() []string {
	GinkgoHelper()
	told := func() (all []string) {
		for _, reason := range []string{
			mendv1.EventMachineMarkedUnhealthy, mendv1.EventRemediationStarted, mendv1.EventRemediationRestricted, mendv1.EventRemediationFailed,
		} {
			all = append(all, env.notes(ctx, nil, reason, "")...)
		}
		return all
	}
	before := len(told())
	written := env.written(ctx)
	return func() []string {
		var bad []string
		for _, m := range written() {
			if c := conditions.Get(m, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Status == "False" {
				bad = append(bad, fmt.Sprintf("%s: %s %s (deleting: %t)", m.Name, c.Reason, c.Message, !m.DeletionTimestamp.IsZero()))
			}
		}
		return append(bad, told()[before:]...)
	}
}

// written begins to follow the machines, and returns what they were after each write from then on, the oldest first: who only reads them
// now and then misses what lasts for a moment.
func (env *environment) written(ctx context.Context) func() []*clusterv1.Machine {
	GinkgoHelper()
	changes, err := rig.Follow(ctx, here, &clusterv1.MachineList{}, client.InNamespace(env.namespace))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(changes.Stop)
	var mu sync.Mutex
	var all []*clusterv1.Machine
	go func() {
		for e := range changes.ResultChan() {
			if m, is := e.Object.(*clusterv1.Machine); is {
				mu.Lock()
				all = append(all, m)
				mu.Unlock()
			}
		}
	}()
	return func() []*clusterv1.Machine {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
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
