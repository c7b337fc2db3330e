package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// patience is the timeout of the check in the spec below.
const patience = 30 * time.Second

var _ = Describe("A worker whose node recovers while its Cluster is paused", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) {
		shared.pause(ctx, false)
		shared.leaveAsFound(ctx)
	})

	// Core leaves the Machine's conditions as they were before the pause, and refreshes them only after it has written Paused=False.
	It("is not remediated when the pause ends, because of an older copy of its node's condition", func(ctx SpecContext) {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{
			Namespace: shared.namespace, Name: "node-ready", Annotations: map[string]string{clusterv1.PausedAnnotation: mendv1.Claim},
		}}
		check.Spec.ClusterName = shared.cluster.Name
		check.Spec.Selector.MatchLabels = map[string]string{"nodepool": "nodepool-0"}
		check.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{{
			Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(patience.Seconds())),
		}}
		Expect(builders.Apply(ctx, here, check)).To(Succeed())
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		before, lost := shared.identities(ctx), shared.workerNames(ctx)[0]

		shared.fallSilent(lost)
		Eventually(shared.saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("Unknown/"))
		shared.pause(ctx, true)
		Eventually(shared.saidOf(ctx, lost, clusterv1.PausedCondition)).Should(HavePrefix("True/"))
		shared.kubelet(lost).Start()
		Eventually(func() corev1.ConditionStatus { return suite.Ready(ctx, shared.there, lost) }).Should(Equal(corev1.ConditionTrue))
		Eventually(shared.overdue(ctx, lost)).Should(BeTrue(), "what core says of the node would be due by now")
		Expect(shared.saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)()).To(HavePrefix("Unknown/"), "core says nothing in a pause")

		shared.pause(ctx, false)
		Eventually(shared.saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("True/"))
		Eventually(shared.counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Consistently(shared.untouched(ctx, before)).Should(Succeed())
		Expect(shared.events(ctx, check, lost, mendv1.EventMachineMarkedUnhealthy)()).To(BeZero())
	}, SpecTimeout(specPatience))
})

// pause sets or clears spec.paused of the Cluster.
func (env *environment) pause(ctx context.Context, paused bool) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(env.cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(paused)
	Expect(here.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// overdue says whether what Cluster API says of a machine's node has been so for longer than the check of the spec waits.
func (env *environment) overdue(ctx context.Context, machine string) func() bool {
	return func() bool {
		c := conditions.Get(env.machines(ctx)[machine], clusterv1.MachineNodeReadyCondition)
		return c != nil && time.Since(c.LastTransitionTime.Time) > patience
	}
}
