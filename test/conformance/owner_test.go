package conformance

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/collections"
	"sigs.k8s.io/cluster-api/util/conditions"
	v1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
)

// ownerSaid gives a machine the condition OwnerRemediated in both flavours; an empty status leaves one out.
func ownerSaid(now, before metav1.ConditionStatus) func(*clusterv1.Machine) {
	return func(m *clusterv1.Machine) {
		if now != "" {
			m.Status.Conditions = append(m.Status.Conditions, condition(clusterv1.MachineOwnerRemediatedCondition, now, long))
		}
		switch before {
		case metav1.ConditionTrue:
			v1beta1conditions.MarkTrue(m, clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		case metav1.ConditionFalse:
			v1beta1conditions.MarkFalse(m, clusterv1.MachineOwnerRemediatedV1Beta1Condition, "Test", clusterv1.ConditionSeverityInfo, "")
		}
	}
}

var _ = Describe("Owner remediation", func() {
	It("is requested again after True, never overwrites False, and keeps v1beta1 and v1beta2 apart", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "done", ownerSaid(metav1.ConditionTrue, metav1.ConditionTrue))
		s.worker(ctx, "at-work", ownerSaid(metav1.ConditionFalse, metav1.ConditionFalse))
		s.worker(ctx, "known-to-new", ownerSaid(metav1.ConditionFalse, ""))
		s.worker(ctx, "known-to-old", ownerSaid("", metav1.ConditionFalse))
		s.worker(ctx, "done-of-old", ownerSaid(metav1.ConditionFalse, metav1.ConditionTrue))
		s.fallsSilent(ctx, "done", "at-work", "known-to-new", "known-to-old", "done-of-old")
		s.check(ctx, "check")

		Eventually(s.owner(ctx, "done")).Should(Equal(ownerRequested))
		Eventually(s.owner(ctx, "known-to-new")).Should(Equal("False/Test False/WaitingForRemediation"))
		Eventually(s.owner(ctx, "known-to-old")).Should(Equal("False/WaitingForRemediation False/Test"))
		Eventually(s.owner(ctx, "done-of-old")).Should(Equal("False/Test False/WaitingForRemediation"))
		Eventually(s.health(ctx, "at-work")).Should(Equal(silent))
		Expect(s.owner(ctx, "at-work")()).To(Equal("False/Test False/Test"))

		c := v1beta1conditions.Get(s.get(ctx, "done"), clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		Expect(c.Severity).To(Equal(clusterv1.ConditionSeverityWarning))
		Expect(c.Message).To(BeEmpty())
	})

	It("is cleared by the owner alone", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		s.fallsSilent(ctx, "a")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))

		s.comesBack(ctx, "a")

		Eventually(s.health(ctx, "a")).Should(Equal(well))
		Expect(s.owner(ctx, "a")()).To(Equal(ownerRequested), "MachineSet and KubeadmControlPlane remove it themselves")
	})

	It("is not requested of a machine that is being deleted, whose conditions stay", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b")
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		s.isDeleted(ctx, "a")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int32{2, 1, 1}))

		s.fallsSilent(ctx, "a", "b")

		Eventually(s.owner(ctx, "b")).Should(Equal(ownerRequested))
		Expect(s.health(ctx, "a")()).To(Equal(well), "it is no news that its node goes")
		Expect(s.owner(ctx, "a")()).To(Equal(nothing))
	})

	It("is requested of a KubeadmControlPlane in the same words", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a", func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "cp", UID: "1", Controller: new(true),
			}}
		})
		s.check(ctx, "check")

		s.fallsSilent(ctx, "a")

		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))
		Expect(collections.IsUnhealthyAndOwnerRemediated(s.get(ctx, "a"))).To(BeTrue())
	})

	It("has the generation of the Machine that was judged", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.worker(ctx, "a")
		s.check(ctx, "check")
		Eventually(s.health(ctx, "a")).Should(Equal(well))

		s.change(ctx, "a", func(m *clusterv1.Machine) { m.Spec.ProviderID = "test://a" })

		generation := s.get(ctx, "a").Generation
		Expect(generation).To(BeNumerically(">", 1))
		Eventually(func() int64 {
			return conditions.Get(s.get(ctx, "a"), clusterv1.MachineHealthCheckSucceededCondition).ObservedGeneration
		}).Should(Equal(generation))
	})
})
