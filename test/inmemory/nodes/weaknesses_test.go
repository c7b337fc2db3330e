package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

func noThreshold(c *nhcv1.NodeHealthCheck) { c.Spec.MinHealthy, c.Spec.MaxUnhealthy = nil, nil }

func cooldown(d time.Duration) func(*nhcv1.NodeHealthCheck) {
	return func(c *nhcv1.NodeHealthCheck) { c.Spec.StormCooldownDuration = &metav1.Duration{Duration: d} }
}

// W1 is in C53, W2 beside C42, W3 with the control plane, W4 with the rights, W6 is C62, W13 in C42, W20 with ladders, W24 is C36, W25 with
// OpenShift, W29 and W33 with Cluster API, W31 is C64. W14, W19 and W30, and W29 where nothing can be asked, are shown by the tests of package
// nodehealthcheck, W21 and W34 by those of admission, W35 by those of the docs. W22 is not about NodeHealthChecks.
var _ = Describe("Unlike medik8s', a check", func() {
	inEveryMode("W5, gap: restarts the healthy delay when a node flaps", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), delay(3*time.Minute))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.recovers(ctx, "w1")
		since := s.annotation(ctx, req, nhcv1.HealthyDelayAnnotation)
		Eventually(since).ShouldNot(BeEmpty())
		s.clock.Step(2 * time.Minute)
		s.settle("check")
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse, 0)
		Eventually(since).Should(BeEmpty())
		Eventually(s.isDelayed).WithArguments(ctx, "check", "w1").Should(BeFalse())
		s.recovers(ctx, "w1")
		Eventually(since).ShouldNot(BeEmpty())
		s.clock.Step(2 * time.Minute)
		s.settle("check")
		Expect(s.isLeaving(ctx, req)()).To(BeFalse())
		Expect(s.isGone(ctx, req)()).To(BeFalse())
		s.clock.Step(time.Minute)
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
	})

	once("W7, gap: removes a deleted node from its status that was only listed", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), minHealthy("3"))
		s.fails(ctx, "w1")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
		s.loses(ctx, "w1")
		Eventually(s.listed(ctx, "check")).Should(BeEmpty())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
	})

	inEveryMode("W8, seed 0.24: forgets a node that is gone together with its request, once a replacement has joined", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, deletion, "delete")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.says(ctx, req, nhcv1.NodeDeletionExpectedCondition, metav1.ConditionTrue)
		s.loses(ctx, "w1")
		s.isDeleted(ctx, req)
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1"}))
		s.clock.Step(time.Second)
		s.node(ctx, "w4")
		Eventually(s.listed(ctx, "check")).Should(BeEmpty())
		Expect(s.about(ctx, "w1")).To(BeEmpty())
	})

	in(ladders, "W9, gap: remediates a node to the end that leaves the selection meanwhile", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.changeNode(ctx, "w1", labelled("pool", "others"))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{2, 2}))
		Expect(s.isLeaving(ctx, req)()).To(BeFalse())
		Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1: RebootRemediation/soft"}))
		s.clock.Step(step)
		s.latest(ctx, "w1", 2)
		s.recovers(ctx, "w1")
		Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
		s.fails(ctx, "w1")
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty(), "the check does not select it any more")
	})

	in(ladders, "W10: continues remediations under way with too few healthy nodes, with their timeouts and leases", func(ctx context.Context, s *environment) {
		s.workers(ctx, 5)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")), cooldown(time.Hour))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.fails(ctx, "w2")
		s.request(ctx, "w2")
		s.fails(ctx, "w3", "w4")
		Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))
		Eventually(s.of(ctx, "check", nhcv1.StormActiveCondition)).Should(HavePrefix("True"))
		before := s.lease(ctx, "w1").Spec.RenewTime
		s.clock.Step(step - time.Minute)
		Eventually(func() bool { return s.lease(ctx, "w1").Spec.RenewTime.After(before.Time) }).Should(BeTrue())
		s.clock.Step(time.Minute)
		Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
		Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"RebootRemediation/soft", "ReplaceRemediation/hard"}))
		Expect(s.about(ctx, "w3")).To(BeEmpty())
		Expect(s.about(ctx, "w4")).To(BeEmpty())
		s.recovers(ctx, "w1")
		Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
	})

	once("W11, gap: ends a storm also when no node is unhealthy, and when the field for storms is removed", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), minHealthy("2"), cooldown(3*time.Minute))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.storm(ctx, "check", "w1", "w2")
		Eventually(s.of(ctx, "check", nhcv1.StormActiveCondition)).Should(HavePrefix("True"))
		s.recovers(ctx, "w1", "w2")
		Eventually(s.of(ctx, "check", nhcv1.StormCooldownActiveCondition)).Should(HavePrefix("True"))
		s.clock.Step(3 * time.Minute)
		Eventually(s.of(ctx, "check", nhcv1.StormActiveCondition)).Should(HavePrefix("False"))
		s.fails(ctx, "w3")
		s.request(ctx, "w3")
		s.recovers(ctx, "w3")
		Eventually(s.requested(ctx, "w3")).Should(BeEmpty())
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))

		s.storm(ctx, "check", "w1", "w2")
		Eventually(s.of(ctx, "check", nhcv1.StormActiveCondition)).Should(HavePrefix("True"))
		s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.StormCooldownDuration = nil })
		Eventually(s.of(ctx, "check", nhcv1.StormActiveCondition)).Should(HavePrefix("False"))
		s.recovers(ctx, "w1")
		s.request(ctx, "w2")
	})

	once("W15, seed 0.6, 0.12: rounds a percentage for maxUnhealthy down, and takes a number above that of the nodes for all of them", func(ctx context.Context, s *environment) {
		s.workers(ctx, 6)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), maxUnhealthy("40%"))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.storm(ctx, "check", "w1", "w2", "w3")
		Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
		s.change(ctx, "check", maxUnhealthy("100"))
		Eventually(s.nodesRequested(ctx)).Should(ConsistOf("w1", "w2", "w3"))
	})

	once("W16, gap, seed 0.11, 1.4: requires 51% healthy nodes where no threshold is set", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), noThreshold)
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.storm(ctx, "check", "w1", "w2")
		Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
		s.recovers(ctx, "w1")
		s.request(ctx, "w2")
	})

	once("W17, gap, seed 0.19: uses the content of spec.template as the spec of requests where it has no spec", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "flat", func(t *unstructured.Unstructured) {
			t.Object["spec"] = map[string]any{"template": map[string]any{
				"size": int64(42), "metadata": map[string]any{"labels": map[string]any{"not": "copied"}}, "deep": map[string]any{"er": "yes"},
			}}
		})))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42), "deep": map[string]any{"er": "yes"}}))
		Expect(req.GetLabels()).NotTo(HaveKey("not"))
	})

	for text, hinder := range suite.InOrder(map[string]func(context.Context, *environment, *unstructured.Unstructured){
		"of a healthy node whose request stays": func(ctx context.Context, s *environment, req *unstructured.Unstructured) {
			s.keeps(ctx, req)
			s.recovers(ctx, "w1")
			Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
		},
		"while it is paused": func(ctx context.Context, s *environment, _ *unstructured.Unstructured) {
			s.change(ctx, "check", func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"me"} })
		},
		"while the configuration of a node is being changed": func(ctx context.Context, s *environment, _ *unstructured.Unstructured) {
			s.changeNode(ctx, "w1", annotated(map[string]string{
				"machineconfiguration.openshift.io/desiredConfig": "new", "machineconfiguration.openshift.io/currentConfig": "old",
			}))
			s.settle("check")
			Expect(s.allowed(ctx, "check")()).To(Equal("False/ClusterUpgrading"))
		},
		"while it is disabled": func(ctx context.Context, s *environment, _ *unstructured.Unstructured) {
			s.deleteTemplate(ctx, reboot, "soft")
		},
		"while there are too few healthy nodes": func(ctx context.Context, s *environment, _ *unstructured.Unstructured) {
			s.fails(ctx, "w2", "w3")
			Eventually(s.allowed(ctx, "check")).Should(Equal("False/TooManyUnhealthy"))
		},
		"of a node that is gone while its request stays": func(ctx context.Context, s *environment, req *unstructured.Unstructured) {
			s.keeps(ctx, req)
			s.loses(ctx, "w1")
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		},
	}) {
		once("W18, seed 2.12: counts a request older than 48 hours in all cases, "+text, func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
			hinder(ctx, s, req)
			s.settle("check")
			s.clock.Step(48*time.Hour + time.Minute)
			Eventually(s.annotation(ctx, req, nhcv1.OldRequestAnnotation)).Should(Equal("flagon"))
			Eventually(s.metric).WithArguments("nodehealthcheck_old_remediation_cr", map[string]string{
				"name": s.called("w1"), "namespace": s.name,
			}).Should(BeEquivalentTo(1))
		})
	}

	once("W23: handles other nodes when one cannot be remediated, and takes no lease of a node that another client's request blocks", func(ctx context.Context, s *environment) {
		template := s.template(ctx, reboot, "soft")
		s.workers(ctx, 7)
		foreign := reboot.object(s.name, s.called("w1"))
		foreign.SetAnnotations(map[string]string{nhcv1.NodeNameAnnotation: s.called("w1"), nhcv1.TemplateNameAnnotation: "another"})
		Expect(s.here.Create(ctx, foreign)).To(Succeed())
		s.check(ctx, "check", s.by(template))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.storm(ctx, "check", "w1", "w2", "w3")
		s.request(ctx, "w2")
		s.request(ctx, "w3")
		Expect(s.lease(ctx, "w1")).To(BeNil())
		s.skipped(ctx, "check", "w1", "exists and was not made by this NodeHealthCheck")
	})

	once("W26: remediates a node whose condition changes between its two bad statuses", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		for i := range 3 {
			status := []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse}[i%2]
			s.reports(ctx, "w1", corev1.NodeReady, status, 0)
			Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
			s.settle("check")
			Expect(s.about(ctx, "w1")).To(BeEmpty())
			s.clock.Step(100 * time.Second)
			s.settle("check")
		}
		s.request(ctx, "w1")
	})

	once("W27: remediates a node that never reported Ready", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		n := s.getNode(ctx, "w1")
		n.Status.Conditions = nil
		Expect(s.here.Status().Update(ctx, n)).To(Succeed())
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.clock.Step(patience)
		s.request(ctx, "w1")
	})

	in(ladders, "W28: rebuilds a lost status from the requests", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard"), s.template(ctx, selfNode, "last")))
		s.fails(ctx, "w1")
		s.request(ctx, "w1")
		s.clock.Step(step)
		s.latest(ctx, "w1", 2)
		now := "w1: RebootRemediation/soft*, ReplaceRemediation/hard"
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{now}))
		s.settle("check")
		before := s.get(ctx, "check").Status.UnhealthyNodes
		c := s.get(ctx, "check")
		c.Status = nhcv1.NodeHealthCheckStatus{}
		Expect(s.here.Status().Update(ctx, c)).To(Succeed())
		s.settle("check")
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{now}))
		Expect(s.get(ctx, "check").Status.UnhealthyNodes[0].Remediations[0].TimedOut).NotTo(BeNil())
		Expect(s.get(ctx, "check").Status.UnhealthyNodes).To(HaveLen(len(before)))
		s.clock.Step(step)
		Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"RebootRemediation/soft", "ReplaceRemediation/hard", "SelfNodeRemediation/last"}))
	})

	once("W32: does not adopt requests of a deleted check of its name, but deletes them and starts anew", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		template := s.template(ctx, reboot, "soft")
		c := s.check(ctx, "check", s.by(template))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		Expect(s.here.Delete(ctx, c)).To(Succeed())
		s.check(ctx, "check", s.by(template))
		Eventually(func() bool {
			found := s.about(ctx, "w1")
			return len(found) == 1 && found[0].GetUID() != req.GetUID()
		}).Should(BeTrue(), "another request is to take the place of the orphaned one")
		Expect(s.request(ctx, "w1").GetOwnerReferences()[0].UID).NotTo(Equal(c.GetUID()))
		s.settle("check")
		s.recovers(ctx, "w1")
		Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
		Eventually(s.listed(ctx, "check")).Should(BeEmpty())
	})
})
