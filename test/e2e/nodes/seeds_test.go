package nodes

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/test/suite"
)

const sample = "nodehealthcheck-sample"

// The manifests are those of medik8s' and OKD's documentation. Their remediators know nothing of kubemend, and bring their own rights.
var _ = Describe("The manifests of the documentation", func() {
	BeforeEach(func(ctx SpecContext) { allHealthy(ctx) })
	AfterEach(func(ctx SpecContext) { leaveAsFound(ctx) })

	It("of OKD begin nothing while they are paused, and then have a worker remediated by Poison Pill (seed 001)", func(ctx SpecContext) {
		createObjects(ctx, suite.Seed("001/nodehealthcheck.yaml"))
		Eventually(said(ctx, sample, nhcv1.DisabledCondition)).Should(Equal("True/RemediationTemplateForbidden"), "its remediator has not come yet, with its rights")
		create(ctx, filepath.Join("testdata", "seed-001-remediator.yaml"))
		create(ctx, filepath.Join("..", "..", "..", "controllers", "nodehealthcheck", "testdata", "roles", "poison-pill-0.1.yaml"))
		Eventually(said(ctx, sample, nhcv1.DisabledCondition)).Should(Equal("False/NodeHealthCheckEnabled"))
		Eventually(counts(ctx, sample)).Should(Equal("4 of 4"), "the control plane is not selected")
		name := metal.WorkerNames(ctx)[1]

		longSilent(ctx, name, sample)

		Eventually(counts(ctx, sample)).Should(Equal("3 of 4"))
		Expect(check(ctx, sample).Status.Phase).To(Equal(nhcv1.PhasePaused))
		Expect(none(ctx, pill)()).To(BeEmpty())
		unpause := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"pauseRequests":null}}`))
		Expect(here.Patch(ctx, check(ctx, sample), unpause)).To(Succeed())
		asked := requested(ctx, pill, "openshift-operators", name)
		Expect(asked.Object["spec"]).To(Equal(map[string]any{"remediationStrategy": "NodeDeletion"}))
		ownedByCheck(ctx, asked)
		comesBack(ctx, name)
	}, SpecTimeout(specPatience))
})

// ownedByCheck checks that a request says who made it, as the documentation shows it.
func ownedByCheck(ctx context.Context, asked *unstructured.Unstructured) {
	GinkgoHelper()
	Expect(asked.GetOwnerReferences()).To(ContainElement(And(
		HaveField("APIVersion", nhcv1.GroupVersion.String()), HaveField("Kind", "NodeHealthCheck"),
		HaveField("Name", sample), HaveField("UID", check(ctx, sample).UID))))
}

// comesBack waits until a node is healthy and the requests for it are gone. None of it needed a right that the manager does not have.
func comesBack(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(metal.Ready).WithArguments(ctx, name).Should(Equal(corev1.ConditionTrue))
	Eventually(none(ctx, pill)).Should(BeEmpty())
	Eventually(func() []nhcv1.UnhealthyNode { return check(ctx, sample).Status.UnhealthyNodes }).Should(BeEmpty())
	Eventually(told(ctx, sample, nhcv1.EventRemediationCreated)).Should(BeTrue())
	Eventually(told(ctx, sample, nhcv1.EventRemediationRemoved)).Should(BeTrue())
	Eventually(func() nhcv1.Phase { return check(ctx, sample).Status.Phase }).Should(Equal(nhcv1.PhaseEnabled))
	log, err := os.ReadFile(manager.Log)
	Expect(err).NotTo(HaveOccurred())
	Expect(string(log)).NotTo(MatchRegexp(`cannot (create|update|patch|delete)`))
}
