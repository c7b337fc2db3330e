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
)

// patience is the timeout of the check in the spec below.
const patience = 30 * time.Second

var _ = Describe("A worker whose node recovers while its Cluster is paused", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })
	AfterEach(func(ctx SpecContext) { pause(ctx, false) })

	// Core leaves the Machine's conditions as they were before the pause, and refreshes them only after it has written Paused=False.
	It("is not remediated when the pause ends, because of an older copy of its node's condition", func(ctx SpecContext) {
		check := checked(ctx, "node-ready", builders.Claimed, func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks = clusterv1.MachineHealthCheckChecks{UnhealthyMachineConditions: []clusterv1.UnhealthyMachineCondition{{
				Type: clusterv1.MachineNodeReadyCondition, Status: metav1.ConditionUnknown, TimeoutSeconds: ptr.To(int32(patience.Seconds())),
			}}}
		})
		before, lost := identities(ctx), fixture.WorkerNames(ctx)[0]

		silence(lost)
		Eventually(saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("Unknown/"))
		pause(ctx, true)
		Eventually(saidOf(ctx, lost, clusterv1.PausedCondition)).Should(HavePrefix("True/"))
		fixture.Host(lost).Kubelet().Start()
		Eventually(func() corev1.ConditionStatus { return fixture.Ready(ctx, lost) }).Should(Equal(corev1.ConditionTrue))
		Eventually(overdue(ctx, lost)).Should(BeTrue(), "what core says of the node would be due by now")
		Expect(saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)()).To(HavePrefix("Unknown/"), "core says nothing in a pause")

		pause(ctx, false)
		Eventually(saidOf(ctx, lost, clusterv1.MachineNodeReadyCondition)).Should(HavePrefix("True/"))
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		untouched(ctx, before)
		Expect(reasons(ctx, check, lost)()).NotTo(ContainElement(mendv1.EventMachineMarkedUnhealthy))
	}, SpecTimeout(specPatience))
})

// pause sets or clears spec.paused of the Cluster.
func pause(ctx context.Context, paused bool) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(here.Get(ctx, client.ObjectKeyFromObject(fixture.Cluster), cluster)).To(Succeed())
	before := cluster.DeepCopy()
	cluster.Spec.Paused = ptr.To(paused)
	Expect(here.Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
}

// overdue says whether what Cluster API says of a machine's node has been so for longer than the check of the spec waits.
func overdue(ctx context.Context, machine string) func() bool {
	return func() bool {
		c := conditions.Get(fixture.Machine(ctx, machine), clusterv1.MachineNodeReadyCondition)
		return c != nil && time.Since(c.LastTransitionTime.Time) > patience
	}
}
