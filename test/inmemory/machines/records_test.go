package machines

import (
	"testing"

	"fmt"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// recorded are the records of an environment.
func (s *environment) recorded() []mendv1.RemediationRecord {
	all := &mendv1.RemediationRecordList{}
	s.Expect(s.here.List(s.ctx, all, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})).To(Succeed())
	return all.Items
}

// records are they in a line each.
func (s *environment) records() func() []string {
	return func() []string {
		lines := []string{}
		for _, r := range s.recorded() {
			lines = append(lines, fmt.Sprintf("%s %s", r.Spec.Target.Machine.Name, r.Spec.Remediator))
		}
		return lines
	}
}

func conditionTime(m *clusterv1.Machine, kind string) time.Time {
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

func TestRecordsAreWrittenBeforeTheOwnerIsAskedAndSayThatItWas(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c")
		s.check("check", atMost("40%"))
		s.Eventually(s.health("a")).Should(Equal(well))
		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))

		s.Expect(s.records()()).To(ConsistOf("a Owner"))
		asked := conditionTime(s.get("a"), clusterv1.MachineOwnerRemediatedCondition)
		s.Expect(s.recorded()[0].CreationTimestamp.Time).To(BeTemporally("<=", asked.Add(time.Second)))
		s.Eventually(func() bool { // what kubectl wait --for=condition=Begun waits for
			return meta.IsStatusConditionTrue(s.recorded()[0].Status.Conditions, mendv1.RecordBegun)
		}).Should(BeTrue())
	})
}

// One write makes it, before the owner is asked, and one is made for each of its steps; the next hour, in which its owner does nothing, costs none.
func TestARecordCostsAWriteForEachStep(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c")
		s.check("check", atMost("40%"))
		s.Eventually(s.health("a")).Should(Equal(well))
		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))
		time.Sleep(time.Hour)

		var writes []string
		done, _ := s.writes.Done()
		for _, write := range done {
			if write.Kind == "RemediationRecord" {
				writes = append(writes, write.Verb)
			}
		}
		steps := s.recorded()[0].Status.Steps
		s.Expect(steps[0].Reason).To(Equal("OwnerRequested"))
		s.Expect(writes).To(HaveLen(1 + len(steps)))
	})
}
