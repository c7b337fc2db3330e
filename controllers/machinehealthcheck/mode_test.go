package machinehealthcheck

import (
	"testing"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/machines"
)

func TestMode(t *testing.T) {
	cases := map[string]struct {
		annotation *string
		paused     bool
		unclaimed  Unclaimed
		want       machines.Mode
	}{
		"a claimed check is acted on, whatever the flag":        {ptr.To("kubemend"), false, Ignore, machines.Active},
		"a claimed check of a paused cluster is paused":         {ptr.To("kubemend"), true, Act, machines.Paused},
		"any other value is a pause":                            {ptr.To("true"), false, Act, machines.Paused},
		"even the empty one":                                    {ptr.To(""), false, Observe, machines.Paused},
		"an unclaimed check is observed":                        {nil, false, Observe, machines.Observed},
		"an unclaimed check of a paused cluster is not":         {nil, true, Observe, machines.Paused},
		"an unclaimed check is acted on where the flag says so": {nil, false, Act, machines.Active},
		"an unclaimed check is ignored where the flag says so":  {nil, false, Ignore, machines.Ignored},
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
