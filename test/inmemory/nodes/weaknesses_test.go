package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Here are those that need a controller. The rows of decide/nodes and decide/escalation that begin with their ids show the others, and the tests
// of nodehealthcheck, of its admission and of the docs those that are about these.
var _ = Describe("Unlike medik8s', a check", func() {
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
})
