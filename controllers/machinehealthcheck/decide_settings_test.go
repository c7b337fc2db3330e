package machinehealthcheck

import (
	"strings"
	"testing"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/budget"
)

func TestTheRangeGoesBeforeTheNumber(t *testing.T) {
	check := &clusterv1.MachineHealthCheck{}
	for within, want := range map[string]budget.Limits{
		"":      {AtMost: 10, InFlight: budget.Unlimited},
		"[3-5]": {AtLeast: 3, AtMost: 5, InFlight: budget.Unlimited},
	} {
		check.Spec.Remediation.TriggerIf.UnhealthyInRange = within
		if settings := SettingsOf(check, 10); settings.Invalid != nil || settings.Limits != want {
			t.Errorf("the limits of %q are %+v, %v; want %+v", within, settings.Limits, settings.Invalid, want)
		}
	}
	check.Spec.Remediation.TriggerIf.UnhealthyInRange = "[5-3]"
	if invalid := SettingsOf(check, 10).Invalid; invalid == nil || !strings.HasPrefix(invalid.Error(), "spec.remediation.triggerIf.unhealthyInRange: ") {
		t.Errorf("of an empty range it says %v", invalid)
	}
}
