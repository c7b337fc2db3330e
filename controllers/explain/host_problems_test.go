package explain

import (
	"testing"

	"github.com/kubemend/kubemend/baremetal/host"
)

func TestWhatIsWrongWithAHostIsOneClause(t *testing.T) {
	for want, p := range map[string]host.Problem{
		"": {},
		"the machine's infrastructure is a DockerMachine.x, not a Metal3Machine.y":               {Reason: host.OtherInfrastructure, Found: "DockerMachine.x", Wanted: "Metal3Machine.y"},
		"Metal3Machine ns/m3m-1 names no host in its annotation metal3.io/BareMetalHost":         {Reason: host.NoHostNamed, Object: "ns/m3m-1"},
		"BareMetalHost ns/h has no spec.consumerRef, expected Metal3Machine ns/m":                {Reason: host.NoConsumer, Object: "ns/h", Wanted: "ns/m"},
		"spec.consumerRef of BareMetalHost ns/h names Cluster ns/c, expected Metal3Machine ns/m": {Reason: host.OtherConsumer, Object: "ns/h", Found: "Cluster ns/c", Wanted: "ns/m"},
		"Metal3Machines ns/a and ns/b both name BareMetalHost ns/h: either may run on it":        {Reason: host.TwoMetal3Machines, Object: "ns/h", Found: "ns/b", Wanted: "ns/a"},
		`the host is paused (annotation baremetalhost.metal3.io/paused: "metal3.io/capm3")`:      {Reason: host.Paused, Found: "metal3.io/capm3"},
		`the host is "available", and its power is managed only when it is "provisioned" or "externally provisioned"`: {
			Reason: host.NotProvisioned, Found: "available",
		},
		"its condition Manageable is False (PowerFailure)": {Reason: host.NotManageable, Found: "False (PowerFailure)"},
	} {
		if got := HostProblem(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
