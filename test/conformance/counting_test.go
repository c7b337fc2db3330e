package conformance

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
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

var _ = Describe("Counting", func() {
	It("counts pending, starting and deleted machines as not healthy", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "well", "pending", "going")
		s.machine(ctx, "starting")
		s.nodeReports(ctx, "pending", corev1.NodeReady, corev1.ConditionUnknown, 0)
		s.isDeleted(ctx, "going")
		s.check(ctx, "check", atMost("2"))

		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, 1, 0}))
		Expect(s.getCheck(ctx, "check").Status.Targets).To(Equal([]string{"going", "pending", "starting", "well"}))
		Expect(s.message(ctx, "check", "RemediationAllowed")()).To(Equal(
			"Remediation is not allowed, the number of not started or unhealthy machines exceeds unhealthyLessThanOrEqualTo (total: 4, unhealthy: 0, unhealthyLessThanOrEqualTo: 2). " +
				"3 of 4 targets are not healthy: 0 unhealthy, 1 pending, 1 starting, 1 being deleted, 0 unknown; 2 of 4 allows 2"))
	})

	It("rounds a percentage down, marks machines while short-circuited, and resumes afterwards", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c", "d", "e", "f")
		s.check(ctx, "check", atMost("40%"))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{6, 6, 2}), "40% of 6 is 2")

		s.fallsSilent(ctx, "a", "b")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{6, 4, 0}))
		Expect(s.allowed(ctx, "check")()).To(Equal(remediates))

		s.fallsSilent(ctx, "c")
		Eventually(s.health(ctx, "c")).Should(Equal(silent))
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))
		Expect(s.counts(ctx, "check")()).To(Equal([]int32{6, 3, 0}))
		Expect(s.message(ctx, "check", "RemediationAllowed")()).To(HaveSuffix(
			"(total: 6, unhealthy: 3, unhealthyLessThanOrEqualTo: 40%). 3 of 6 targets are not healthy: " +
				"3 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; 40% of 6 allows 2"))
		before := v1beta1conditions.Get(s.getCheck(ctx, "check"), clusterv1.RemediationAllowedV1Beta1Condition)
		Expect(before.Status).To(Equal(corev1.ConditionFalse))
		Expect(before.Severity).To(Equal(clusterv1.ConditionSeverityWarning))
		Expect(before.Message).To(Equal(s.message(ctx, "check", "RemediationAllowed")()))
		Expect(s.owner(ctx, "c")()).To(Equal(nothing), "restricted")
		Expect(s.owner(ctx, "a")()).To(Equal(ownerRequested), "what has started continues")

		s.comesBack(ctx, "a")
		Eventually(s.owner(ctx, "c")).Should(Equal(ownerRequested))
		Eventually(s.allowed(ctx, "check")).Should(Equal(remediates))
		Expect(s.counts(ctx, "check")()).To(Equal([]int32{6, 4, 0}))
	})

	It("allows both ends of a range, and nothing below or above", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c", "d")
		s.check(ctx, "check", between("[2-3]"), atMost("0"))
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))

		s.fallsSilent(ctx, "a")
		Eventually(s.message(ctx, "check", "RemediationAllowed")).Should(Equal(
			"Remediation is not allowed, the number of not started or unhealthy machines does not fall within the range " +
				"(total: 4, unhealthy: 1, unhealthyInRange: [2-3]). 1 of 4 targets are not healthy: " +
				"1 unhealthy, 0 pending, 0 starting, 0 being deleted, 0 unknown; the range allows 2 to 3"))
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))

		s.fallsSilent(ctx, "b")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, 2, 1}), "the range goes before the number")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))

		s.fallsSilent(ctx, "c")
		Eventually(s.owner(ctx, "c")).Should(Equal(ownerRequested))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, 1, 0}))
		Expect(s.allowed(ctx, "check")()).To(Equal(remediates))

		s.fallsSilent(ctx, "d")
		Eventually(s.health(ctx, "d")).Should(Equal(silent))
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted))
		Expect(s.owner(ctx, "d")()).To(Equal(nothing))
	})

	It("allows remediation when no machine is selected, unless a range demands unhealthy ones", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		elsewhere := func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{"pool": "elsewhere"}}
		}
		s.check(ctx, "none", elsewhere)
		s.check(ctx, "range", elsewhere, between("[1-3]"))

		Eventually(s.counts(ctx, "none")).Should(Equal([]int32{0, 0, 0}))
		Expect(s.allowed(ctx, "none")()).To(Equal(remediates))
		Eventually(s.allowed(ctx, "range")).Should(Equal(restricted))
	})

	It("selects nothing with an empty selector", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 1, 1}))

		emptied := []byte(`{"spec":{"selector":{"matchLabels":null}}}`) // the typed client cannot say this
		Expect(here.Patch(ctx, s.getCheck(ctx, "check"), client.RawPatch(types.MergePatchType, emptied))).To(Succeed())

		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{0, 0, 0}))
		Expect(s.getCheck(ctx, "check").Status.Targets).To(BeEmpty())
	})

	It("excludes machines with a skip or pause annotation, from the total too", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c", "d")
		s.check(ctx, "check", atMost("50%"), lenient)
		s.fallsSilent(ctx, "b", "c", "d")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{4, 1, 0}))
		s.changeCheck(ctx, "check", strict)
		Eventually(s.health(ctx, "d")).Should(Equal(silent))
		Eventually(s.allowed(ctx, "check")).Should(Equal(restricted), "3 of 4, and 2 are allowed")
		Expect(s.owner(ctx, "b")()).To(Equal(nothing))

		s.change(ctx, "c", annotated(clusterv1.MachineSkipRemediationAnnotation, ""))
		Eventually(s.message(ctx, "check", "RemediationAllowed")).Should(HaveSuffix("50% of 3 allows 1"))
		Eventually(s.health(ctx, "c")).Should(Equal(nothing), "its conditions are removed")

		s.change(ctx, "d", annotated(clusterv1.PausedAnnotation, "anything"))
		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested), "1 of 2, and 1 is allowed")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 0}))
		Expect(s.getCheck(ctx, "check").Status.Targets).To(Equal([]string{"a", "b"}))
		Eventually(s.health(ctx, "d")).Should(Equal(nothing))
		Expect(s.owner(ctx, "c")()).To(Equal(nothing))

		s.change(ctx, "d", without(clusterv1.PausedAnnotation))
		Eventually(s.health(ctx, "d")).Should(Equal(silent))
	})

	It("selects only machines of its own cluster and namespace", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		s := newEnvironmentIn(ctx, namespace, "c1")
		s.worker(ctx, "a")
		newEnvironmentIn(ctx, namespace, "c2").worker(ctx, "b")
		newEnvironment(ctx).worker(ctx, "c")
		s.check(ctx, "check")

		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{1, 1, 1}))
		Expect(s.getCheck(ctx, "check").Status.Targets).To(Equal([]string{"a"}))
		c := s.getCheck(ctx, "check")
		Expect(c.Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "c1"))
		Expect(c.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "c1", UID: s.cluster.UID,
		}}))
		Eventually(func() int64 { return s.getCheck(ctx, "check").Status.ObservedGeneration }).Should(Equal(c.Generation))
	})
})
