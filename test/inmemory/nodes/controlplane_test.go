package nodes

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
)

// members makes nodes c1 to cn of the control plane, which are of no other pool.
func (s *environment) members(ctx context.Context, n int) {
	GinkgoHelper()
	for i := range n {
		s.node(ctx, fmt.Sprintf("c%d", i+1), member, labelled("pool", "members"))
	}
}

var ofMembers = selecting("pool", "members")

const quorum = "Warning [remediation] Skipping remediation of %s for preventing control plane / etcd quorum loss, going to retry in a minute"

var _ = Describe("Nodes of the control plane", func() {
	inEveryMode("C65, seed 2.11: are remediated one after the other, the next one when the request of the last one is gone", func(ctx context.Context, s *environment) {
		s.members(ctx, 5)
		s.workers(ctx, 1)
		soft := s.template(ctx, reboot, "soft")
		s.check(ctx, "check", s.by(soft), ofMembers)
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.storm(ctx, "check", "c1", "c2")
		Eventually(s.nodesRequested(ctx)).Should(HaveLen(1))
		first, second := "c1", "c2"
		if s.nodesRequested(ctx)()[0] == "c2" {
			first, second = second, first
		}
		req := s.request(ctx, first)
		Expect(req.GetLabels()).To(HaveKeyWithValue("remediation.medik8s.io/isControlPlaneNode", ""))
		Eventually(s.events(ctx, "check", "RemediationSkipped")).Should(HaveEach(HavePrefix(fmt.Sprintf(quorum, second))))
		Expect(s.events(ctx, "check", "RemediationSkipped")()).NotTo(BeEmpty())
		s.keeps(ctx, req)
		s.recovers(ctx, first)
		Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
		s.clock.Step(time.Minute)
		s.settle("check")
		Expect(s.about(ctx, second)).To(BeEmpty())
		s.removesFinalizers(ctx, req)
		s.request(ctx, second)
	})

	once("W3, gap: are remediated one at a time also by two checks", func(ctx context.Context, s *environment) {
		s.members(ctx, 5)
		s.changeNode(ctx, "c1", labelled("half", "one"))
		s.changeNode(ctx, "c2", labelled("half", "two"))
		one, two := s.template(ctx, global, "soft"), s.template(ctx, replace, "hard")
		s.check(ctx, "one", s.by(one), selecting("half", "one"), maxUnhealthy("1"))
		s.check(ctx, "two", s.by(two), selecting("half", "two"), maxUnhealthy("1"))
		Eventually(s.counts(ctx, "one")).Should(Equal([]int{1, 1}))
		Eventually(s.counts(ctx, "two")).Should(Equal([]int{1, 1}))
		for _, name := range []string{"c1", "c2"} {
			s.reports(ctx, name, corev1.NodeReady, corev1.ConditionFalse)
		}
		Eventually(s.counts(ctx, "one")).Should(Equal([]int{1, 0}))
		Eventually(s.counts(ctx, "two")).Should(Equal([]int{1, 0}))
		s.clock.Step(patience) // both become unhealthy at the same moment

		Eventually(s.nodesRequested(ctx)).Should(HaveLen(1))
		first, second, waits := "c1", "c2", "two"
		if s.nodesRequested(ctx)()[0] == "c2" {
			first, second, waits = "c2", "c1", "one"
		}
		Eventually(s.listed(ctx, waits)).Should(Equal([]string{second}))
		s.kill()
		s.start()
		s.clock.Step(time.Minute)
		s.settle("one")
		s.settle("two")
		Expect(s.nodesRequested(ctx)()).To(Equal([]string{first}))
		s.recovers(ctx, first)
		s.request(ctx, second)
	})
})
