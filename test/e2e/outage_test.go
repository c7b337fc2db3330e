package e2e

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("A workload cluster that the manager does not reach", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	It("has no remediation because of it, respects marks by users, and is judged again afterwards", func(ctx SpecContext) {
		check := applyTemplate(ctx, map[string]string{"MAX_UNHEALTHY": "100%"})
		before := identities(ctx)

		By("cutting the line")
		line.Cut()
		up := false
		restore := func() {
			if !up {
				Expect(line.Mend()).To(Succeed())
				up = true
			}
		}
		DeferCleanup(restore)
		Eventually(said(ctx, check.Name, mendv1.WorkloadClusterReachable)).Should(Equal("False/Unreachable"))
		untouched(ctx, before)

		By("marking a machine")
		marked, lost := fixture.WorkerNames(ctx)[0], fixture.WorkerNames(ctx)[1]
		changeMachine(ctx, marked, func(m *clusterv1.Machine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, clusterv1.RemediateMachineAnnotation, "")
		})
		replaced(ctx, before, marked)
		Expect(said(ctx, check.Name, mendv1.WorkloadClusterReachable)()).To(Equal("False/Unreachable"))

		By("mending the line")
		restore()
		Eventually(said(ctx, check.Name, mendv1.WorkloadClusterReachable)).Should(Equal("True/ReachableAgain"))
		Eventually(counts(ctx, check.Name)).Should(Equal("5 of 5"))
		Eventually(reasons(ctx, check, check.Name)).Should(ContainElements(mendv1.EventUnreachable, mendv1.EventReachable))
		replaced(ctx, before, marked)
		fixture.AllWell(ctx)

		By("deleting a node, of which only a watch on the new connection can tell")
		before = identities(ctx)
		Expect(fixture.There.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: lost}})).To(Succeed())
		replaced(ctx, before, lost)
		fixture.AllWell(ctx)
	}, SpecTimeout(specPatience))
})
