package machines

import (
	"testing"

	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// atMost lets a check remediate while no more than that are not healthy: a number or a percentage.
func atMost(limit string) func(*clusterv1.MachineHealthCheck) {
	return func(c *clusterv1.MachineHealthCheck) {
		c.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo = ptr.To(intstr.Parse(limit))
	}
}

// lenient makes silent machines of a check pending, strict makes all of them unhealthy: in one reconcile, when all of them are in the
// cache.
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
