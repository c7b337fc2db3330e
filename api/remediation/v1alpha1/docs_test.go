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
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// Every name that others may read or write is explained: what a check says of itself where users look it up, the rest where those look
// who use remediators, or write them.
func TestNamesAreExplained(t *testing.T) {
	said := section(t, "conditions.md", "On a NodeHealthCheck") + section(t, "events.md", "On a NodeHealthCheck")
	wire := page(t, "writing-remediators.md") + page(t, "nodehealthcheck.md") + page(t, "nodehealthcheck-concepts.md")
	names := stringConstants(t, "names.go")
	for name, value := range names {
		t.Run("W35: "+name, func(t *testing.T) {
			switch {
			case ofRequests[name], !saidByChecks.MatchString(name):
				if !strings.Contains(wire, value) {
					t.Errorf("none of the pages writing-remediators, nodehealthcheck and nodehealthcheck-concepts explains %q", value)
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

// Of the manifests in the documentation each is one, and those of the seeds are what test/inmemory/nodes applies.
func TestDocumentedManifestsAreManifests(t *testing.T) {
	checks := 0
	for _, name := range []string{"nodehealthcheck.md", "nodehealthcheck-api.md", "nodehealthcheck-escalation.md", "writing-remediators.md"} {
		for _, block := range regexp.MustCompile("(?s)\n```yaml\n(.*?)```\n").FindAllStringSubmatch(page(t, name), -1) {
			if decode(t, name, block[1]) == "NodeHealthCheck" {
				checks++
			}
		}
	}
	if checks != 4 {
		t.Errorf("%d NodeHealthChecks were found in the documentation, want 4", checks)
	}
	for name, want := range map[string][]string{
		"remediator.yaml": {"CustomResourceDefinition", "CustomResourceDefinition", "ClusterRole"},
		"drill.yaml":      {"RebootRemediationTemplate", "NodeHealthCheck"},
	} {
		var kinds []string
		for _, manifest := range strings.Split(page(t, filepath.Join("examples", name)), "\n---\n") {
			kinds = append(kinds, decode(t, name, manifest))
		}
		if diff := cmp.Diff(want, kinds); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	guide := page(t, "nodehealthcheck.md")
	for _, seed := range []string{"000", "001"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "test", "seeds", seed, "nodehealthcheck.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		printed, _, _ := strings.Cut(string(content), "# # optional")
		if !strings.Contains(guide, "\n```yaml\n"+printed+"```\n") {
			t.Errorf("nodehealthcheck.md does not have the check of %s as it is printed", seed)
		}
	}
}

// decode reads a manifest, and fails if it has fields that its kind has not. It returns the kind.
func decode(t *testing.T, where, manifest string) string {
	t.Helper()
	kind := metav1.TypeMeta{}
	if err := yaml.Unmarshal([]byte(manifest), &kind); err != nil {
		t.Fatalf("%s: %v in\n%s", where, err, manifest)
	}
	if obj, known := map[string]any{
		"NodeHealthCheck":          &v1alpha1.NodeHealthCheck{},
		"CustomResourceDefinition": &apiextensionsv1.CustomResourceDefinition{},
		"ClusterRole":              &rbacv1.ClusterRole{},
	}[kind.Kind]; known {
		if err := yaml.UnmarshalStrict([]byte(manifest), obj); err != nil {
			t.Errorf("%s: %v in\n%s", where, err, manifest)
		}
	}
	return kind.Kind
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
