package explain

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// plainly renders a moment as its time of day.
func plainly(at time.Time) string { return at.Format(time.TimeOnly) }

func TestTheFirstLineIsMadeOfTheValuesOfADecision(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	limited := Check{Mode: Acting, Population: budget.Population{Healthy: 2, Unhealthy: 3}, Limits: budget.Limits{AtMost: 2}}
	request := Ref{Kind: "HostRemediation", Namespace: "ns", Name: "m"}
	blocked := func(all ...Blocker) Target { return Target{State: health.Unhealthy, Blockers: all} }
	for want, tc := range map[string]struct {
		check Check
		given Target
	}{
		"HEALTHY": {limited, Target{State: health.Healthy}},
		"UNHEALTHY, NOT REMEDIATED: TooManyUnhealthy (3 of 5, limit 2)": {
			limited, blocked(Blocker{Reason: clusterv1.MachineHealthCheckTooManyUnhealthyReason, Text: "9 of 9"}),
		},
		"UNHEALTHY, NOT REMEDIATED: CoolingDown, until 12:00:00":             {limited, blocked(Blocker{Reason: mendv1.CoolingDownReason, Until: noon})},
		"UNHEALTHY, NOT REMEDIATED BY KUBEMEND: Cluster API core acts on it": {Check{Mode: Observing}, blocked(Blocker{Reason: NotActing})},
		"UNHEALTHY, ACTION UNKNOWN: MissingPermission":                       {limited, blocked(Blocker{Reason: MissingPermission})},
		"UNHEALTHY, NOT REMEDIATED: CannotBeRemediated (KubeadmControlPlane cp)": {
			limited, Target{State: health.Unhealthy, InFlight: true, OwnerAsked: true, Refused: true, Owner: "KubeadmControlPlane cp", OwnerReason: "CannotBeRemediated"},
		},
		"UNHEALTHY, PUT OFF BY ITS OWNER: RemediationDeferred (KubeadmControlPlane cp)": {
			limited, Target{State: health.Unhealthy, InFlight: true, OwnerAsked: true, PutOff: true, Owner: "KubeadmControlPlane cp", OwnerReason: "RemediationDeferred"},
		},
		"UNHEALTHY, BEING REMEDIATED: HostRemediation ns/m (WorkloadMoving)": {
			limited, Target{State: health.Unhealthy, InFlight: true, Requests: []Ref{request}},
		},
		"UNHEALTHY, REMEDIATION STARTS NOW: MachineSet md": {limited, Target{State: health.Unhealthy, StartsNow: true, Remediator: "MachineSet md"}},
		"UNHEALTHY, BEING DELETED":                         {limited, blocked(Blocker{Reason: MachineBeingDeleted})},
		"PENDING: unhealthy at 12:00:00 unless Ready": {
			limited, Target{State: health.Pending, Findings: []Finding{{Expires: noon, Signal: health.Signal{Type: "Ready"}}}},
		},
		"STARTING: unhealthy at 12:00:00 unless its node appears": {
			limited, Target{State: health.Starting, Findings: []Finding{{Reason: health.NodeStartup, Expires: noon}}},
		},
		"UNKNOWN: AwaitsClusterAPI": {
			Check{Mode: Paused}, Target{State: health.Unknown, Blockers: []Blocker{{Reason: NotActing}, {Reason: AwaitsClusterAPI}}},
		},
		"UNKNOWN: Unreachable since 12:00:00": {
			Check{Mode: Acting, NodesUnknownSince: noon}, Target{State: health.Unknown, Blockers: []Blocker{{Reason: mendv1.UnreachableReason}}},
		},
		"SKIPPED: the machine has an annotation": {limited, Target{Skipped: "The machine has an annotation"}},
	} {
		remediations := []Remediation{{Ref: request, Reason: string(powercycle.WorkloadMovingReason)}}
		if got := tc.check.AnswerOn(&tc.given, remediations).Text(plainly); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTimeoutsAreWrittenWithoutUnitsOfNothing(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Minute: "5m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 30 * time.Hour: "30h", 0: "0s", 70 * time.Minute: "1h10m",
	} {
		if got := Rounded(d); got != want {
			t.Errorf("%s is %q, want %q", d, got, want)
		}
	}
}
