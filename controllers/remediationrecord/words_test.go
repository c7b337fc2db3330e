package remediationrecord

import (
	"strings"
	"testing"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/record"
)

func TestARecordSaysWhatAPowerCycleWaitsFor(t *testing.T) {
	request := record.Ref{Kind: "HostRemediation", Name: "m"}
	for _, state := range []powercycle.State{
		powercycle.Pending, powercycle.Preparing, powercycle.PoweringOff, powercycle.MovingWorkload, powercycle.PoweringOn, powercycle.Rebooting,
		powercycle.Servicing, powercycle.Booting, powercycle.RequestingOwner,
	} {
		if !state.Known() || state.Final() {
			t.Errorf("%s is no state in which anything is waited for", state)
		}
		got := stepText(record.Reason(state), "Machine m", request)
		if !strings.HasPrefix(got, "HostRemediation m ") || len(strings.Fields(got)) < 6 || strings.Contains(got, string(state)) {
			t.Errorf("%s: it says %q", state, got)
		}
	}
	if got := stepText(record.Reason(powercycle.Booting), "Machine m", record.Ref{}); got != "Booting" {
		t.Errorf("without a request it says %q", got)
	}
}
