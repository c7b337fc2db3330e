package capacity

import (
	"testing"
	"time"
)

func TestAHostThatIsOff(t *testing.T) {
	by, bare := Replacement{Name: "w4", By: Alone}, Object{Kind: "BareMetalHost", Name: "h4"}
	off := func(since time.Duration, edit func(*Host)) func(*Facts) {
		return followed(metal, func(f *Facts, m *Machine) {
			h := Host{Name: "h4", State: "provisioned"}
			edit(&h)
			f.Hosts, f.HostsKnown, m.Host = []Host{h}, true, "h4"
			m.BootstrapProvided, m.InfrastructureProvisioned, m.Infrastructure = true, true, isTrue(since)
		})
	}
	rows{
		"a host that has just been provisioned is powered on by itself": {
			off(2*time.Minute, func(h *Host) { h.Online = true }), says{Booting, HostOff, "w4", bare, ago(2 * time.Minute), time.Time{}, false, NodeRegisters, "", by},
		},
		"one that is still off after minutes is repaired by a person": {
			off(6*time.Minute, func(h *Host) { h.Online = true }), says{Booting, HostOff, "w4", bare, ago(6 * time.Minute), time.Time{}, false, NodeRegisters, RepairHost, by},
		},
		"one that is to be off is powered on by a person": {
			off(time.Minute, func(*Host) {}), says{Booting, HostOff, "w4", bare, ago(time.Minute), time.Time{}, false, NodeRegisters, PowerHostOn, by},
		},
		"one that cannot be powered on has an error": {
			off(time.Minute, func(h *Host) { h.Online, h.Error = true, "no power" }),
			says{Booting, HostTrouble, "w4", bare, ago(time.Minute), time.Time{}, false, NodeRegisters, RepairHost, by},
		},
		"one that is detached is not powered on by the Bare Metal Operator": {
			off(time.Minute, func(h *Host) { h.Online, h.Detached = true, true }),
			says{Booting, HostTrouble, "w4", bare, ago(time.Minute), time.Time{}, false, NodeRegisters, Unpause, by},
		},
	}.run(t)
}
