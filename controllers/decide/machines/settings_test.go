package machines

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

func TestLimits(t *testing.T) {
	cases := map[string]struct {
		change func(*clusterv1.MachineHealthCheck)
		want   budget.Limits
		field  string
	}{
		"without a limit everything is allowed": {nil, budget.Limits{AtMost: 10, InFlight: budget.Unlimited}, ""},
		"the range goes before the number": {func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyInRange = "[3-5]"
		}, budget.Limits{AtLeast: 3, AtMost: 5, InFlight: budget.Unlimited}, ""},
		"at least one may be in flight": {func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "1%"}
		}, budget.Limits{AtMost: 10, InFlight: 1}, ""},
		"an empty range is named": {func(c *clusterv1.MachineHealthCheck) {
			c.Spec.Remediation.TriggerIf.UnhealthyInRange = "[5-3]"
		}, budget.Limits{}, "spec.remediation.triggerIf.unhealthyInRange"},
		"a bad annotation is named": {func(c *clusterv1.MachineHealthCheck) {
			c.Annotations = map[string]string{mendv1.MaxInFlightAnnotation: "many"}
		}, budget.Limits{}, "metadata.annotations[kubemend.io/max-in-flight]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check := &clusterv1.MachineHealthCheck{}
			if tc.change != nil {
				tc.change(check)
			}
			got, err := limitsOf(check, 10)
			if tc.field != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.field+": ") {
					t.Errorf("got error %v, want one about %s", err, tc.field)
				}
				return
			}
			if err != nil || got != tc.want {
				t.Errorf("limitsOf() = %+v, %v; want %+v", got, err, tc.want)
			}
		})
	}
}
