package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// term is for how long the node of a remediation is leased in the mode of the environment, without the minute that is added.
func (s *environment) term() time.Duration {
	if s.escalating {
		return step
	}
	return 10 * time.Minute
}

// takes makes another holder take the lease on a node, for a time from now on.
func (s *environment) takes(ctx context.Context, node, holder string, length time.Duration) {
	GinkgoHelper()
	now := metav1.NewMicroTime(s.clock.Now())
	spec := coordinationv1.LeaseSpec{
		HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(int32(length / time.Second)), AcquireTime: &now, RenewTime: &now,
	}
	if l := s.lease(ctx, node); l != nil {
		l.Spec = spec
		Expect(s.here.Update(ctx, l)).To(Succeed())
		return
	}
	Expect(s.here.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.leases, Name: "node-" + s.called(node)}, Spec: spec,
	})).To(Succeed())
}

var _ = Describe("The lease on a node", func() {
	inEveryMode("C40: exists while the node is remediated, and not before or after", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Expect(s.lease(ctx, "w1")).To(BeNil())

		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		lease := s.lease(ctx, "w1")
		Expect(lease).NotTo(BeNil())
		Expect(*lease.Spec.HolderIdentity).To(Equal("NodeHealthCheck-" + s.called("check")))
		Expect(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second).To(Equal(s.term() + time.Minute))
		Expect(lease.Spec.AcquireTime.Equal(lease.Spec.RenewTime)).To(BeTrue())
		Expect(*lease.Spec.LeaseTransitions).To(BeZero())
		Expect(lease.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Node", Name: s.called("w1"), UID: s.getNode(ctx, "w1").UID,
		}}))

		s.keeps(ctx, req)
		s.recovers(ctx, "w1")
		Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
		Expect(s.lease(ctx, "w1")).NotTo(BeNil(), "the remediator is not done")
		s.removesFinalizers(ctx, req)
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
	})

	inEveryMode("C42, W13: blocks the node until it expires; then the check takes it over, and renews it without acquiring it again", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.takes(ctx, "w1", "maintenance", 3*time.Minute)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(ConsistOf(HavePrefix(
			"Warning [remediation] Skipped remediation of node: w1, because node lease is already taken")))
		s.clock.Step(time.Minute)
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		Expect(s.holder(ctx, "w1")()).To(Equal("maintenance"))

		s.clock.Step(2 * time.Minute)
		req := s.request(ctx, "w1")
		first := s.lease(ctx, "w1")
		Expect(s.holder(ctx, "w1")()).To(Equal("check"))
		Expect(time.Duration(*first.Spec.LeaseDurationSeconds) * time.Second).To(Equal(s.term() + time.Minute))
		Expect(first.Spec.AcquireTime.Equal(first.Spec.RenewTime)).To(BeTrue())
		Expect(*first.Spec.LeaseTransitions).To(BeEquivalentTo(1))

		s.clock.Step(s.term() - time.Minute)
		Eventually(func() bool { return s.lease(ctx, "w1").Spec.RenewTime.After(first.Spec.RenewTime.Time) }).Should(BeTrue())
		Expect(s.lease(ctx, "w1").Spec.AcquireTime.Equal(first.Spec.AcquireTime)).To(BeTrue())
		Expect(s.timedOut(ctx, req)()).To(BeEmpty())

		s.clock.Step(2*s.term() + 2*time.Minute) // three times the term since it was acquired
		if !s.escalating {
			s.settle("check")
			Expect(s.holder(ctx, "w1")()).To(Equal("check"), "W13: what has no timeout does not time out")
			Expect(s.timedOut(ctx, req)()).To(BeEmpty())
			return
		}
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
		Expect(s.isLeaving(ctx, req)()).To(BeFalse())
	})
})
