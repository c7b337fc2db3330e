package admission

import (
	"testing"

	"github.com/kubemend/kubemend/test/must"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func TestDefaultsOfMetal3RemediationTemplates(t *testing.T) {
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
			must.Do(t, (Metal3Template{}).Default(t.Context(), &metal3))
			must.Equal(t, row.want, metal3.Spec.Template.Spec.Strategy, "Metal3RemediationTemplate")
		})
	}
}

// In a HostRemediationTemplate a retryLimit of 0 is a value, and is kept.
func TestDefaultsOfHostRemediationTemplates(t *testing.T) {
	for name, row := range map[string]struct {
		given, want *mendv1.HostRemediationStrategy
	}{
		"no strategy stays none":                {nil, nil},
		"an empty one is complete":              {&mendv1.HostRemediationStrategy{}, hostStrategy("Reboot", 1, 600)},
		"what is said stays":                    {hostStrategy("Reboot", 3, 300), hostStrategy("Reboot", 3, 300)},
		"H-11: 0 retries are none":              {hostStrategy("Reboot", 0, 300), hostStrategy("Reboot", 0, 300)},
		"less than none is left to the schema":  {hostStrategy("Reboot", -7, 300), hostStrategy("Reboot", -7, 300)},
		"no timeout is ten minutes":             {hostStrategy("Reboot", 3, 0), hostStrategy("Reboot", 3, 600)},
		"no type is Reboot, no retry limit one": {&mendv1.HostRemediationStrategy{TimeoutSeconds: 300}, hostStrategy("Reboot", 1, 300)},
	} {
		t.Run(name, func(t *testing.T) {
			var host mendv1.HostRemediationTemplate
			host.Spec.Template.Spec.Strategy = row.given.DeepCopy()
			must.Do(t, (HostTemplate{}).Default(t.Context(), &host))
			must.Equal(t, row.want, host.Spec.Template.Spec.Strategy)
		})
	}
}

func strategy(what infrav1.RemediationType, retries, seconds int32) *infrav1.RemediationStrategy {
	return &infrav1.RemediationStrategy{Type: what, RetryLimit: retries, TimeoutSeconds: seconds}
}

func hostStrategy(what infrav1.RemediationType, retries, seconds int32) *mendv1.HostRemediationStrategy {
	return &mendv1.HostRemediationStrategy{Type: what, RetryLimit: &retries, TimeoutSeconds: seconds}
}
