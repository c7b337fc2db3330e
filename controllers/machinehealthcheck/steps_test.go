package machinehealthcheck

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
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

func TestAMachineThatRecoveredIsRememberedUntilItsOwnerHasSeenIt(t *testing.T) {
	asked := withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, clusterv1.MachineOwnerRemediatedWaitingForRemediationReason)
	for name, tc := range map[string]struct {
		given []func(*target)
		want  bool
	}{
		"its owner was not asked":                     {nil, false},
		"its owner was asked, and no health is known": {[]func(*target){asked}, true},
		"its owner was asked, and it is healthy":      {[]func(*target){asked, markedBefore}, true},
		"its owner was asked, and it is unhealthy":    {[]func(*target){askedOwner}, false},
		"its owner has remediated it, and it is healthy": {[]func(*target){markedBefore,
			withCondition(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionTrue, "Remediated")}, false},
	} {
		m := a("m", health.Unhealthy, tc.given...).machine
		if got := askedWhileHealthy(m); got != tc.want {
			t.Errorf("%s: got %t, want %t", name, got, tc.want)
		}
	}
}
