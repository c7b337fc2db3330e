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

	in(ladders, "one bad template of a ladder disables the check, and remediations under way end", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.deleteTemplate(ctx, replace, "hard")
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateNotFound"))
		s.fails(ctx, "w2")
		s.settle("check")
		s.clock.Step(step)
		Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
		s.settle("check")
		Expect(s.nodesRequested(ctx)()).To(Equal([]string{"w1"}))
		s.recovers(ctx, "w1")
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(s.lease).WithArguments(ctx, "w1").Should(BeNil())
	})

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

	once("a selector that selects no node leaves the check with nothing to do, and the status says so", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), selecting("no", "such"))
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
		Expect(s.counts(ctx, "check")()).To(Equal([]int{0, 0}))
		s.fails(ctx, "w1")
		s.settle("check")
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
	})

	once("a selector that does not parse disables the check", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.Selector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Resembles"}}}
		})
		Eventually(s.of(ctx, "check", nhcv1.DisabledCondition)).Should(Equal("True/SelectorInvalid"))
		Expect(s.message(ctx, "check", nhcv1.DisabledCondition)()).To(ContainSubstring("Resembles"))
	})

	once("conditions that match no node make none unhealthy", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")), func(c *nhcv1.NodeHealthCheck) {
			c.Spec.UnhealthyConditions = []nhcv1.UnhealthyCondition{{Type: "Ready", Status: "Maybe", Duration: metav1.Duration{Duration: time.Second}}}
		})
		s.fails(ctx, "w1")
		s.settle("check")
		Eventually(s.counts(ctx, "check")).Should(Equal([]int{3, 3}))
		Expect(s.nodesRequested(ctx)()).To(BeEmpty())
	})

	inEveryMode("kubemend waits for a remediator that never answers, and the status says so", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.clock.Step(24 * time.Hour)
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(HaveLen(1))
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		if s.escalating {
			Eventually(s.timedOut(ctx, req)).ShouldNot(BeEmpty())
			Eventually(s.events(ctx, "check", "NoTemplateLeft")).Should(HaveLen(1))
			return
		}
		Expect(s.timedOut(ctx, req)()).To(BeEmpty())
		Expect(s.holder(ctx, "w1")()).To(Equal("check"))
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

	inEveryMode("a request that keeps its finalizer keeps its node from counting as healthy, and from a new remediation", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.keeps(ctx, req)
		s.settle("check")
		s.recovers(ctx, "w1")
		Eventually(s.isLeaving(ctx, req)).Should(BeTrue())
		s.fails(ctx, "w1")
		s.settle("check")
		s.clock.Step(time.Hour)
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(HaveLen(1))
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		Eventually(s.events(ctx, "check", "RemediationRemoved")).Should(HaveLen(1))
		s.removesFinalizers(ctx, req)
		if s.escalating {
			return // its time was over
		}
		Eventually(func() bool {
			found := s.about(ctx, "w1")
			return len(found) == 1 && found[0].GetUID() != req.GetUID()
		}).Should(BeTrue())
	})

	inEveryMode("a request that its remediator deletes is made again while the node is unhealthy, once its finalizers are gone", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.keeps(ctx, req)
		s.isDeleted(ctx, req)
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(HaveLen(1))
		s.removesFinalizers(ctx, req)
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		s.settle("check")
		Expect(s.about(ctx, "w1")).To(BeEmpty(), "one that is deleted at once is not made at once, or that would have no end")
		s.clock.Step(time.Minute)
		s.request(ctx, "w1")
		Expect(s.holder(ctx, "w1")()).To(Equal("check"))
	})

	in(ladders, "a request that is deleted after its timeout is not made again", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", ladder(step, s.template(ctx, reboot, "soft"), s.template(ctx, replace, "hard")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		s.clock.Step(step)
		s.latest(ctx, "w1", 2)
		Eventually(s.listed(ctx, "check")).Should(Equal([]string{"w1: RebootRemediation/soft*, ReplaceRemediation/hard"}))
		s.isDeleted(ctx, req)
		s.settle("check")
		Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"ReplaceRemediation/hard"}))
		Expect(s.listed(ctx, "check")()).To(Equal([]string{"w1: RebootRemediation/soft*, ReplaceRemediation/hard"}))
		s.isDeleted(ctx, s.about(ctx, "w1")[0])
		s.settle("check")
		s.clock.Step(time.Minute)
		Eventually(func() int { return len(s.events(ctx, "check", "RemediationCreated")()) }).Should(Equal(3))
		Eventually(s.requested(ctx, "w1")).Should(Equal([]string{"ReplaceRemediation/hard"}))
	})

	once("replacing a template during a remediation orphans no request", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Eventually(s.phase(ctx, "check")).Should(Equal(remediating))
		s.change(ctx, "check", s.by(s.template(ctx, replace, "hard")))
		s.kill()
		s.start()
		Eventually(s.requested(ctx, "w1")).Should(ConsistOf("RebootRemediation/soft", "ReplaceRemediation/hard"))
		s.recovers(ctx, "w1")
		Eventually(s.requested(ctx, "w1")).Should(BeEmpty())
		Expect(s.isGone(ctx, req)()).To(BeTrue())
		Eventually(s.phase(ctx, "check")).Should(Equal(enabled))
	})

	once("deleting a check during a remediation deletes its requests and its lease", func(ctx context.Context, s *environment) {
		s.workers(ctx, 3)
		c := s.check(ctx, "check", s.by(s.template(ctx, reboot, "soft")))
		s.fails(ctx, "w1")
		req := s.request(ctx, "w1")
		Expect(req.GetOwnerReferences()).To(ConsistOf(HaveField("UID", c.UID)), "the garbage collector of Kubernetes is to know whose it is")
		series := map[string]string{"name": s.called("w1"), "remediation": "RebootRemediation"}
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", series).Should(BeEquivalentTo(1))
		Expect(s.here.Delete(ctx, c)).To(Succeed())
		Eventually(s.metric).WithArguments("nodehealthcheck_ongoing_remediation", series).Should(BeEquivalentTo(-1))
		Eventually(s.isGone(ctx, req)).Should(BeTrue())
		Eventually(func() string {
			s.clock.Step(15 * time.Second) // no watch event reports the end of what a deleted check has orphaned
			return s.holder(ctx, "w1")()
		}).Should(BeEmpty())
	})
})
