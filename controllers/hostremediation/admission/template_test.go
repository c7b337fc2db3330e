package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestDefaultsOfTemplates(t *testing.T) {
	for name, row := range map[string]struct{ given, want *infrav1.RemediationStrategy }{
		"no strategy stays none":                   {nil, nil},
		"an empty one is complete":                 {&infrav1.RemediationStrategy{}, strategy("Reboot", 1, 600)},
		"what is said stays":                       {strategy("Reboot", 3, 300), strategy("Reboot", 3, 300)},
		"no type is Reboot":                        {strategy("", 3, 300), strategy("Reboot", 3, 300)},
		"another type is left to the schema":       {strategy("Pray", 3, 300), strategy("Pray", 3, 300)},
		"no retry is one":                          {strategy("Reboot", 0, 300), strategy("Reboot", 1, 300)},
		"less than no retry is one":                {strategy("Reboot", -7, 300), strategy("Reboot", 1, 300)},
		"no timeout is ten minutes":                {strategy("Reboot", 3, 0), strategy("Reboot", 3, 600)},
		"a short timeout is left to the schema":    {strategy("Reboot", 3, 99), strategy("Reboot", 3, 99)},
		"a negative timeout is left to the schema": {strategy("Reboot", 3, -1), strategy("Reboot", 3, -1)},
	} {
		t.Run(name, func(t *testing.T) {
			var metal3 infrav1.Metal3RemediationTemplate
			metal3.Spec.Template.Spec.Strategy = row.given.DeepCopy()
			if err := (Metal3Template{}).Default(t.Context(), &metal3); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, metal3.Spec.Template.Spec.Strategy); diff != "" {
				t.Errorf("Metal3RemediationTemplate (-want +got):\n%s", diff)
			}
			var host mendv1.HostRemediationTemplate
			host.Spec.Template.Spec.Strategy = row.given.DeepCopy()
			if err := (HostTemplate{}).Default(t.Context(), &host); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, host.Spec.Template.Spec.Strategy); diff != "" {
				t.Errorf("HostRemediationTemplate (-want +got):\n%s", diff)
			}
		})
	}
}

func strategy(what infrav1.RemediationType, retries, seconds int32) *infrav1.RemediationStrategy {
	return &infrav1.RemediationStrategy{Type: what, RetryLimit: retries, TimeoutSeconds: seconds}
}
