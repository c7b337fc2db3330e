package explain

import (
	"testing"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestTheMessageOfAFailedHealthCheck(t *testing.T) {
	type findings []health.Finding
	found := func(r health.Reason, detail string) health.Finding { return health.Finding{Reason: r, Detail: detail} }
	for name, tc := range map[string]struct {
		due              findings
		message, v1beta1 string
	}{
		"a mark by hand is named alone": {
			findings{found(health.MarkedByHand, "marked for remediation via X annotation"), found(health.NodeCondition, "bad")},
			"Health check failed: marked for remediation via X annotation", "Marked for remediation via remediate-machine annotation",
		},
		"machine conditions come before those of the node": {
			findings{found(health.MachineCondition, "m"), found(health.NodeCondition, "n")}, "Health check failed:\n  * m\n  * n", "m; n",
		},
		"a deleted node has no message in v1beta1": {
			findings{found(health.NodeDeleted, "Node a has been deleted")}, "Health check failed:\n  * Node a has been deleted", "",
		},
		"unless there is a machine condition too": {
			findings{found(health.MachineCondition, "m"), found(health.NodeDeleted, "Node a has been deleted")},
			"Health check failed:\n  * m\n  * Node a has been deleted", "m; Node a has been deleted",
		},
		"a late node":       {findings{found(health.NodeStartup, "late")}, "Health check failed:\n  * late", "late"},
		"an unhealthy node": {findings{found(health.NodeCondition, "n1"), found(health.NodeCondition, "n2")}, "Health check failed:\n  * n1\n  * n2", "n1; n2"},
		"a final failure":   {findings{found(health.MachineFailed, "FailureReason: CreateError")}, "Health check failed:\n  * FailureReason: CreateError", "FailureReason: CreateError"},
		"nothing was found": {},
	} {
		if message, v1beta1 := HealthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}
