package machines

import (
	"testing"

	"time"

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

func TestJudgingWritesOnlyThatAMachineIsHealthyInV1beta1AndV1beta2(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")

		s.Eventually(s.health("a")).Should(Equal(well))
		s.Expect(s.owner("a")()).To(Equal(nothing))
		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 1, 1}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"a"}))
		s.Expect(s.allowed("check")()).To(Equal("True/RemediationAllowed"))
	})
}

func TestJudgingRequestsOwnerRemediationOfAMachineWhoseNodeIsSilentInTheWordsThatOwnersExpect(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))

		s.fallsSilent("a")

		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		m := s.get("a")
		s.Expect(flavours(m, "HealthCheckSucceeded")).To(Equal(silent))
		s.Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Health check failed:\n  * Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		s.Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
		s.Expect(conditions.GetMessage(m, "OwnerRemediated")).To(Equal("Waiting for remediation"))
		// The very functions by which MachineSet and KubeadmControlPlane find such machines.
		s.Expect(collections.IsUnhealthyAndOwnerRemediated(m)).To(BeTrue())
		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 0, 0}))
	})
}

func TestJudgingMarksAMachineWhoseNodeWasDeletedUnhealthyAtOnce(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))

		s.losesNode("a")

		s.Eventually(s.health("a")).Should(Equal("False/NodeDeleted False/NodeNotFound"))
		m := s.get("a")
		s.Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal("Health check failed:\n  * Node " + s.node("a") + " has been deleted"))
		s.Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(BeEmpty())
	})
}

func TestJudgingMarksAMachineWhoseNodeNeverJoinedUnhealthyAfterTheStartUpTimeout(t *testing.T) {
	run(t, func(s *environment) {
		s.machine("a")
		s.check("check", builders.StartsWithin(2*time.Second))

		s.Eventually(s.health("a")).Should(Equal("False/NodeStartupTimeout False/NodeStartupTimeout"))
		s.Expect(conditions.GetMessage(s.get("a"), "HealthCheckSucceeded")).To(Equal("Health check failed:\n  * Node failed to report startup in 2s"))
	})
}

func TestJudgingWaitsForANodeWithoutLimitIfTheStartUpTimeoutIs0(t *testing.T) {
	run(t, func(s *environment) {
		s.machine("a")
		s.check("check", builders.StartsWithin(0))

		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 0, 0}))
		s.Consistently(s.health("a")).Should(Equal(nothing))
	})
}

func TestJudgingJudgesByConditionsOfTheMachineAndNamesThemBeforeThoseOfTheNode(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, condition("GPUHealthy", metav1.ConditionFalse, long))
		})
		s.fallsSilent("a")
		s.check("check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](60)},
			}
		})

		s.Eventually(s.health("a")).Should(Equal("False/UnhealthyMachine False/UnhealthyMachine"))
		// The machine's own condition counts before the workload cluster is even connected.
		s.Eventually(func() string { return conditions.GetMessage(s.get("a"), "HealthCheckSucceeded") }).Should(Equal("Health check failed:\n" +
			"  * Condition GPUHealthy on Machine is reporting status False with reason Test for more than 1m0s\n" +
			"  * Condition Ready on Node is reporting status Unknown with reason Test for more than 5m0s"))
	})
}

func TestJudgingRemediatesAMachineThatAUserMarkedAndNamesTheMarkAlone(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))

		s.change("a", annotated(clusterv1.RemediateMachineAnnotation, ""))

		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		m := s.get("a")
		s.Expect(flavours(m, "HealthCheckSucceeded")).To(Equal("False/HasRemediateAnnotation False/HasRemediateMachineAnnotation"))
		s.Expect(conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal(
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation"))
		s.Expect(v1beta1conditions.GetMessage(m, "HealthCheckSucceeded")).To(Equal("Marked for remediation via remediate-machine annotation"))
	})
}

func TestJudgingNamesAConditionOfTheMachineBeforeADeletedNodeAndLaterBothInV1beta1AndV1beta2(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", func(m *clusterv1.Machine) {
			m.Status.Conditions = append(m.Status.Conditions, condition("GPUHealthy", metav1.ConditionFalse, long))
		})
		s.losesNode("a")
		s.check("check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyMachineConditions = []clusterv1.UnhealthyMachineCondition{
				{Type: "GPUHealthy", Status: metav1.ConditionFalse, TimeoutSeconds: ptr.To[int32](60)},
			}
		})
		ofMachine := "Condition GPUHealthy on Machine is reporting status False with reason Test for more than 1m0s"
		ofNode := "Node " + s.node("a") + " has been deleted"

		message := func() string { return conditions.GetMessage(s.get("a"), "HealthCheckSucceeded") }
		s.Eventually(message).Should(Equal("Health check failed:\n  * " + ofMachine + "\n  * " + ofNode))
		s.Expect(s.health("a")()).To(Equal("False/UnhealthyMachine False/UnhealthyMachine"))
		s.Expect(v1beta1conditions.GetMessage(s.get("a"), "HealthCheckSucceeded")).To(Equal(ofMachine + "; " + ofNode))
	})
}

func TestJudgingNeedsAnyOneOfSeveralConditionsAndAMissingConditionMatchesNothing(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c")
		s.nodeReports("a", corev1.NodeDiskPressure, corev1.ConditionTrue, long)
		s.nodeReports("b", "KernelDeadlock", corev1.ConditionUnknown, long)
		s.check("check", func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Checks.UnhealthyNodeConditions = []clusterv1.UnhealthyNodeCondition{
				{Type: "KernelDeadlock", Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](0)},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](60)},
			}
		})

		s.Eventually(s.health("a")).Should(Equal(silent))
		s.Eventually(s.health("b")).Should(Equal(well), "another status is another matter")
		s.Eventually(s.health("c")).Should(Equal(well))
		s.Expect(conditions.GetMessage(s.get("a"), "HealthCheckSucceeded")).To(Equal(
			"Health check failed:\n  * Condition DiskPressure on Node is reporting status True with reason Test for more than 1m0s"))

		s.nodeReports("c", "KernelDeadlock", corev1.ConditionTrue, 0)
		s.Eventually(s.health("c")).Should(Equal(silent), "no patience is no wait")
	})
}
