package simulator

import (
	"fmt"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallRemediator installs CRDs for the requests and templates of a remediator, and returns when they are served. Their schemas allow any
// content.
func InstallRemediator(cluster *rest.Config, requests schema.GroupVersionKind) error {
	templates := requests.GroupVersion().WithKind(requests.Kind + "Template")
	_, err := envtest.InstallCRDs(cluster, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{anything(requests), anything(templates)},
	})
	if err != nil {
		return fmt.Errorf("install the kinds of remediator %s: %w", requests.Kind, err)
	}
	return nil
}

func anything(kind schema.GroupVersionKind) *apiextensionsv1.CustomResourceDefinition {
	singular := strings.ToLower(kind.Kind)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: singular + "s." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, ListKind: kind.Kind + "List", Plural: singular + "s",
				Singular: singular},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
				},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}
