package packages

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/cmd/clusterctl/client/yamlprocessor"
)

// templates are the objects of templates/, by their file, for a user who names the cluster and nothing else.
func templates(t *testing.T) map[string]object {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "templates"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for _, e := range entries {
		content := read(t, filepath.Join("templates", e.Name()))
		rendered := objects(t, substituted(t, content, map[string]string{"CLUSTER_NAME": "fleet"}))
		if len(rendered) != 1 {
			t.Fatalf("%s has %d objects", e.Name(), len(rendered))
		}
		all[e.Name()] = rendered[0]
	}
	return all
}

func TestATemplateNeedsOnlyTheNameOfTheCluster(t *testing.T) {
	for name, o := range templates(t) {
		variables, err := yamlprocessor.NewSimpleProcessor().GetVariableMap(read(t, filepath.Join("templates", name)))
		if err != nil {
			t.Fatal(err)
		}
		for variable, initial := range variables {
			if (initial == nil) != (variable == "CLUSTER_NAME") {
				t.Errorf("%s: %s has the default %v", name, variable, initial)
			}
		}
		if !strings.HasPrefix(o.GetName(), "fleet-") {
			t.Errorf("%s: its object is %s, and of another cluster it would be the same", name, o.GetName())
		}
		if !strings.Contains(string(read(t, filepath.Join("templates", name))), "clusterctl generate yaml --from "+name) {
			t.Errorf("%s does not say how it is applied", name)
		}
		says := strings.Contains(string(read(t, filepath.Join("templates", name))), "kubectl apply --server-side -f kubemend-node-health-checks.yaml")
		if says != (o.GetKind() == "NodeHealthCheck") {
			t.Errorf("%s, a %s, names the file that its kind comes with: %t", name, o.GetKind(), says)
		}
	}
}

func TestChecksNameTemplatesThatExist(t *testing.T) {
	all := templates(t)
	there := map[string]bool{}
	for _, o := range all {
		there[o.GetAPIVersion()+" "+o.GetKind()+" "+o.GetName()] = true
	}
	named := 0
	for name, o := range all {
		for _, way := range [][]string{{"spec", "remediation", "templateRef"}, {"spec", "remediationTemplate"}} {
			reference, found, err := unstructured.NestedStringMap(o.Object, way...)
			if err != nil {
				t.Fatal(err)
			}
			if !found {
				continue
			}
			named++
			if !there[reference["apiVersion"]+" "+reference["kind"]+" "+reference["name"]] {
				t.Errorf("%s names %v, which no template makes", name, reference)
			}
		}
	}
	if named < 7 {
		t.Errorf("only %d checks name a template", named)
	}
}
