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

var _ = Describe("Bad input:", func() {
	for text, content := range suite.InOrder(map[string]any{
		"no spec":                  nil,
		"no spec.template":         map[string]any{"other": "thing"},
		"a text as spec.template":  map[string]any{"template": "text"},
		"a text as its spec":       map[string]any{"template": map[string]any{"spec": "text"}},
		"a list as spec, the last": []any{"text"},
	}) {
		inModes("seed 2.6: a template with "+text+" disables the check, until it is fixed", []mode{{}, {escalating: true}}, func(ctx context.Context, s *environment) {
			bad := s.template(ctx, reboot, "bad", func(t *unstructured.Unstructured) {
				delete(t.Object, "spec")
				if content != nil {
					t.Object["spec"] = content
				}
			})
			s.workers(ctx, 3)
			s.check(ctx, "check", s.by(bad))
			Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateInvalid"))
			Expect(s.message(ctx, "check", nhcv1.DisabledCondition)()).To(HavePrefix(
				`Remediation template is invalid: "invalid template ` + s.name + `/bad, didn't find spec.template.spec"`))
			Expect(s.phase(ctx, "check")()).To(HavePrefix("Disabled: NHC is disabled: RemediationTemplateInvalid: "))
			Eventually(s.events(ctx, "check", "Disabled")).Should(HaveLen(1))
			s.fails(ctx, "w1")
			Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1"}))
			Expect(s.about(ctx, "w1")).To(BeEmpty())
			s.template(ctx, reboot, "bad")
			s.request(ctx, "w1")
		})
	}

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
