package nodes

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

// mended is the template of the first documentation, with its kind spelled as the check of that documentation spells it.
func corrected() *unstructured.Unstructured {
	GinkgoHelper()
	template := suite.Seed("000/template.yaml")[0]
	template.SetKind(provider.templates().Kind)
	return template
}

// manifest makes an object as a seed has it; but its namespace, if it has one, is the environment's, and so is that of a template which it
// names. A check, which has no namespace, is called as those of the environment.
func (s *environment) manifest(ctx context.Context, u *unstructured.Unstructured) {
	GinkgoHelper()
	if u.GetNamespace() != "" {
		u.SetNamespace(s.name)
	} else {
		s.checks = append(s.checks, u.GetName())
		u.SetName(s.called(u.GetName()))
		Expect(unstructured.SetNestedField(u.Object, s.name, "spec", "remediationTemplate", "namespace")).To(Succeed())
	}
	s.puts(ctx, u)
}

// Which other tests hold what the documents say is in test/RULES.md, sentence by sentence.
var _ = Describe("The manifests of", func() {
	once("seed 0.1, 0.2, 0.7, 0.8, 0.9, 0.10, 0.11, 0.14, 0.15, 0.19, 0.23: the first documentation work as they are", func(ctx context.Context, s *environment) {
		s.kinds[provider] = true
		s.workers(ctx, 2)
		s.node(ctx, "w3", labelled("pool", "another")) // all nodes are selected
		s.manifest(ctx, corrected())
		s.manifest(ctx, suite.Seed("000/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		Eventually(s.phase(ctx, check)).Should(Equal(enabled))
		Expect(s.counts(ctx, check)()).To(Equal([]int{3, 3}))
		Expect(s.get(ctx, check).Spec.UnhealthyConditions).To(HaveLen(2))

		s.reports(ctx, "w3", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(ctx, check)).Should(Equal([]int{3, 2}))
		s.clock.Step(patience)
		req := s.request(ctx, "w3")
		Expect(req.GetKind()).To(Equal("ProviderXRemediation"))
		Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
		Expect(req.GetOwnerReferences()[0].APIVersion).To(Equal("remediation.medik8s.io/v1alpha1"))
		s.fails(ctx, "w1") // two of three are more than 49%
		Eventually(s.allowed(ctx, check)).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
		s.recovers(ctx, "w3")
		s.request(ctx, "w1")
		Expect(s.about(ctx, "w3")).To(BeEmpty())
	})

	once("seed 000: the first documentation, as they are spelled there, leave the check without its template", func(ctx context.Context, s *environment) {
		s.kinds[misspelt] = true
		s.workers(ctx, 3)
		s.manifest(ctx, suite.Seed("000/template.yaml")[0])
		s.manifest(ctx, suite.Seed("000/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		Eventually(s.of(ctx, check, nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.fails(ctx, "w1")
		Eventually(s.counts(ctx, check)).Should(Equal([]int{3, 2}))
		Expect(s.about(ctx, "w1")).To(BeEmpty())
	})

	once("seed 1.3, 1.2, 1.4, 1.5, 1.7, 1.8, 1.9, 1.11: OKD's documentation work as they are, with Poison Pill", func(ctx context.Context, s *environment) {
		s.template(ctx, pill, "group-x")
		worker := labelled("node-role.kubernetes.io/worker", "")
		for _, name := range []string{"a", "b", "c"} {
			s.node(ctx, name, worker)
		}
		s.node(ctx, "other")
		s.manifest(ctx, suite.Seed("001/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		s.fails(ctx, "a", "other")
		Eventually(s.phase(ctx, check)).Should(Equal("Paused: NHC is paused: <pause-test-cluster>"))
		Eventually(s.counts(ctx, check)).Should(Equal([]int{3, 2}))
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
		s.change(ctx, check, func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = nil })
		req := s.request(ctx, "a")
		Expect(req.GetKind()).To(Equal("PoisonPillRemediation"))
		Expect(s.nodesRequested(ctx)()).To(Equal([]string{"a"}))

		s.change(ctx, check, func(c *nhcv1.NodeHealthCheck) { c.Spec.PauseRequests = []string{"again"} })
		Eventually(s.phase(ctx, check)).Should(HavePrefix("Paused"))
		Expect(s.isLeaving(ctx, req)()).To(BeFalse(), "what has started continues")
		Expect(s.isGone(ctx, req)()).To(BeFalse())
		s.recovers(ctx, "a")
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(s.counts(ctx, check)).Should(Equal([]int{3, 3}))
	})

})

var _ = Describe("Bad input:", func() {
	once("a template whose CRD is installed later is found then", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(corev1.ObjectReference{
			APIVersion: late.kind.GroupVersion().String(), Kind: late.templates().Kind, Namespace: s.name, Name: "late",
		}))
		s.fails(ctx, "w1")
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.installs(ctx, late.kind, late.templates())
		s.template(ctx, late, "late")
		s.clock.Step(15 * time.Second)
		s.request(ctx, "w1")
	})

	for _, m := range []mode{{escalating: true}, {escalating: true, several: true}} {
		in(m, "a remediator that removes the annotations of its request causes no step to be skipped or repeated ("+m.String()+")", func(ctx context.Context, s *environment) {
			s.workers(ctx, 3)
			s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
			strip := func(req *unstructured.Unstructured) {
				GinkgoHelper()
				s.rewrite(ctx, req, func(u *unstructured.Unstructured) {
					u.SetAnnotations(nil)
					u.SetLabels(nil)
				})
				s.settle("check")
			}
			all := func() []string {
				kinds := []string{}
				for _, u := range s.allRequests(ctx) {
					kinds = append(kinds, u.GetKind())
				}
				return kinds
			}
			s.fails(ctx, "w1")
			req := s.request(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft"}))
			strip(req)
			Expect(all()).To(Equal([]string{"RebootRemediation"}))
			Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1: RebootRemediation/soft"}))
			s.clock.Step(step)
			Eventually(all).Should(Equal([]string{"RebootRemediation", "ReplaceRemediation"}))
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft*, ReplaceRemediation/hard"}))
			strip(req) // the one that says it has timed out, too
			strip(s.allRequests(ctx)[1])
			s.settle("check")
			Expect(all()).To(Equal([]string{"RebootRemediation", "ReplaceRemediation"}))
			Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1: RebootRemediation/soft*, ReplaceRemediation/hard"}))
			s.recovers(ctx, "w1")
			Eventually(all).Should(BeEmpty())
		})
	}
})
