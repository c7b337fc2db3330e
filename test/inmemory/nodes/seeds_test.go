package nodes

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

// corrected is the template of the first documentation, with its kind spelled as the check of that documentation spells it.
func corrected() *unstructured.Unstructured {
	GinkgoHelper()
	template := suite.Seed("000/template.yaml")[0]
	template.SetKind(provider.templates().Kind)
	return template
}

// manifest makes an object as a seed has it; but its namespace, if it has one, is the environment's, and so is that of a template which it
// names.
func (e *environment) manifest(u *unstructured.Unstructured) {
	e.Helper()
	if u.GetNamespace() != "" {
		u.SetNamespace(e.namespace)
	} else {
		e.must(unstructured.SetNestedField(u.Object, e.namespace, "spec", "remediationTemplate", "namespace"))
	}
	e.puts(u)
}

// Which other tests hold what the documents say is in test/RULES.md, sentence by sentence.
var _ = Describe("The manifests of", func() {
	once("seed 0.1, 0.2, 0.7, 0.8, 0.9, 0.10, 0.11, 0.14, 0.15, 0.19, 0.23: the first documentation work as they are", func(s *environment) {
		s.knows(provider)
		s.workers(2)
		s.node("w3", labelled("pool", "another")) // all nodes are selected
		s.manifest(corrected())
		s.manifest(suite.Seed("000/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		Eventually(s.phase(check)).Should(Equal(enabled))
		Expect(s.counts(check)()).To(Equal([]int{3, 3}))
		Expect(s.getCheck(check).Spec.UnhealthyConditions).To(HaveLen(2))

		s.reports("w3", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts(check)).Should(Equal([]int{3, 2}))
		s.leaps(patience)
		req := s.request("w3")
		Expect(req.GetKind()).To(Equal("ProviderXRemediation"))
		Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
		Expect(req.GetOwnerReferences()[0].APIVersion).To(Equal("remediation.medik8s.io/v1alpha1"))
		s.fails("w1") // two of three are more than 49%
		Eventually(s.allowed(check)).Should(Equal("False/TooManyUnhealthy"))
		Expect(s.of("w1")).To(BeEmpty())
		s.recovers("w3")
		s.request("w1")
		Expect(s.of("w3")).To(BeEmpty())
	})

	once("seed 000: the first documentation, as they are spelled there, leave the check without its template", func(s *environment) {
		s.knows(misspelt)
		s.workers(3)
		s.manifest(suite.Seed("000/template.yaml")[0])
		s.manifest(suite.Seed("000/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		Eventually(s.checkSays(check, nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.fails("w1")
		Eventually(s.counts(check)).Should(Equal([]int{3, 2}))
		Expect(s.of("w1")).To(BeEmpty())
	})

	once("seed 1.3, 1.2, 1.4, 1.5, 1.7, 1.8, 1.9, 1.11: OKD's documentation work as they are, with Poison Pill", func(s *environment) {
		s.template(pill, "group-x")
		worker := labelled("node-role.kubernetes.io/worker", "")
		for _, name := range []string{"a", "b", "c"} {
			s.node(name, worker)
		}
		s.node("other")
		s.manifest(suite.Seed("001/nodehealthcheck.yaml")[0])
		const check = "nodehealthcheck-sample"
		s.fails("a", "other")
		Eventually(s.phase(check)).Should(Equal("Paused: NHC is paused: <pause-test-cluster>"))
		Eventually(s.counts(check)).Should(Equal([]int{3, 2}))
		Expect(s.nodesRequested()()).To(BeEmpty())
		s.change(check, pausedBy())
		req := s.request("a")
		Expect(req.GetKind()).To(Equal("PoisonPillRemediation"))
		Expect(s.nodesRequested()()).To(Equal([]string{"a"}))

		s.change(check, pausedBy("again"))
		Eventually(s.phase(check)).Should(HavePrefix("Paused"))
		Expect(s.isLeaving(req)()).To(BeFalse(), "what has started continues")
		Expect(s.isGone(req)()).To(BeFalse())
		s.recovers("a")
		Eventually(s.isGone(req)).Should(BeTrue())
		Eventually(s.counts(check)).Should(Equal([]int{3, 3}))
	})

})

var _ = Describe("Bad input:", func() {
	once("a template whose CRD is installed later is found then", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(corev1.ObjectReference{
			APIVersion: late.kind.GroupVersion().String(), Kind: late.templates().Kind, Namespace: s.namespace, Name: "late",
		}))
		s.fails("w1")
		Eventually(s.checkSays("check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.installs(late.kind, late.templates())
		s.template(late, "late")
		s.leaps(15 * time.Second)
		s.request("w1")
	})

	inModes("a remediator that removes the annotations of its request causes no step to be skipped or repeated",
		[]mode{{escalating: true}, {escalating: true, several: true}}, func(s *environment) {
			s.workers(3)
			s.check("check", escalating(s.template(reboot, "soft"), s.template(replace, "hard")))
			strip := func(req *unstructured.Unstructured) {
				GinkgoHelper()
				u := s.again(req)
				u.SetAnnotations(nil)
				u.SetLabels(nil)
				s.must(s.here.Update(s.Context(), u))
				s.settle("check")
			}
			all := func() []string {
				kinds := []string{}
				for _, u := range s.requests() {
					kinds = append(kinds, u.GetKind())
				}
				return kinds
			}
			s.fails("w1")
			req := s.request("w1")
			Eventually(s.listed("check")).Should(Equal([]string{"w1: Reboot/soft"}))
			strip(req)
			Expect(all()).To(Equal([]string{"RebootRemediation"}))
			Expect(s.listed("check")()).To(Equal([]string{"w1: Reboot/soft"}))
			s.leaps(step)
			Eventually(all).Should(Equal([]string{"RebootRemediation", "ReplaceRemediation"}))
			Eventually(s.listed("check")).Should(Equal([]string{"w1: Reboot/soft*, Replace/hard"}))
			strip(req) // the one that says it has timed out, too
			strip(s.requests()[1])
			s.settle("check")
			Expect(all()).To(Equal([]string{"RebootRemediation", "ReplaceRemediation"}))
			Expect(s.listed("check")()).To(Equal([]string{"w1: Reboot/soft*, Replace/hard"}))
			s.recovers("w1")
			Eventually(all).Should(BeEmpty())
		})
})
