package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// versions are the resource versions of all that a check and its remediations have written.
func (s *environment) versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	is := map[string]string{}
	for _, c := range s.checks {
		is["check "+c] = s.get(ctx, c).ResourceVersion
	}
	for _, n := range s.nodes {
		is["node "+n] = s.getNode(ctx, n).ResourceVersion
		if l := s.lease(ctx, n); l != nil {
			is["lease "+n] = l.ResourceVersion
		}
	}
	for _, r := range s.allRequests(ctx) {
		is["request "+r.GetName()] = r.GetResourceVersion()
	}
	return is
}

// heartbeat is what a kubelet writes every few minutes when nothing has changed.
func (s *environment) heartbeat(ctx context.Context, name string) {
	GinkgoHelper()
	n := s.getNode(ctx, name)
	before := n.DeepCopy()
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(n.Status.Conditions[i].LastHeartbeatTime.Add(time.Second))
	}
	n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{name}, SizeBytes: int64(len(n.Status.Images))})
	Expect(s.here.Status().Patch(ctx, n, client.MergeFrom(before))).To(Succeed())
}

var _ = Describe("A check reports", func() {
	inEveryMode("nothing while nothing changes: it writes nothing, sends no events, and no heartbeat enqueues it", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.check(ctx, "strict", s.by(s.template(ctx, replace, "hard")), minHealthy("100%"))
		s.check(ctx, "paused", s.by(s.template(ctx, replace, "hard")), func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"me"} })
		s.fails(ctx, "w1")
		s.keeps(ctx, s.request(ctx, "w1"))
		s.reports(ctx, "w2", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{5, 3}))
		Eventually(s.counts(ctx, "strict")).Should(Equal([]int{5, 3}))
		Eventually(s.counts(ctx, "paused")).Should(Equal([]int{5, 3}))
		for _, c := range s.checks {
			s.settle(c)
		}
		before, told, counts := s.versions(ctx), s.notes.number(), s.program.Counts()
		for _, n := range s.nodes {
			s.heartbeat(ctx, n)
			before["node "+n] = s.getNode(ctx, n).ResourceVersion
		}
		Expect(s.program.Counts()).To(Equal(counts))
		for _, c := range s.checks {
			s.reconcile(c)
		}
		Expect(s.versions(ctx)).To(Equal(before))
		Expect(s.notes.number()).To(Equal(told))
	})

	in(ladders, "its remediations in metrics, with medik8s' names and with kubemend's", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
		first := map[string]string{"name": s.called("w1"), "namespace": s.name, "remediation": "RebootRemediation"}
		second := map[string]string{"name": s.called("w1"), "namespace": s.name, "remediation": "ReplaceRemediation"}
		ours := func(more ...string) map[string]string {
			labels := map[string]string{"name": s.called("check")}
			for i := 0; i < len(more); i += 2 {
				labels[more[i]] = more[i+1]
			}
			return labels
		}
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		due := s.getNode(ctx, "w1").Status.Conditions[0].LastTransitionTime.Add(patience)
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_targets", ours("state", "pending")).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_next_deadline_timestamp_seconds", ours()).Should(BeEquivalentTo(due.Unix()))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(-1))
		s.clock.Step(patience)
		s.request(ctx, "w1")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "unhealthy"))).To(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_targets", ours("state", "healthy"))).To(BeEquivalentTo(4))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_in_flight", ours()).Should(BeEquivalentTo(1))
		Expect(s.metric("kubemend_nodehealthcheck_remediations_started_total", ours("kind", "RebootRemediation"))).To(BeEquivalentTo(1))
		s.clock.Step(step)
		s.latest(ctx, "w1", 2)
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_ongoing_remediation", first)).To(BeEquivalentTo(1))
		Expect(s.metric("nodehealthcheck_unhealthy_node_duration_seconds", first)).To(BeEquivalentTo(-1))

		s.fails(ctx, "w2", "w3")
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "TooManyUnhealthy")).Should(BeEquivalentTo(1))
		s.recovers(ctx, "w1", "w2", "w3")
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", first).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", second).Should(BeEquivalentTo(0))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", first).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("nodehealthcheck_unhealthy_node_duration_seconds", second).Should(BeEquivalentTo(1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_remediations_finished_total", ours("result", "recovered")).Should(BeNumerically(">=", 1))
		Eventually(s.metric).WithArguments("kubemend_nodehealthcheck_short_circuited", ours("reason", "")).Should(BeEquivalentTo(0))
	})

	once("seed 2.2: changes within a moment: of nodes, their conditions and the check itself", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.node(ctx, "w4")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{4, 4}))
		s.loses(ctx, "w4")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Hour })
		s.fails(ctx, "w1")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.UnhealthyConditions[1].Duration.Duration = time.Minute })
		Eventually(s.nodesRequested(ctx)).Should(Equal([]string{"w1"}))
	})
})
