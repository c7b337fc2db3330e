package nodes

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/kubemend/kubemend/test/builders"
)

// remediator is a kind of requests with its kind of templates. The specs play its controller.
type remediator struct {
	kind   schema.GroupVersionKind // of the requests
	global bool                    // both kinds are cluster-scoped
}

func named(group, kind string) remediator {
	return remediator{kind: schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: kind}}
}

// The remediators that are installed: two that know only the contract, one of objects without namespace, those of medik8s, and that of
// the first documentation.
var (
	reboot    = named("test.kubemend.io", "RebootRemediation")
	replace   = named("test.kubemend.io", "ReplaceRemediation")
	global    = remediator{kind: schema.GroupVersionKind{Group: "test.kubemend.io", Version: "v1alpha1", Kind: "GlobalRemediation"}, global: true}
	selfNode  = named("self-node-remediation.medik8s.io", "SelfNodeRemediation")
	pill      = named("poison-pill.medik8s.io", "PoisonPillRemediation")
	fence     = named("fence-agents-remediation.medik8s.io", "FenceAgentsRemediation")
	deletion  = named("machine-deletion-remediation.medik8s.io", "MachineDeletionRemediation")
	provider  = named("medik8s.io", "ProviderXRemediation")
	misspelt  = named("medik8s.io", "ProviderXRemdiation") // as the first documentation has it where it prints a template
	metal3    = remediator{kind: schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta2", Kind: "Metal3Remediation"}}
	hosts     = named("kubemend.io", "HostRemediation")
	uninvited = named("absent.example.org", "UninstalledRemediation") // whose kinds are not installed

	remediators = []remediator{reboot, replace, global, selfNode, pill, fence, deletion, provider, misspelt}
)

// templates is the kind of the remediator's templates.
func (r remediator) templates() schema.GroupVersionKind {
	return r.kind.GroupVersion().WithKind(r.kind.Kind + "Template")
}

func (r remediator) crds() []*apiextensionsv1.CustomResourceDefinition {
	scope := apiextensionsv1.NamespaceScoped
	if r.global {
		scope = apiextensionsv1.ClusterScoped
	}
	return []*apiextensionsv1.CustomResourceDefinition{anything(r.kind, scope), anything(r.templates(), scope)}
}

// anything is the definition of a kind that may hold whatever it likes.
func anything(kind schema.GroupVersionKind, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: scope,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: singular + "s", Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
				}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

// install installs kinds, and returns when they are served.
func install(ctx context.Context, to client.Client, crds ...*apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	objects := make([]client.Object, 0, len(crds))
	for _, crd := range crds {
		crd.TypeMeta = metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}
		objects = append(objects, crd)
	}
	Expect(builders.Apply(ctx, to, objects...)).To(Succeed())
	Expect(envtest.WaitForCRDs(plane.Config(), crds, envtest.CRDInstallOptions{MaxTime: time.Minute, PollInterval: 100 * time.Millisecond})).To(Succeed())
}
