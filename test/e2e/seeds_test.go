package e2e

import (
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/suite"
)

// The names that the manifests have.
const (
	workersCheck      = "capi-quickstart-node-unhealthy-5m"
	controlPlaneCheck = "capi-quickstart-kcp-unhealthy-5m"
)

const targets = "kubemend_machinehealthcheck_targets"

// The manifests are those of the documentation of Cluster API, as printed but for the Cluster, in the version that it prints and in the newer one.
var _ = Describe("The checks of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { fixture.AllWell(ctx) })

	DescribeTable("are accepted, observed and left alone, and acted on once they are claimed",
		func(ctx SpecContext, printed func() []*unstructured.Unstructured) {
			for _, manifest := range printed() {
				manifest.SetNamespace(fixture.Namespace)
				Expect(unstructured.SetNestedField(manifest.Object, fixture.Name, "spec", "clusterName")).To(Succeed())
				Expect(here.Create(ctx, manifest, client.FieldValidation("Strict"))).To(Succeed())
				DeferCleanup(func(ctx SpecContext) { Expect(here.Delete(ctx, manifest)).To(Succeed()) })
			}
			judged := map[string]int{workersCheck: int(fixture.Workers), controlPlaneCheck: fixture.ControlPlanes}
			for name, number := range judged {
				Eventually(suite.Metric(ctx, manager, targets, `name="`+name+`"`, `state="healthy"`)).Should(Equal(strconv.Itoa(number)))
			}
			for name := range judged {
				Expect(writers(named(ctx, name))).NotTo(HaveKey("kubemend"))
			}

			for name, number := range judged {
				suite.Annotate(ctx, here, named(ctx, name), clusterv1.PausedAnnotation, ptr.To(builders.ClaimedBy))
				Eventually(said(ctx, name, mendv1.WorkloadClusterReachable)).Should(Equal("True/Reachable"))
				Eventually(counts(ctx, name)).Should(Equal(strconv.Itoa(number) + " of " + strconv.Itoa(number)))
				Eventually(said(ctx, name, clusterv1.PausedCondition)).Should(Equal("True/Paused"))
			}
			before, marked := identities(ctx), fixture.WorkerNames(ctx)[0]
			suite.Annotate(ctx, here, fixture.Machine(ctx, marked), clusterv1.RemediateMachineAnnotation, ptr.To(""))
			Eventually(reasons(ctx, named(ctx, workersCheck), marked)).Should(ContainElement(mendv1.EventMachineMarkedUnhealthy))
			replaced(ctx, before, marked)
		},
		Entry("in v1beta1", SpecTimeout(specPatience), func() []*unstructured.Unstructured {
			return append(suite.Seed("004/workers.yaml"), suite.Seed("004/control-plane.yaml")...)
		}),
		Entry("in v1beta2", SpecTimeout(specPatience), func() []*unstructured.Unstructured {
			return append(suite.Manifest("testdata/seed-004-workers-v1beta2.yaml"), suite.Manifest("testdata/seed-004-control-plane-v1beta2.yaml")...)
		}),
	)
})
