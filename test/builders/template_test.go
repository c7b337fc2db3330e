package builders_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/builders"
	"github.com/kubemend/kubemend/test/must"
)

// With only the name of the cluster set, a template is the manifest of Cluster API's documentation with a claim. One difference: a check of
// workers selects the machines of all MachineDeployments, because no cluster of the quick start has the label of the documented manifest.
func TestTemplatesAreTheDocumentsManifestsWithAClaim(t *testing.T) {
	for template, seed := range map[string]string{
		"machine-health-check-workers.yaml":               "seeds/004/workers.yaml",
		"machine-health-check-workers-v1beta2.yaml":       "e2e/testdata/seed-004-workers-v1beta2.yaml",
		"machine-health-check-control-plane.yaml":         "seeds/004/control-plane.yaml",
		"machine-health-check-control-plane-v1beta2.yaml": "e2e/testdata/seed-004-control-plane-v1beta2.yaml",
	} {
		t.Run(template, func(t *testing.T) {
			rendered := templated(t, template, map[string]string{"CLUSTER_NAME": "capi-quickstart"})
			must.Is(t, builders.ClaimedBy, rendered.GetAnnotations()[clusterv1.PausedAnnotation], "the claim is")
			must.Is(t, "default", rendered.GetNamespace(), "the namespace is")
			rendered.SetAnnotations(nil)
			rendered.SetNamespace("")
			want := read(t, seed)
			if strings.Contains(template, "workers") {
				all := map[string]any{"matchExpressions": []any{map[string]any{"key": clusterv1.MachineDeploymentNameLabel,
					"operator": "Exists"}}}
				must.Do(t, unstructured.SetNestedMap(want, all, "spec", "selector"))
			}
			must.Equal(t, want, rendered.Object, "not what the documentation has")
		})
	}
}

// A check with a HostRemediationTemplate is otherwise the same as the plain check. test/packages tests that the template exists.
func TestRebootingChecksDifferFromPlainOnesOnlyInTheirTemplate(t *testing.T) {
	given := map[string]string{"CLUSTER_NAME": "capi-quickstart", "NAMESPACE": "metal3"}
	for suffix, field := range map[string][]string{
		"":         {"spec", "remediationTemplate"},
		"-v1beta2": {"spec", "remediation", "templateRef"},
	} {
		plain := templated(t, "machine-health-check-workers"+suffix+".yaml", given)
		reboots := templated(t, "machine-health-check-workers-host-remediation"+suffix+".yaml", given)
		unstructured.RemoveNestedField(reboots.Object, field...)
		must.Equal(t, plain.Object, reboots.Object, "not the plain check")
	}
}

func TestTheTemplateOfHostRemediationsHasTheDefaultsOfTheAPI(t *testing.T) {
	rendered := templated(t, "host-remediation-template.yaml", map[string]string{"CLUSTER_NAME": "capi-quickstart"})
	got := &mendv1.HostRemediationTemplate{}
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered.Object, got, true))
	want := &mendv1.HostRemediationTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediationTemplate"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "capi-quickstart-reboot"},
	}
	want.Spec.Template.Spec.Strategy = builders.HostStrategy(infrav1.RemediationStrategy{
		Type: infrav1.RebootRemediationStrategy, RetryLimit: infrav1.DefaultRetryLimit, TimeoutSeconds: infrav1.DefaultTimeoutSeconds,
	})
	want.Spec.Template.Spec.Strategy.BootTimeoutSeconds = mendv1.DefaultBootTimeoutSeconds
	must.Equal(t, want, got)
}

// The last escalation step names the template of the same folder, and its timeout is long enough for all attempts of that template.
func TestTheEscalatingTemplateNamesTheHostTemplate(t *testing.T) {
	given := map[string]string{"CLUSTER_NAME": "capi-quickstart", "NAMESPACE": "metal3"}
	template := templated(t, "host-remediation-template.yaml", given)
	rendered := templated(t, "node-health-check-workers-escalating.yaml", given)
	check := &nhcv1.NodeHealthCheck{}
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(rendered.Object, check, true))
	last := check.Spec.EscalatingRemediations[len(check.Spec.EscalatingRemediations)-1]
	want := corev1.ObjectReference{
		APIVersion: template.GetAPIVersion(), Kind: template.GetKind(), Namespace: template.GetNamespace(), Name: template.GetName(),
	}
	must.Equal(t, want, last.RemediationTemplate, "it names another template than the one beside it")
	// An attempt has two timeouts: until the host may be powered on, and until the node is ready.
	attempts := (infrav1.DefaultRetryLimit + 1) * (infrav1.DefaultTimeoutSeconds + mendv1.DefaultBootTimeoutSeconds) * time.Second
	if last.Timeout.Duration < attempts {
		t.Errorf("%s are not enough for all attempts, which may take %s", last.Timeout.Duration, attempts)
	}
}

func templated(t *testing.T, name string, given map[string]string) *unstructured.Unstructured {
	t.Helper()
	rendered, err := builders.Template(name, given)
	must.Do(t, err)
	return rendered
}

func read(t *testing.T, seed string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", seed))
	must.Do(t, err)
	var object map[string]any
	must.Do(t, yaml.UnmarshalStrict(content, &object))
	return object
}
