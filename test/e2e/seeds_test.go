package e2e

import (
	"context"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// The names that the manifests have.
const (
	workersCheck      = quickstart + "-node-unhealthy-5m"
	controlPlaneCheck = quickstart + "-kcp-unhealthy-5m"
)

const targets = "kubemend_machinehealthcheck_targets"

// The manifests are those of the documentation of Cluster API, as printed, in the version that it prints and in the newer one.
var _ = Describe("The checks of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { shared.allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { shared.leaveAsFound(ctx) })

	DescribeTable("are accepted, observed and left alone, and acted on once they are claimed",
		func(ctx SpecContext, printed func() []*unstructured.Unstructured) {
			for _, manifest := range printed() {
				manifest.SetNamespace(shared.namespace)
				Expect(here.Create(ctx, manifest, client.FieldValidation("Strict"))).To(Succeed())
			}
			judged := map[string]int{workersCheck: int(shared.workers), controlPlaneCheck: shared.controlPlanes}
			for name, number := range judged {
				Eventually(suite.Metric(ctx, manager, targets, `name="`+name+`"`, `state="healthy"`)).Should(Equal(strconv.Itoa(number)))
			}
			Consistently(func(g Gomega) {
				for name := range judged {
					g.Expect(writers(shared.getCheck(ctx, name))).NotTo(HaveKey("kubemend"))
				}
			}, "3s").Should(Succeed())

			for name, number := range judged {
				shared.claim(ctx, name)
				Eventually(shared.said(ctx, name, mendv1.WorkloadClusterReachable)).Should(Equal("True/Reachable"))
				Eventually(shared.counts(ctx, name)).Should(Equal(strconv.Itoa(number) + " of " + strconv.Itoa(number)))
				Eventually(shared.said(ctx, name, clusterv1.PausedCondition)).Should(Equal("True/Paused"))
			}
			before, marked := shared.identities(ctx), shared.workerNames(ctx)[0]
			shared.annotate(ctx, marked, clusterv1.RemediateMachineAnnotation)
			Eventually(shared.events(ctx, shared.getCheck(ctx, workersCheck), marked, mendv1.EventMachineMarkedUnhealthy)).Should(Equal(1))
			shared.replaced(ctx, before, marked)
		},
		Entry("in v1beta1", SpecTimeout(specPatience), func() []*unstructured.Unstructured {
			return append(suite.Seed("004/workers.yaml"), suite.Seed("004/control-plane.yaml")...)
		}),
		Entry("in v1beta2", SpecTimeout(specPatience), func() []*unstructured.Unstructured {
			return append(suite.Manifest("testdata/seed-004-workers-v1beta2.yaml"), suite.Manifest("testdata/seed-004-control-plane-v1beta2.yaml")...)
		}),
	)
})

// claim hands a check to kubemend.
func (env *environment) claim(ctx context.Context, check string) {
	GinkgoHelper()
	c := env.getCheck(ctx, check)
	before := c.DeepCopy()
	builders.Claimed(c)
	Expect(here.Patch(ctx, c, client.MergeFrom(before))).To(Succeed())
}

// annotate sets an annotation of a machine.
func (env *environment) annotate(ctx context.Context, machine, key string) {
	GinkgoHelper()
	env.changeMachine(ctx, machine, func(m *clusterv1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, "") })
}

// changeMachine changes a machine as it is now. Cluster API writes finalizers too, and a patch replaces all of them: after a conflict the machine is read again.
func (env *environment) changeMachine(ctx context.Context, machine string, change func(*clusterv1.Machine)) {
	GinkgoHelper()
	Eventually(func() error {
		m := env.machines(ctx)[machine]
		before := m.DeepCopy()
		change(m)
		return here.Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	}).Should(Succeed())
}
