package machines

import (
	"testing"

	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// atMost lets a check remediate while no more than that are not healthy: a number or a percentage.
func atMost(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
}

// between lets a check remediate while the number of those not healthy is in the range.
func between(limits string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) { c.Spec.Remediation.TriggerIf.UnhealthyInRange = limits }
}

// lenient makes silent machines of a check pending, strict makes all of them unhealthy: in one reconcile, when all of them are in the cache.
func lenient(c *clusterv1.MachineHealthCheck) { silentFor(c, 2*long) }

func strict(c *clusterv1.MachineHealthCheck) { silentFor(c, long/2) }

func silentFor(c *clusterv1.MachineHealthCheck, patience time.Duration) {
	for i := range c.Spec.Checks.UnhealthyNodeConditions {
		c.Spec.Checks.UnhealthyNodeConditions[i].TimeoutSeconds = ptr.To(int32(patience / time.Second))
	}
}

const (
	remediates = "True/RemediationAllowed"
	restricted = "False/TooManyUnhealthy"
)

func TestCountingCountsPendingStartingAndDeletedMachinesAsNotHealthy(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("well", "pending", "going")
		s.machine("starting")
		s.nodeReports("pending", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.isDeleted("going")
		s.check("check", atMost("2"))

		s.Eventually(s.allowed("check")).Should(Equal(restricted))
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 1, 0}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"going", "pending", "starting", "well"}))
		s.Expect(s.message("check", "RemediationAllowed")()).To(Equal(
			"Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo (total: 4, unhealthy: 0, unhealthyLessThanOrEqualTo: 2). " +
				"3 of 4 targets are not healthy: 0 unhealthy, 1 pending, 1 starting, 1 being deleted, 0 unknown; 2 of 4 allows 2"))
	})
}

func TestCountingRoundsAPercentageDownMarksMachinesWhileShortCircuitedAndResumesAfterwards(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c", "d", "e", "f")
		s.check("check", atMost("40%"))
		s.Eventually(s.counts("check")).Should(Equal([]int32{6, 6, 2}), "40% of 6 is 2")

		s.fallsSilent("a", "b")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
		s.Eventually(s.counts("check")).Should(Equal([]int32{6, 4, 0}))
		s.Expect(s.allowed("check")()).To(Equal(remediates))

		s.fallsSilent("c")
		s.Eventually(s.health("c")).Should(Equal(silent))
		s.Eventually(s.allowed("check")).Should(Equal(restricted))
		s.Expect(s.counts("check")()).To(Equal([]int32{6, 3, 0}))
		s.Expect(s.message("check", "RemediationAllowed")()).To(HaveSuffix(
			"(total: 6, unhealthy: 3, unhealthyLessThanOrEqualTo: 40%). 3 of 6 targets are not healthy: " +
				"3 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; 40% of 6 allows 2"))
		before := v1beta1conditions.Get(s.getCheck("check"), clusterv1.RemediationAllowedV1Beta1Condition)
		s.Expect(before.Status).To(Equal(corev1.ConditionFalse))
		s.Expect(before.Severity).To(Equal(clusterv1.ConditionSeverityWarning))
		s.Expect(before.Message).To(Equal(s.message("check", "RemediationAllowed")()))
		s.Expect(s.owner("c")()).To(Equal(nothing), "restricted")
		s.Expect(s.owner("a")()).To(Equal(ownerRequested), "what has started continues")

		s.comesBack("a")
		s.Eventually(s.owner("c")).Should(Equal(ownerRequested))
		s.Eventually(s.allowed("check")).Should(Equal(remediates))
		s.Expect(s.counts("check")()).To(Equal([]int32{6, 4, 0}))
	})
}

func TestCountingAllowsBothEndsOfARangeAndNothingBelowOrAbove(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c", "d")
		s.check("check", between("[2-3]"), atMost("0"))
		s.Eventually(s.allowed("check")).Should(Equal(restricted))

		s.fallsSilent("a")
		s.Eventually(s.message("check", "RemediationAllowed")).Should(Equal(
			"Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range " +
				"(total: 4, unhealthy: 1, unhealthyInRange: [2-3]). 1 of 4 targets are not healthy: " +
				"1 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; the range allows 2 to 3"))
		s.Expect(s.owner("a")()).To(Equal(nothing))

		s.fallsSilent("b")
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 2, 1}), "the range goes before the number")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))

		s.fallsSilent("c")
		s.Eventually(s.owner("c")).Should(Equal(ownerRequested))
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 1, 0}))
		s.Expect(s.allowed("check")()).To(Equal(remediates))

		s.fallsSilent("d")
		s.Eventually(s.health("d")).Should(Equal(silent))
		s.Eventually(s.allowed("check")).Should(Equal(restricted))
		s.Expect(s.owner("d")()).To(Equal(nothing))
	})
}

func TestCountingAllowsRemediationWhenNoMachineIsSelectedUnlessARangeDemandsUnhealthyOnes(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		elsewhere := func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "elsewhere"}}
		}
		s.check("none", elsewhere)
		s.check("range", elsewhere, between("[1-3]"))

		s.Eventually(s.counts("none")).Should(Equal([]int32{0, 0, 0}))
		s.Expect(s.allowed("none")()).To(Equal(remediates))
		s.Eventually(s.allowed("range")).Should(Equal(restricted))
	})
}

func TestCountingSelectsNothingWithAnEmptySelector(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 1, 1}))

		emptied := []byte(`{"spec":{"selector":{"matchLabels":null}}}`) // the typed client cannot say this
		s.Expect(s.here.Patch(s.ctx, s.getCheck("check"), client.RawPatch(types.MergePatchType, emptied))).To(Succeed())

		s.Eventually(s.counts("check")).Should(Equal([]int32{0, 0, 0}))
		s.Expect(s.getCheck("check").Status.Targets).To(BeEmpty())
	})
}

func TestCountingExcludesMachinesWithASkipOrPauseAnnotationFromTheTotalToo(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c", "d")
		s.check("check", atMost("50%"), lenient)
		s.fallsSilent("b", "c", "d")
		s.Eventually(s.counts("check")).Should(Equal([]int32{4, 1, 0}))
		s.changeCheck("check", strict)
		s.Eventually(s.health("d")).Should(Equal(silent))
		s.Eventually(s.allowed("check")).Should(Equal(restricted), "3 of 4, and 2 are allowed")
		s.Expect(s.owner("b")()).To(Equal(nothing))

		s.change("c", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		s.Eventually(s.message("check", "RemediationAllowed")).Should(HaveSuffix("50% of 3 allows 1"))
		s.Eventually(s.health("c")).Should(Equal(nothing), "its conditions are removed")

		s.change("d", annotated(clusterv1.PausedAnnotation, "anything"))
		s.Eventually(s.owner("b")).Should(Equal(ownerRequested), "1 of 2, and 1 is allowed")
		s.Eventually(s.counts("check")).Should(Equal([]int32{2, 1, 0}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"a", "b"}))
		s.Eventually(s.health("d")).Should(Equal(nothing))
		s.Expect(s.owner("c")()).To(Equal(nothing))

		s.change("d", without(clusterv1.PausedAnnotation))
		s.Eventually(s.health("d")).Should(Equal(silent))
	})
}

func TestCountingSelectsOnlyMachinesOfItsOwnClusterAndNamespace(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.environment(s.cluster.Namespace, "c2").worker("b")
		s.newEnvironment().worker("c")
		s.check("check")

		s.Eventually(s.counts("check")).Should(Equal([]int32{1, 1, 1}))
		s.Expect(s.getCheck("check").Status.Targets).To(Equal([]string{"a"}))
		c := s.getCheck("check")
		s.Expect(c.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
		s.Expect(c.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: s.cluster.UID,
		}}))
		s.Eventually(func() int64 { return s.getCheck("check").Status.ObservedGeneration }).Should(Equal(c.Generation))
	})
}
