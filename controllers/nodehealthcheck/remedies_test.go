package nodehealthcheck

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// What disables a check says which of its templates that is, and of which step: with one letter wrong in a namespace as in a name.
func TestADisabledCheckNamesTheTemplateAndItsStep(t *testing.T) {
	const missing = `Remediation template not found: "failed to get RebootTemplate `
	elsewhere, homeless := refTo("Reboot", "reboot"), refTo("Reboot", "reboot")
	elsewhere.Namespace, homeless.Namespace = "nowhere", ""
	broken := template("Pray", "broken", false)
	unstructured.RemoveNestedField(broken.Object, "spec", "template")
	for name, row := range map[string]struct {
		bad        corev1.ObjectReference
		alone, two string
	}{
		"a name that no template has": {
			refTo("Reboot", "nope"),
			missing + `remediators/nope: reboottemplates.remediator.example.org \"nope\" not found"`,
			missing + `remediators/nope (order 1): reboottemplates.remediator.example.org \"nope\" not found"`,
		},
		"a namespace that has none": {
			elsewhere,
			missing + `nowhere/reboot: reboottemplates.remediator.example.org \"reboot\" not found"`,
			missing + `nowhere/reboot (order 1): reboottemplates.remediator.example.org \"reboot\" not found"`,
		},
		"no namespace": {
			homeless,
			missing + `reboot: remediation template \"reboot\" not found, it is namespaced, but no namespace is provided"`,
			missing + `reboot (order 1): remediation template \"reboot\" not found, it is namespaced, but no namespace is provided"`,
		},
		"a kind of requests that may not be read": {
			refTo("Replace", "replace"),
			`Replace may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: "true" has to allow it, ` +
				`as the remediator brings one: "ReplaceTemplate remediators/replace: Replace.remediator.example.org is forbidden: <nil>"`,
			`Replace may not be read: a ClusterRole with the label rbac.ext-remediation/aggregate-to-ext-remediation: "true" has to allow it, ` +
				`as the remediator brings one: "ReplaceTemplate remediators/replace (order 1): Replace.remediator.example.org is forbidden: <nil>"`,
		},
		"a template without content": {
			refTo("Pray", "broken"),
			`Remediation template is invalid: "invalid template remediators/broken, didn't find spec.template.spec"`,
			`Remediation template is invalid: "invalid template remediators/broken, didn't find spec.template.spec", of PrayTemplate remediators/broken (order 1)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFixture(t, append(workers("w0"), template("Reboot", "reboot", false), template("Pray", "pray", false), broken,
				check("alone", func(s *nhcv1.NodeHealthCheckSpec) { s.RemediationTemplate = &row.bad }), check("two", ladder(refTo("Pray", "pray"), row.bad)))...)
			k.deny("Replace")
			for check, want := range map[string]string{"alone": row.alone, "two": row.two} {
				k.reconciles(check)
				if c := meta.FindStatusCondition(k.check(check).Status.Conditions, nhcv1.DisabledCondition); c == nil || c.Message != want {
					t.Errorf("%s: %+v, want\n%s", check, c, want)
				}
			}
		})
	}
}
