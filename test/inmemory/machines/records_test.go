package machines

import (
	"testing"

	"fmt"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
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
			lines = append(lines, fmt.Sprintf("%s %s %s, blocked by %q", r.Spec.Target.Machine.Name, r.Spec.Mode, r.Spec.Remediator, r.Spec.BlockedBy))
		}
		return lines
	}
}

func TestRecordsAreWrittenBeforeTheOwnerIsAskedAndSayWhatWasKnownThen(t *testing.T) {
	run(t, func(s *environment) {
		m := s.worker("a", func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-7" })
		s.workers("b", "c")
		s.check("check", atMost("40%"))
		s.Eventually(s.health("a")).Should(Equal(well))
		s.fallsSilent("a")
		s.Eventually(s.owner("a")).Should(Equal(ownerRequested))

		s.Expect(s.records()()).To(ConsistOf("a Active Owner, blocked by \"\""))
		r := s.recorded()[0]
		asked := conditionTime(s.get("a"), clusterv1.MachineOwnerRemediatedCondition)
		s.Expect(r.CreationTimestamp.Time).To(BeTemporally("<=", asked.Add(time.Second)))
		s.Eventually(func() bool { // what kubectl wait --for=condition=Begun waits for
			return meta.IsStatusConditionTrue(s.recorded()[0].Status.Conditions, mendv1.RecordBegun)
		}).Should(BeTrue())
		s.Expect(r.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID,
		}))
		s.Expect(r.Labels).To(HaveKeyWithValue(mendv1.RecordTargetLabel, string(m.UID)))
		s.Expect(r.Spec.Target.Machine.UID).To(BeEquivalentTo(m.UID))
		s.Expect(r.Spec.Target.Node.Name).To(Equal(s.node("a")))
		s.Expect(r.Spec.Target.Node.UID).NotTo(BeEmpty())
		s.Expect(r.Spec.Target.FailureDomain).To(Equal("rack-7"))
		s.Expect(r.Spec.Requester.Check.Name).To(Equal("check"))
		s.Expect(r.Spec.Cause).To(Equal("Ready=Unknown"))
		s.Expect(r.Spec.Counts).To(HaveValue(Equal(mendv1.RecordCounts{Targets: 3, Healthy: 2, Limit: "40%"})))
		s.Expect(r.Spec.UnhealthySince.Time).To(BeTemporally("<", r.Spec.Due.Time))
		s.Expect(r.Spec.Due.Time).To(BeTemporally("<=", r.Spec.Decided.Time))
	})
}

func TestRecordsComeBackWhenTheyAreDeletedWhileTheRemediationGoesOnAndNotAfterItsEnd(t *testing.T) {
	run(t, func(s *environment) {
		s.workers("a", "b", "c")
		s.check("check", atMost("40%"))
		s.Eventually(s.health("a")).Should(Equal(well))
		s.fallsSilent("a")
		s.Eventually(func() bool {
			all := s.recorded()
			return len(all) == 1 && all[0].Status.Begun != nil
		}).Should(BeTrue())
		was := s.recorded()[0]
		s.Expect(s.here.Delete(s.ctx, &was)).To(Succeed())
		s.Eventually(s.records()).Should(ConsistOf("a Active Owner, blocked by \"\""))
		is := s.recorded()[0]
		s.Expect(is.Name).To(Equal(was.Name))
		s.Expect(is.UID).NotTo(Equal(was.UID))
		s.Expect(is.Spec).To(Equal(was.Spec))
		s.Expect(is.Status.Begun).To(Equal(was.Status.Begun))

		s.comesBack("a")
		s.Eventually(s.health("a")).Should(Equal(well))
		s.change("a", func(m *clusterv1.Machine) { conditions.Delete(m, clusterv1.MachineOwnerRemediatedCondition) })
		s.Eventually(func() bool { return s.recorded()[0].Open() }).Should(BeFalse())
		s.Expect(s.here.Delete(s.ctx, &is)).To(Succeed())
		s.Consistently(s.records()).Should(BeEmpty())
	})
}

func TestRecordsAreNamedByTheRequestsAndAreOneForEachRemediation(t *testing.T) {
	run(t, func(s *environment) {
		s.template("reboot")
		s.workers("a", "b")
		s.check("check", by("reboot"))
		s.fallsSilent("a", "b")
		s.isRequested("a")
		s.isRequested("b")
		s.Expect(s.records()()).To(ConsistOf("a Active Request, blocked by \"\"", "b Active Request, blocked by \"\""))
		for _, r := range s.recorded() {
			req := s.request(r.Spec.Target.Machine.Name)
			s.Expect(req.GetAnnotations()).To(HaveKeyWithValue(mendv1.RecordAnnotation, r.Name))
			s.Expect(r.CreationTimestamp.Time).NotTo(BeTemporally(">", req.GetCreationTimestamp().Time))
		}
	})
}

func TestRecordsSayOfAnObservedCheckWhatOthersBeginAndWhyKubemendWouldNotHave(t *testing.T) {
	runWith(t, observing, func(s *environment) {
		s.workers("a", "b", "c")
		s.fallsSilent("a", "b")
		s.check("check", atMost("1"))
		time.Sleep(2 * time.Second) // for as long it is not known which power cycles are under way
		s.change("a", asksOwner)
		s.Eventually(s.records()).Should(ConsistOf("a Observed Owner, blocked by \"TooManyUnhealthy\""))
		s.comesBack("b")
		s.change("c", asksOwner)
		s.Eventually(s.records()).Should(ConsistOf("a Observed Owner, blocked by \"TooManyUnhealthy\"", "c Observed Owner, blocked by \"Healthy\""))
	})
}

// asksOwner makes a machine look as Cluster API core leaves it that has asked its owner to replace it.
func asksOwner(m *clusterv1.Machine) {
	m.Status.Conditions = append(m.Status.Conditions, condition(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionFalse, 0),
		condition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, 0))
}

func conditionTime(m *clusterv1.Machine, kind string) time.Time {
	for _, c := range m.Status.Conditions {
		if c.Type == kind {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
