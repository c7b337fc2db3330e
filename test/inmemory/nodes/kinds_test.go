package nodes

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("Remediators", func() {
	for text, named := range suite.InOrder(map[string]bool{"is not named": false, "is named all the same": true}) {
		inEveryMode("whose kinds have no namespace serve a node once, if one "+text, func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			template := s.template(ctx, global, "soft")
			if named {
				template.Namespace = s.name
			}
			s.check(ctx, "check", s.by(template))
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Expect(req.GetNamespace()).To(BeEmpty())
			Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: GlobalRemediation/" + template.Name}))
			s.settle("check")
			before := s.get(ctx, "check").ResourceVersion
			if s.escalating {
				s.clock.Step(step)
				Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
			} else {
				s.settle("check")
				Expect(s.get(ctx, "check").ResourceVersion).To(Equal(before))
			}
			s.recovers(ctx, "w1")
			Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
			Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		})
	}

	in(ladders, "of one kind in two namespaces are distinguished", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		near := s.template(ctx, reboot, "soft")
		far := near
		far.Namespace = s.elsewhere
		t := reboot.object(s.elsewhere, "soft")
		t.SetGroupVersionKind(reboot.templates())
		t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{}}}
		Expect(s.here.Create(ctx, t)).To(Succeed())
		s.check(ctx, "check", ladder(step, near, far))
		s.fails(ctx, "w1")
		s.request(ctx, "w1")
		s.clock.Step(step)
		Expect(s.latest(ctx, "w1", 2).GetNamespace()).To(Equal(s.elsewhere))
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft*, RebootRemediation/soft"}))
		s.clock.Step(step)
		Eventually(s.events(ctx, "check", "NoTemplateLeft")).Should(HaveLen(1))
		Expect(s.about(ctx, "w1")).To(HaveLen(2))
	})

	once("keep the spec of their request when the template changes, and get the new spec in the next request", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.template(ctx, reboot, "soft", func(t *unstructured.Unstructured) {
			t.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"size": int64(43)}}}
		})
		s.settle("check")
		Expect(s.again(ctx, req).Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
		s.fails(ctx, "w2")
		s.settle("check")
		s.recovers(ctx, "w1")
		Expect(s.request(ctx, "w2").Object["spec"]).To(Equal(map[string]any{"size": int64(43)}))
	})

	once("get a new request for a new node of the same name", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.loses(ctx, "w1")
		s.node(ctx, "w1")
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		s.reports(ctx, "w1", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 2}))
		s.clock.Step(patience)
		Expect(s.request(ctx, "w1").GetUID()).NotTo(Equal(req.GetUID()))
		Expect(s.lease(ctx, "w1").OwnerReferences[0].UID).To(Equal(s.getNode(ctx, "w1").UID))
	})
})
