package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubemend/kubemend/test/must"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/golden"
)

// The names by which clients of medik8s know the kind.
func TestTheKindIsThatOfMedik8s(t *testing.T) {
	crd := read(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Kind: "NodeHealthCheck", ListKind: "NodeHealthCheckList", Plural: "nodehealthchecks", Singular: "nodehealthcheck", ShortNames: []string{"nhc"},
	}
	must.Equal(t, want, crd.Spec.Names, "names")
	t.Run("seed 0.7: its group, and that it has no namespace", func(t *testing.T) {
		if crd.Spec.Group != "remediation.medik8s.io" || crd.Spec.Scope != apiextensionsv1.ClusterScoped {
			t.Errorf("the kind is of group %s and scope %s", crd.Spec.Group, crd.Spec.Scope)
		}
	})
	if len(crd.Spec.Versions) != 1 {
		t.Fatalf("%d versions, want 1", len(crd.Spec.Versions))
	}
	only := crd.Spec.Versions[0]
	if only.Name != "v1alpha1" || !only.Served || !only.Storage || only.Subresources.Status == nil {
		t.Errorf("version %s: served %v, stored %v, subresources %v", only.Name, only.Served, only.Storage, only.Subresources)
	}
}

func TestColumnsOfANodeHealthCheck(t *testing.T) {
	type column struct{ path, kind string }
	want := map[string]column{
		"Phase":       {".status.phase", "string"},
		"Observed":    {".status.observedNodes", "integer"},
		"Healthy":     {".status.healthyNodes", "integer"},
		"Remediating": {".status.unhealthyNodes[?(@.remediations)].name", "string"},
		"Reason":      {".status.reason", "string"},
		"Age":         {".metadata.creationTimestamp", "date"},
	}
	got := map[string]column{}
	for _, c := range read(t).Spec.Versions[0].AdditionalPrinterColumns {
		got[c.Name] = column{c.JSONPath, c.Type}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(column{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Defaults of other fields would violate rules, or change the meaning of stored objects.
func TestDefaults(t *testing.T) {
	defaults := map[string]string{}
	for field, schema := range read(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties {
		if schema.Default != nil {
			defaults[field] = string(schema.Default.Raw)
		}
	}
	want := `[{"duration":"300s","status":"False","type":"Ready"},{"duration":"300s","status":"Unknown","type":"Ready"}]`
	t.Run("seed 0.14: Ready=False, and Ready=Unknown as well, for five minutes", func(t *testing.T) {
		must.Equal(t, want, defaults["unhealthyConditions"])
	})
	t.Run("seed 0.11: nothing else has one that is stored", func(t *testing.T) {
		must.Equal(t, map[string]string{"unhealthyConditions": want}, defaults)
	})
}

// Old manifests may have fields that were removed: the schema drops them and does not refuse the manifest.
func TestNoUnknownFieldsAreKept(t *testing.T) {
	schema := read(t).Spec.Versions[0].Schema.OpenAPIV3Schema
	for name, s := range map[string]apiextensionsv1.JSONSchemaProps{"the check": *schema, "its spec": schema.Properties["spec"]} {
		if s.XPreserveUnknownFields != nil {
			t.Errorf("%s keeps unknown fields", name)
		}
	}
}

func read(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "config", "crd", "bases", "remediation.medik8s.io_nodehealthchecks.yaml"))
	must.Do(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	must.Do(t, yaml.UnmarshalStrict(content, crd))
	return crd
}

// The names of conditions and events of a check are in the reference; all other names are on the pages for users and authors of
// remediators.
func TestNamesAreDocumented(t *testing.T) {
	wire := page(t, "writing-remediators.md") + page(t, "nodehealthcheck.md") + page(t, "nodehealthcheck-api.md")
	conditions, events := "| condition | reason | meaning |\n|---|---|---|\n", "| reason | type | message |\n|---|---|---|\n"
	for _, constant := range golden.Constants(t, "names.go") {
		before, meaning, commented := strings.Cut(constant.Comment, ": ")
		switch event := strings.HasPrefix(constant.Name, "Event"); {
		case constant.Name == "EventPrefix": // its page has it above the table
		case !event && !strings.HasSuffix(constant.Name, "Reason"):
			t.Run("W35: "+constant.Name, func(t *testing.T) {
				if !strings.Contains(wire, constant.Value) {
					t.Errorf("none of the pages writing-remediators, nodehealthcheck and nodehealthcheck-api explains %q", constant.Value)
				}
			})
		case !commented:
			t.Errorf("the comment of %s does not say what it means", constant.Name)
		case event:
			events += fmt.Sprintf("| `%s` | %s | %s |\n", constant.Value, before, meaning)
		default:
			conditions += fmt.Sprintf("| `%s` | `%s` | %s |\n", before, constant.Value, meaning)
		}
	}
	golden.Section(t, "../../../docs/reference/conditions.md", "reasons of NodeHealthChecks", conditions)
	golden.Section(t, "../../../docs/reference/events.md", "events of NodeHealthChecks", events)
}

func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	must.Do(t, err)
	return string(content)
}
