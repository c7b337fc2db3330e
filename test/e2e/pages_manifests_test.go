package e2e

import (
	"fmt"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/fences"
	"github.com/kubemend/kubemend/test/suite"
)

// elsewhere are kinds that no API server of the rig has, and that test/packages holds to what a release has.
var elsewhere = []string{"AddonProvider", "CAPIProvider", "Kustomization"}

var _ = Describe("The manifests in the pages", func() {
	It("are accepted by the API server, and by its webhooks, with no field that it does not know", func(ctx SpecContext) {
		pages, err := fences.Pages(project)
		Expect(err).NotTo(HaveOccurred())
		Expect(builders.Apply(ctx, here, builders.Namespace("default"))).To(Succeed())
		applied, wrong := 0, []string(nil)
		for _, page := range pages {
			blocks, err := fences.Read(project, page)
			Expect(err).NotTo(HaveOccurred())
			for _, b := range blocks {
				if b.Language != "yaml" || b.Has(fences.Fragment) {
					continue
				}
				for _, o := range suite.Objects([]byte(b.Text)) {
					if slices.Contains(elsewhere, o.GetKind()) {
						continue
					}
					mapping, err := here.RESTMapper().RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
					if err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
						o.SetNamespace(fixture.Namespace) // the one of the page need not exist
					}
					if err == nil {
						if here.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopy()) == nil {
							o.SetName(o.GetName() + "-of-a-page") // what is here is another one
						}
						err = here.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.ForceOwnership, client.FieldOwner("pages"))
					}
					if err != nil {
						wrong = append(wrong, fmt.Sprintf("%s: %s %s: %v", b.At(), o.GetKind(), o.GetName(), err))
					}
					applied++
				}
			}
		}
		Expect(wrong).To(BeEmpty())
		Expect(applied).To(BeNumerically(">=", 12))
	}, SpecTimeout(specPatience))
})
