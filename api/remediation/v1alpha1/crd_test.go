package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// What clients of medik8s know the kind by.
func TestTheKindIsThatOfMedik8s(t *testing.T) {
	crd := read(t)
	want := apiextensionsv1.CustomResourceDefinitionNames{
		Kind: "NodeHealthCheck", ListKind: "NodeHealthCheckList", Plural: "nodehealthchecks", Singular: "nodehealthcheck", ShortNames: []string{"nhc"},
	}
	if diff := cmp.Diff(want, crd.Spec.Names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
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

// Defaults of the others would collide with rules, or change what a stored object means.
func TestDefaults(t *testing.T) {
	defaults := map[string]string{}
	for field, schema := range read(t).Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties {
		if schema.Default != nil {
			defaults[field] = string(schema.Default.Raw)
		}
	}
	want := `[{"duration":"300s","status":"False","type":"Ready"},{"duration":"300s","status":"Unknown","type":"Ready"}]`
	t.Run("seed 0.14: Ready=False, and Ready=Unknown as well, for five minutes", func(t *testing.T) {
		if diff := cmp.Diff(want, defaults["unhealthyConditions"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("seed 0.11: nothing else has one that is stored", func(t *testing.T) {
		if diff := cmp.Diff(map[string]string{"unhealthyConditions": want}, defaults); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// Old manifests may have fields that came and went; the schema drops them instead of refusing the manifest.
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
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, crd); err != nil {
		t.Fatal(err)
	}
	return crd
}

// Every name that others may read or write is explained: what a check says of itself where users look it up, the rest where those look
// who use remediators, or write them.
func TestNamesAreExplained(t *testing.T) {
	said := section(t, "reference/conditions.md", "On a NodeHealthCheck") + section(t, "reference/events.md", "On a NodeHealthCheck")
	wire := page(t, "writing-remediators.md") + page(t, "nodehealthcheck.md") + page(t, "nodehealthcheck-api.md")
	names := stringConstants(t, "names.go")
	for name, value := range names {
		t.Run("W35: "+name, func(t *testing.T) {
			switch {
			case ofRequests[name], !saidByChecks.MatchString(name):
				if !strings.Contains(wire, value) {
					t.Errorf("none of the pages writing-remediators, nodehealthcheck and nodehealthcheck-api explains %q", value)
				}
			case !strings.Contains(said, "`"+value+"`"):
				t.Errorf("neither conditions.md nor events.md explains %q of NodeHealthChecks", value)
			}
		})
	}
	if _, found := names["UpgradeReason"]; !found {
		t.Errorf("the names were not found: %v", names)
	}
}

// saidByChecks are the constants whose values a check says of itself, apart from the conditions of requests.
var (
	saidByChecks = regexp.MustCompile(`Condition$|Reason$|^Event`)
	ofRequests   = map[string]bool{"ProcessingCondition": true, "SucceededCondition": true, "NodeDeletionExpectedCondition": true}
)

// stringConstants are those of a file of this package.
func stringConstants(t *testing.T, file string) map[string]string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{}
	for _, d := range parsed.Decls {
		group, _ := d.(*ast.GenDecl)
		if group == nil || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			constant, _ := s.(*ast.ValueSpec)
			for i, name := range constant.Names {
				literal, is := constant.Values[i].(*ast.BasicLit)
				if !is {
					t.Fatalf("%s is no literal", name)
				}
				if values[name.Name], err = strconv.Unquote(literal.Value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return values
}

// section is what a page has below a heading, up to the next one of its kind.
func section(t *testing.T, name, heading string) string {
	t.Helper()
	_, text, found := strings.Cut(page(t, name), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", name, heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func page(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
