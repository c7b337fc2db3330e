package builders_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kubemend/kubemend/test/builders"
)

// A template with nothing but the name of the cluster given is the manifest of Cluster API's documentation, claimed.
func TestTemplatesAreTheSeedsManifestsClaimed(t *testing.T) {
	for template, seed := range map[string]string{
		"machine-health-check-workers.yaml":               "seed-004-workers.yaml",
		"machine-health-check-workers-v1beta2.yaml":       "seed-004-workers-v1beta2.yaml",
		"machine-health-check-control-plane.yaml":         "seed-004-control-plane.yaml",
		"machine-health-check-control-plane-v1beta2.yaml": "seed-004-control-plane-v1beta2.yaml",
	} {
		t.Run(template, func(t *testing.T) {
			rendered, err := builders.Template(template, map[string]string{"CLUSTER_NAME": "capi-quickstart"})
			if err != nil {
				t.Fatal(err)
			}
			if claim := rendered.GetAnnotations()[clusterv1.PausedAnnotation]; claim != builders.ClaimedBy {
				t.Errorf("the claim is %q", claim)
			}
			if rendered.GetNamespace() != "default" {
				t.Errorf("the namespace is %q", rendered.GetNamespace())
			}
			rendered.SetAnnotations(nil)
			rendered.SetNamespace("")
			if diff := cmp.Diff(read(t, seed), rendered.Object); diff != "" {
				t.Errorf("not what the documentation has (-want +got):\n%s", diff)
			}
		})
	}
}

func read(t *testing.T, seed string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "e2e", "testdata", seed))
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.UnmarshalStrict(content, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func TestTemplatesRefuseWhatWouldGoUnnoticed(t *testing.T) {
	for name, tc := range map[string]struct {
		file      string
		variables map[string]string
		want      string
	}{
		"a variable that is not given and has no default": {"machine-health-check-workers.yaml", nil, "CLUSTER_NAME"},
		"a variable that the template does not have": {
			"machine-health-check-workers.yaml", map[string]string{"CLUSTER_NAME": "a", "MAX_UNHEALTHY_MACHINES": "1"}, "MAX_UNHEALTHY_MACHINES",
		},
		"a template that does not exist": {"machine-health-check.yaml", nil, "no folder templates/ with it"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := builders.Template(tc.file, tc.variables)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}
