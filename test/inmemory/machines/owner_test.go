package machines

import (
	"testing"

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

func TestOwnerRemediationIsRequestedAgainAfterTrueNeverOverwritesFalseAndKeepsV1beta1AndV1beta2Apart(t *testing.T) {
	run(t, func(s *environment) {
		s.begun()
		s.worker("done", ownerSaid(metav1.ConditionTrue, metav1.ConditionTrue))
		s.worker("at-work", ownerSaid(metav1.ConditionFalse, metav1.ConditionFalse))
		s.worker("known-to-new", ownerSaid(metav1.ConditionFalse, ""))
		s.worker("known-to-old", ownerSaid("", metav1.ConditionFalse))
		s.worker("done-of-old", ownerSaid(metav1.ConditionFalse, metav1.ConditionTrue))
		s.fallsSilent("done", "at-work", "known-to-new", "known-to-old", "done-of-old")
		s.check("check")

		s.Eventually(s.owner("done")).Should(Equal(ownerRequested))
		s.Eventually(s.owner("known-to-new")).Should(Equal("False/Test False/WaitingForRemediation"))
		s.Eventually(s.owner("known-to-old")).Should(Equal("False/WaitingForRemediation False/Test"))
		s.Eventually(s.owner("done-of-old")).Should(Equal("False/Test False/WaitingForRemediation"))
		s.Eventually(s.health("at-work")).Should(Equal(silent))
		s.Expect(s.owner("at-work")()).To(Equal("False/Test False/Test"))

		c := v1beta1conditions.Get(s.get("done"), clusterv1.MachineOwnerRemediatedV1Beta1Condition)
		s.Expect(c.Severity).To(Equal(clusterv1.ConditionSeverityWarning))
		s.Expect(c.Message).To(BeEmpty())
	})
}

func TestOwnerRemediationIsClearedByTheOwnerAlone(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))

		s.comesBack("a")

		s.Eventually(s.health("a")).Should(Equal(well))
		s.Expect(s.owner("a")()).To(Equal(ownerRequested), "MachineSet and KubeadmControlPlane remove it themselves")
	})
}

func TestOwnerRemediationIsNotRequestedOfAMachineThatIsBeingDeletedWhoseConditionsStay(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))
		s.isDeleted("a")
		s.Eventually(s.counts("check")).Should(Equal([]int32{2, 1, 1}))

		s.fallsSilent("a", "b")

		s.Eventually(s.owner("b")).Should(Equal(ownerRequested))
		s.Expect(s.health("a")()).To(Equal(well), "it is no news that its node goes")
		s.Expect(s.owner("a")()).To(Equal(nothing))
	})
}

func TestOwnerRemediationIsRequestedOfAKubeadmControlPlaneInTheSameWords(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a", func(m *clusterv1.Machine) {
			m.Labels[clusterv1.MachineControlPlaneLabel] = ""
			m.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: "controlplane.cluster.x-k8s.io/v1beta2", Kind: "KubeadmControlPlane", Name: "cp", UID: "1", Controller: new(true),
			}}
		})
		s.check("check")

		s.fallsSilent("a")

		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		s.Expect(collections.IsUnhealthyAndOwnerRemediated(s.get("a"))).To(BeTrue())
	})
}

func TestOwnerRemediationHasTheGenerationOfTheMachineThatWasJudged(t *testing.T) {
	run(t, func(s *environment) {
		s.worker("a")
		s.check("check")
		s.Eventually(s.health("a")).Should(Equal(well))

		s.change("a", func(m *clusterv1.Machine) { m.Spec.ProviderID = "test://a" })

		generation := s.get("a").Generation
		s.Expect(generation).To(BeNumerically(">", 1))
		s.Eventually(func() int64 {
			return conditions.Get(s.get("a"), clusterv1.MachineHealthCheckSucceededCondition).ObservedGeneration
		}).Should(Equal(generation))
	})
}
