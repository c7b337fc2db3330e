package cli

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

var _ = Describe("For all checks of a Cluster or a Namespace", Serial, func() {
	for what, by := range map[string]string{"cluster/": "Cluster", "namespace/": "Namespace"} {
		It("claim "+what+"NAME claims those that are there and those that come, and release releases them", func(ctx SpecContext) {
			fixture.AllWell(ctx)
			object := what + map[string]string{"cluster/": fixture.Cluster.Name, "namespace/": fixture.Namespace}[what]
			DeferCleanup(func(ctx SpecContext) { unlabelled(ctx) })
			early := fixture.checked(ctx, "early")

			labelled := mend(ctx, "claim", object, "--yes")
			Expect(labelled.code).To(Equal(done), labelled.out+labelled.complaint)
			Eventually(claimOf(ctx, early)).Should(Equal("kubemend by " + by + ", written by " + mendv1.ClaimFieldOwner))
			e := explained(ctx, "mhc/"+early.Name)
			Expect(e.Checks[0].Mode).To(Equal(cliv1.ModeActing))
			Expect(mend(ctx, "explain", "mhc/"+early.Name).out).To(ContainSubstring("the label kubemend.io/machine-health-checks: act on " + by))

			By("making a check later, and anew as the controller of a topology does")
			late := fixture.checked(ctx, "late")
			Eventually(claimOf(ctx, late)).Should(HavePrefix("kubemend by " + by))
			Expect(here.Delete(ctx, late)).To(Succeed())
			anew := late.DeepCopy()
			anew.ObjectMeta = metav1.ObjectMeta{Namespace: late.Namespace, Name: late.Name, Labels: late.Labels}
			Expect(here.Create(ctx, anew)).To(Succeed())
			Expect(anew.UID).NotTo(Equal(late.UID))
			Eventually(claimOf(ctx, anew)).Should(HavePrefix("kubemend by " + by))

			By("removing the label")
			Expect(mend(ctx, "release", "mhc/"+early.Name, "--yes", "--force").code).To(Equal(refused), "it would be claimed again at once")
			released := mend(ctx, "release", object, "--yes", "--force") // core elects no leader here
			Expect(released.code).To(Equal(done), released.out+released.complaint)
			for _, check := range []*clusterv1.MachineHealthCheck{early, anew} {
				Eventually(claimOf(ctx, check)).Should(BeEmpty())
				Eventually(func() bool { return conditions.IsFalse(fixture.stored(ctx, check.Name), clusterv1.PausedCondition) }).Should(BeTrue(), "core acts on it")
			}
		}, SpecTimeout(specPatience))
	}

	It("claim says that Flux removes a label that kubectl wrote, and what belongs into Git", func(ctx SpecContext) {
		fixture.AllWell(ctx)
		DeferCleanup(func(ctx SpecContext) { unlabelled(ctx) })
		const flux = "kustomize.toolkit.fluxcd.io/name"
		label(ctx, map[string]any{flux: "fleet"}, "kustomize-controller")
		DeferCleanup(func(ctx SpecContext) { label(ctx, map[string]any{flux: nil}, "kustomize-controller") })
		first := mend(ctx, "claim", "cluster/"+fixture.Cluster.Name, "--dry-run")
		Expect(plain(first.out)).To(ContainSubstring("Flux (Kustomization fleet) applies the Cluster, and leaves the label alone as long as Git says nothing of it"))

		label(ctx, map[string]any{mendv1.ClaimLabel: mendv1.ClaimLabelAct}, "kubectl-label")
		again := mend(ctx, "claim", "cluster/"+fixture.Cluster.Name, "--yes")
		Expect(again.code).To(Equal(done), again.complaint)
		Expect(plain(again.out)).To(ContainSubstring("Flux (Kustomization fleet) removes it at its next reconcile, since it was written as kubectl-label"))
	}, SpecTimeout(specPatience))
})

// claimOf is what a check says of its claim, and which field manager wrote that; empty if it has none.
func claimOf(ctx context.Context, check *clusterv1.MachineHealthCheck) func() string {
	return func() string {
		c := fixture.stored(ctx, check.Name)
		value, has := c.Annotations[clusterv1.PausedAnnotation]
		if !has {
			return ""
		}
		at := slices.IndexFunc(c.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
			return e.FieldsV1 != nil && strings.Contains(string(e.FieldsV1.GetRawBytes()), `"f:`+clusterv1.PausedAnnotation+`"`)
		})
		if at < 0 {
			return value
		}
		return value + " by " + c.Annotations[mendv1.ClaimedByAnnotation] + ", written by " + c.ManagedFields[at].Manager
	}
}

// label sets labels of the fixture's Cluster, or removes them, under the name of a field manager.
func label(ctx context.Context, labels map[string]any, manager string) {
	GinkgoHelper()
	Expect(here.Patch(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: fixture.Namespace, Name: fixture.Cluster.Name}},
		merge(labels), client.FieldOwner(manager))).To(Succeed())
}

// unlabelled removes the label that claims checks, wherever a spec may have left it.
func unlabelled(ctx context.Context) {
	GinkgoHelper()
	label(ctx, map[string]any{mendv1.ClaimLabel: nil}, "e2e")
	Expect(here.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fixture.Namespace}},
		merge(map[string]any{mendv1.ClaimLabel: nil}), client.FieldOwner("e2e"))).To(Succeed())
}

// plain is a text without its line breaks.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

// merge is a patch of labels.
func merge(labels map[string]any) client.Patch {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	Expect(err).NotTo(HaveOccurred())
	return client.RawPatch(types.MergePatchType, patch)
}
