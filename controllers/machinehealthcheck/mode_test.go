package machinehealthcheck

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func TestMode(t *testing.T) {
	cases := map[string]struct {
		annotation *string
		paused     bool
		unclaimed  Unclaimed
		want       Mode
	}{
		"a claimed check is acted on, whatever the flag":        {ptr.To("kubemend"), false, Ignore, Active},
		"a claimed check of a paused cluster is paused":         {ptr.To("kubemend"), true, Act, Paused},
		"any other value is a pause":                            {ptr.To("true"), false, Act, Paused},
		"even the empty one":                                    {ptr.To(""), false, Observe, Paused},
		"an unclaimed check is observed":                        {nil, false, Observe, Observed},
		"an unclaimed check of a paused cluster is not":         {nil, true, Observe, Paused},
		"an unclaimed check is acted on where the flag says so": {nil, false, Act, Active},
		"an unclaimed check is ignored where the flag says so":  {nil, false, Ignore, Ignored},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			check, cluster := &clusterv1.MachineHealthCheck{}, &clusterv1.Cluster{}
			if tc.annotation != nil {
				check.Annotations = map[string]string{clusterv1.PausedAnnotation: *tc.annotation}
			}
			if tc.paused {
				cluster.Spec.Paused = ptr.To(true)
			}
			if got := modeFor(check, cluster, tc.unclaimed); got != tc.want {
				t.Errorf("modeFor() = %d, want %d", got, tc.want)
			}
		})
	}
}
