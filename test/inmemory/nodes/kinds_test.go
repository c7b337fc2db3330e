package nodes

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

var _ = Describe("Remediators", func() {
	for text, named := range suite.InOrder(map[string]bool{"is not named": false, "is named all the same": true}) {
		inEveryMode("whose kinds have no namespace serve a node once, if one "+text, func(s *environment) {
			s.workers(3)
			template := s.template(global, "soft")
			if named {
				template.Namespace = s.namespace
			}
			s.check("check", s.by(template))
			s.fails("w1")
			req := s.request("w1")
			Expect(req.GetNamespace()).To(BeEmpty())
			Expect(req.Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
			Eventually(s.listed("check")).Should(Equal([]string{"w1: Global/" + template.Name}))
			s.settle("check")
			before := s.getCheck("check").ResourceVersion
			if s.escalating {
				s.leaps(step)
				Eventually(s.annotation(req, nhcv1.TimedOutAnnotation)).ShouldNot(BeEmpty())
			} else {
				s.settle("check")
				Expect(s.getCheck("check").ResourceVersion).To(Equal(before))
			}
			s.recovers("w1")
			Eventually(s.requested("w1")).Should(BeEmpty())
			Eventually(s.phase("check")).Should(Equal(enabled))
		})
	}

	in(ladders, "of one kind in two namespaces are distinguished", func(s *environment) {
		s.workers(3)
		near := s.template(reboot, "soft")
		far := s.template(reboot, "soft", func(t *unstructured.Unstructured) { t.SetNamespace(s.elsewhere) })
		s.check("check", escalating(near, far))
		s.fails("w1")
		s.request("w1")
		s.leaps(step)
		Expect(s.latest("w1", 2).GetNamespace()).To(Equal(s.elsewhere))
		Eventually(s.listed("check")).Should(Equal([]string{"w1: Reboot/soft*, Reboot/soft"}))
		s.leaps(step)
		Eventually(s.events("check", "NoTemplateLeft")).Should(HaveLen(1))
		Expect(s.of("w1")).To(HaveLen(2))
	})

	once("keep the spec of their request when the template changes, and get the new spec in the next request", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		req := s.request("w1")
		s.template(reboot, "soft", sized(43))
		s.settle("check")
		Expect(s.again(req).Object["spec"]).To(Equal(map[string]any{"size": int64(42)}))
		s.fails("w2")
		s.settle("check")
		s.recovers("w1")
		Expect(s.request("w2").Object["spec"]).To(Equal(map[string]any{"size": int64(43)}))
	})

	once("end what they were asked before the check named others, also after a restart and if they took the marks off it",
		func(s *environment) {
			s.workers(3)
			s.check("check", s.by(s.template(reboot, "soft")))
			s.fails("w1")
			req := s.request("w1")
			unlabelled := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":null}}`))
			Expect(s.here.Patch(s.Context(), s.again(req), unlabelled)).To(Succeed())
			s.change("check", s.by(s.template(replace, "hard")))
			s.must(s.program.Kill())
			s.recovers("w1")
			s.must(s.program.Start())
			Eventually(s.isGone(req)).Should(BeTrue())
		})

	once("get a new request for a new node of the same name", func(s *environment) {
		s.workers(3)
		s.check("check", s.by(s.template(reboot, "soft")))
		s.fails("w1")
		req := s.request("w1")
		s.loses("w1")
		s.node("w1")
		Eventually(s.isGone(req)).Should(BeTrue())
		Eventually(s.phase("check")).Should(Equal(enabled))
		s.reports("w1", corev1.NodeReady, corev1.ConditionFalse)
		Eventually(s.counts("check")).Should(Equal([]int{3, 2}))
		s.leaps(patience)
		Expect(s.request("w1").GetUID()).NotTo(Equal(req.GetUID()))
		Expect(s.leases()["w1"].OwnerReferences[0].UID).To(Equal(s.getNode("w1").UID))
	})
})
