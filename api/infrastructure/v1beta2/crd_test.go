package v1beta2_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// The names by which clients of CAPM3 know its kinds.
var metal3Names = map[string]apiextensionsv1.CustomResourceDefinitionNames{
	"infrastructure.cluster.x-k8s.io_metal3remediations.yaml": {
		Kind: "Metal3Remediation", ListKind: "Metal3RemediationList",
		Plural: "metal3remediations", Singular: "metal3remediation",
		ShortNames: []string{"m3r", "m3remediation"}, Categories: []string{"cluster-api"},
	},
	"infrastructure.cluster.x-k8s.io_metal3remediationtemplates.yaml": {
		Kind: "Metal3RemediationTemplate", ListKind: "Metal3RemediationTemplateList",
		Plural: "metal3remediationtemplates", Singular: "metal3remediationtemplate",
		ShortNames: []string{"m3rt", "m3remediationtemplate", "m3remediationtemplates", "metal3rt", "metal3remediationtemplate"},
		Categories: []string{"cluster-api"},
	},
}

func TestMetal3KindsAreThoseOfCAPM3(t *testing.T) {
	for file, names := range metal3Names {
		t.Run(names.Kind, func(t *testing.T) {
			crd := read(t, file)
			must.Equal(t, names, crd.Spec.Names, "names")
			type version struct{ served, stored, deprecated, status bool }
			got := map[string]version{}
			for _, v := range crd.Spec.Versions {
				got[v.Name] = version{v.Served, v.Storage, v.Deprecated, v.Subresources != nil && v.Subresources.Status != nil}
			}
			want := map[string]version{"v1beta1": {true, false, true, true}, "v1beta2": {true, true, false, true}}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(version{})); diff != "" {
				t.Errorf("versions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestColumnsOfAMetal3Remediation(t *testing.T) {
	want := map[string]string{
		"Retry limit": ".spec.strategy.retryLimit", "Retry count": ".status.retryCount", "Last Remediated": ".status.lastRemediated",
		"Strategy": ".spec.strategy.type", "Phase": ".status.phase",
	}
	for _, v := range read(t, "infrastructure.cluster.x-k8s.io_metal3remediations.yaml").Spec.Versions {
		got := map[string]string{}
		for _, column := range v.AdditionalPrinterColumns {
			got[column.Name] = column.JSONPath
			must.Is(t, "string", column.Type, "%s: column %s is of type", v.Name, column.Name)
		}
		must.Equal(t, want, got, "%s", v.Name)
	}
}

// These CRDs must not have the label cluster.x-k8s.io/provider, which says that CAPM3 is installed. clusterctl move needs the label
// clusterctl.cluster.x-k8s.io to discover a kind. It moves templates because of one more label, and remediations with the Machine that owns
// them.
func TestLabels(t *testing.T) {
	for file, want := range map[string]map[string]string{
		"infrastructure.cluster.x-k8s.io_metal3remediations.yaml": {
			"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2",
			"clusterctl.cluster.x-k8s.io": "",
		},
		"infrastructure.cluster.x-k8s.io_metal3remediationtemplates.yaml": {
			"cluster.x-k8s.io/v1beta1": "v1beta1", "cluster.x-k8s.io/v1beta2": "v1beta2",
			"clusterctl.cluster.x-k8s.io": "", "clusterctl.cluster.x-k8s.io/move": "",
		},
		"kubemend.io_hostremediations.yaml": {
			"cluster.x-k8s.io/v1beta2": "v1alpha1", "clusterctl.cluster.x-k8s.io": "",
		},
		"kubemend.io_hostremediationtemplates.yaml": {
			"cluster.x-k8s.io/v1beta2": "v1alpha1", "clusterctl.cluster.x-k8s.io": "", "clusterctl.cluster.x-k8s.io/move": "",
		},
	} {
		must.Equal(t, want, read(t, file).Labels, "%s", file)
	}
}

// The bounds in the schema are the same as the constants.
func TestBoundsOfAStrategy(t *testing.T) {
	for _, v := range read(t, "infrastructure.cluster.x-k8s.io_metal3remediations.yaml").Spec.Versions {
		if v.Name != v1beta2.GroupVersion.Version {
			continue
		}
		strategy := v.Schema.OpenAPIV3Schema.Properties["spec"].Properties["strategy"].Properties
		for field, want := range map[string]struct {
			least    float64
			standard string
		}{
			"retryLimit":     {v1beta2.DefaultRetryLimit, "1"},
			"timeoutSeconds": {100, "600"},
		} {
			must.Is(t, want.least, *strategy[field].Minimum, "%s is at least", field)
			if got := string(strategy[field].Default.Raw); got != want.standard {
				t.Errorf("%s is %s if it is missing, want %s", field, got, want.standard)
			}
		}
	}
}

func read(t *testing.T, file string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", file))
	must.Do(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Do(t, yaml.UnmarshalStrict(content, crd))
	return crd
}
