package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"

	"github.com/kubemend/kubemend/test/builders"
)

var _ = Describe("Judging", func() {
	It("writes only that a machine is healthy, in v1beta1 and v1beta2", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")

		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 1, 1}))
		Expect(s.getCheck(ctx, "check").Status.Targets).To(Equal([]string{"a"}))
		Expect(s.allowed(ctx, "check")()).To(Equal("True/RemediationAllowed"))
	})

	It("requests owner remediation of a machine whose node is silent, in the words that owners expect", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))

		s.fallsSilent(ctx, "a")

		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		m := s.get(ctx, "a")
		Expect(flavours(m, "HealthCheckSucceeded")).To(Equal(silent))
		Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Health check failed:\n  * Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		Expect(conditions.GetMessage(m, "OwnerRemediated")).To(Equal("Waiting for remediation"))
		// The very functions by which MachineSet and KubeadmControlPlane find such machines.
		Expect(collections.IsUnhealthyAndOwnerRemediated(m)).To(BeTrue())
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 0, 0}))
	})

	It("marks a machine whose node was deleted unhealthy at once", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))

		s.losesNode(ctx, "a")

		Eventually(s.health(ctx, "a")).Should(Equal("False/NodeDeleted False/NodeNotFound"))
		m := s.get(ctx, "a")
		Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal("Health check failed:\n  * Node " + s.node("a") + " has been deleted"))
		Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(BeEmpty())
	})

	It("marks a machine whose node never joined unhealthy after the start-up timeout", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.machine(ctx, "a")
		s.check(ctx, "check", builders.StartsWithin(2*time.Second))

		Eventually(s.health(ctx, "a")).Should(Equal("False/NodeStartupTimeout False/NodeStartupTimeout"))
		Expect(conditions.GetMessage(s.get(ctx, "a"), "HealthCheckSucceeded")).To(Equal("Health check failed:\n  * Node failed to report startup in 2s"))
	})

	It("waits for a node without limit if the start-up timeout is 0", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.machine(ctx, "a")
		s.check(ctx, "check", builders.StartsWithin(0))

		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 0, 0}))
		Consistently(s.health(ctx, "a")).Should(Equal(nothing))
	})

	It("judges by conditions of the Machine, and names them before those of the node", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a", func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, condition("GPUHealthy", metav1.ConditionFalse, long))
		})
		s.fallsSilent(ctx, "a")
		s.check(ctx, "check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](60)},
			}
		})

		Eventually(s.health(ctx, "a")).Should(Equal("False/UnhealthyMachine False/UnhealthyMachine"))
		// The machine's own condition counts before the workload cluster is even connected.
		Eventually(func() string { return conditions.GetMessage(s.get(ctx, "a"), "HealthCheckSucceeded") }).Should(Equal("Health check failed:\n" +
			"  * Condition GPUHealthy on Machine is reporting status False with reason Test for more than 1m0s\n" +
			"  * Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
	})

	It("remediates a machine that a user marked, and names the mark alone", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))

		s.change(ctx, "a", annotated(clusterv1.RemediateMachineAnnotation, ""))

		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		m := s.get(ctx, "a")
		Expect(flavours(m, "HealthCheckSucceeded")).To(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation"))
		Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal("Marked for remediation via remediate-machine annotation"))
	})

	It("names a condition of the Machine before a deleted node, and later both, in v1beta1 and v1beta2", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a", func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, condition("GPUHealthy", metav1.ConditionFalse, long))
		})
		s.losesNode(ctx, "a")
		s.check(ctx, "check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](60)},
			}
		})
		ofMachine := "Condition GPUHealthy on Machine is reporting status False with reason Test for more than 1m0s"
		ofNode := "Node " + s.node("a") + " has been deleted"

		message := func() string { return conditions.GetMessage(s.get(ctx, "a"), "HealthCheckSucceeded") }
		Eventually(message).Should(Equal("Health check failed:\n  * " + ofMachine + "\n  * " + ofNode))
		Expect(s.health(ctx, "a")()).To(Equal("False/UnhealthyMachine False/UnhealthyMachine"))
		Expect(v1beta1conditions.GetMessage(s.get(ctx, "a"), "HealthCheckSucceeded")).To(Equal(ofMachine + "; " + ofNode))
	})

	It("needs any one of several conditions, and a missing condition matches nothing", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c")
		s.nodeReports(ctx, "a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.nodeReports(ctx, "b", "KernelDeadlock", corev1.ConditionUnknown, long)
		s.check(ctx, "check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
				{Type: "KernelDeadlock", Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](0)},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](60)},
			}
		})

		Eventually(s.health(ctx, "a")).Should(Equal(silent))
		Eventually(s.health(ctx, "b")).Should(Equal(well), "another status is another matter")
		Eventually(s.health(ctx, "c")).Should(Equal(well))
		Expect(conditions.GetMessage(s.get(ctx, "a"), "HealthCheckSucceeded")).To(Equal(
			"Health check failed:\n  * Condition DiskPressure on Node is reporting status True with reason Test for more than 1m0s"))

		s.nodeReports(ctx, "c", "KernelDeadlock", corev1.ConditionTrue, 0)
		Eventually(s.health(ctx, "c")).Should(Equal(silent), "no patience is no wait")
	})
})
