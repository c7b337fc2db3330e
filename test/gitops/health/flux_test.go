package health

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// What Flux says of an object.
const (
	current    = "Current"
	inProgress = "InProgress"
	failed     = "Failed"
	// unread is that an expression asks for what is not there: Flux asks again.
	unread = "unread"
)

// expressions are those of the example, by API version and kind.
func expressions(t *testing.T) map[string]*cel.StatusEvaluator {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "examples", "flux", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var example struct {
		Spec struct {
			HealthCheckExprs []kustomize.CustomHealthCheck `json:"healthCheckExprs"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &example); err != nil {
		t.Fatal(err)
	}
	found := map[string]*cel.StatusEvaluator{}
	for _, check := range example.Spec.HealthCheckExprs {
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			t.Fatal(err)
		}
		found[check.APIVersion+" "+check.Kind] = evaluator
	}
	return found
}

// flux asks Flux' own evaluator.
func flux(t *testing.T, evaluator *cel.StatusEvaluator, o *unstructured.Unstructured) string {
	t.Helper()
	is, err := evaluator.Evaluate(t.Context(), o)
	if err != nil {
		return unread
	}
	return string(is.Status)
}
