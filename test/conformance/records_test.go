package conformance

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// recordManifest is the CRD of records.
const recordManifest = "../../config/crd/bases/kubemend.io_remediationrecords.yaml"

// recorded are the records of an environment.
func (s *environment) recorded(ctx context.Context) []mendv1.RemediationRecord {
	GinkgoHelper()
	all := &mendv1.RemediationRecordList{}
	Expect(here.List(ctx, all, client.InNamespace(s.cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.cluster.Name})).To(Succeed())
	return all.Items
}

// records are they in a line each.
func (s *environment) records(ctx context.Context) func() []string {
	return func() []string {
		lines := []string{}
		for _, r := range s.recorded(ctx) {
			lines = append(lines, fmt.Sprintf("%s %s %s, blocked by %q", r.Spec.Target.Machine.Name, r.Spec.Mode, r.Spec.Remediator, r.Spec.BlockedBy))
		}
		return lines
	}
}

// unbegun are the machines of the remediations of kubemend's whose records do not say yet that they have begun.
func (s *environment) unbegun(ctx context.Context) func() []string {
	return func() []string {
		var names []string
		for _, r := range s.recorded(ctx) {
			if r.Spec.Mode == mendv1.RecordActive && r.Open() && r.Status.Begun == nil {
				names = append(names, r.Spec.Target.Machine.Name)
			}
		}
		return names
	}
}

var _ = Describe("Records", func() {
	It("are written before the owner is asked, and say what was known then", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		m := s.worker(ctx, "a", func(m *clusterv1.Machine) { m.Spec.FailureDomain = "rack-7" })
		s.workers(ctx, "b", "c")
		s.check(ctx, "check", atMost("40%"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		s.fallsSilent(ctx, "a")
		Eventually(s.owner(ctx, "a")).Should(Equal(ownerRequested))

		Expect(s.records(ctx)()).To(ConsistOf("a Active Owner, blocked by \"\""))
		r := s.recorded(ctx)[0]
		asked := conditionTime(s.get(ctx, "a"), clusterv1.MachineOwnerRemediatedCondition)
		Expect(r.CreationTimestamp.Time).To(BeTemporally("<=", asked.Add(time.Second)))
		Eventually(func() bool { // what kubectl wait --for=condition=Begun waits for
			return meta.IsStatusConditionTrue(s.recorded(ctx)[0].Status.Conditions, mendv1.RecordBegun)
		}).Should(BeTrue())
		Expect(r.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.cluster.Name, UID: s.cluster.UID,
		}))
		Expect(r.Labels).To(HaveKeyWithValue(mendv1.RecordTargetLabel, string(m.UID)))
		Expect(r.Spec.Target.Machine.UID).To(BeEquivalentTo(m.UID))
		Expect(r.Spec.Target.Node.Name).To(Equal(s.node("a")))
		Expect(r.Spec.Target.Node.UID).NotTo(BeEmpty())
		Expect(r.Spec.Target.FailureDomain).To(Equal("rack-7"))
		Expect(r.Spec.Requester.Check.Name).To(Equal("check"))
		Expect(r.Spec.Cause).To(Equal("Ready=Unknown"))
		Expect(r.Spec.Counts).To(HaveValue(Equal(mendv1.RecordCounts{Targets: 3, Healthy: 2, Limit: "40%"})))
		Expect(r.Spec.UnhealthySince.Time).To(BeTemporally("<", r.Spec.Due.Time))
		Expect(r.Spec.Due.Time).To(BeTemporally("<=", r.Spec.Decided.Time))
	})

	It("come back when they are deleted while the remediation goes on, and not after its end", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.workers(ctx, "a", "b", "c")
		s.check(ctx, "check", atMost("40%"))
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		s.fallsSilent(ctx, "a")
		Eventually(func() bool {
			all := s.recorded(ctx)
			return len(all) == 1 && all[0].Status.Begun != nil
		}).Should(BeTrue())
		was := s.recorded(ctx)[0]
		Expect(here.Delete(ctx, &was)).To(Succeed())
		Eventually(s.records(ctx)).Should(ConsistOf("a Active Owner, blocked by \"\""))
		is := s.recorded(ctx)[0]
		Expect(is.Name).To(Equal(was.Name))
		Expect(is.UID).NotTo(Equal(was.UID))
		Expect(is.Spec).To(Equal(was.Spec))
		Expect(is.Status.Begun).To(Equal(was.Status.Begun))

		s.comesBack(ctx, "a")
		Eventually(s.health(ctx, "a")).Should(Equal(well))
		s.change(ctx, "a", func(m *clusterv1.Machine) { conditions.Delete(m, clusterv1.MachineOwnerRemediatedCondition) })
		Eventually(func() bool { return s.recorded(ctx)[0].Open() }).Should(BeFalse())
		Expect(here.Delete(ctx, &is)).To(Succeed())
		Consistently(s.records(ctx)).Should(BeEmpty())
	})

	It("are named by the requests, and are one for each remediation", func(ctx SpecContext) {
		s := newEnvironment(ctx)
		s.template(ctx, "reboot")
		s.workers(ctx, "a", "b")
		s.check(ctx, "check", by("reboot"))
		s.fallsSilent(ctx, "a", "b")
		s.isRequested(ctx, "a")
		s.isRequested(ctx, "b")
		Expect(s.records(ctx)()).To(ConsistOf("a Active Request, blocked by \"\"", "b Active Request, blocked by \"\""))
		for _, r := range s.recorded(ctx) {
			req := s.request(ctx, r.Spec.Target.Machine.Name)
			Expect(req.GetAnnotations()).To(HaveKeyWithValue(mendv1.RecordAnnotation, r.Name))
			Expect(r.CreationTimestamp.Time).NotTo(BeTemporally(">", req.GetCreationTimestamp().Time))
		}
	})

	It("say of an observed check what others begin, and why kubemend would not have", func(ctx SpecContext) {
		ownManager(ctx, "shadow", "--unclaimed-machine-health-checks=observe")
		s := newEnvironment(ctx, seenBy("shadow"))
		s.workers(ctx, "a", "b", "c")
		s.fallsSilent(ctx, "a", "b")
		s.check(ctx, "check", atMost("1"))
		s.change(ctx, "a", asksOwner)
		Eventually(s.records(ctx)).Should(ConsistOf("a Observed Owner, blocked by \"TooManyUnhealthy\""))
		s.comesBack(ctx, "b")
		s.change(ctx, "c", asksOwner)
		Eventually(s.records(ctx)).Should(ConsistOf("a Observed Owner, blocked by \"TooManyUnhealthy\"", "c Observed Owner, blocked by \"Healthy\""))
	})
})

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
