package explain

import (
	"testing"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

func TestTheMessageOfAFailedHealthCheck(t *testing.T) {
	type findings []health.Finding
	condition := func(r health.Reason, source health.Source, is string) health.Finding {
		return health.Finding{Reason: r, Limit: time.Minute, Signal: health.Signal{Source: source, Type: is, Status: "False", Reason: "Bad"}}
	}
	m, mText := condition(health.MachineCondition, health.OnMachine, "M"), "Condition M on Machine is reporting status False with reason Bad for more than 1m0s"
	n, nText := condition(health.NodeCondition, health.OnNode, "N"), "Condition N on Node is reporting status False with reason Bad for more than 1m0s"
	gone := health.Finding{Reason: health.NodeDeleted, Node: "a"}
	for name, tc := range map[string]struct {
		due              findings
		message, v1beta1 string
	}{
		"a mark by hand is named alone": {
			findings{{Reason: health.MarkedByHand}, n},
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation", "Marked for remediation via remediate-machine annotation",
		},
		"machine conditions come before those of the node": {
			findings{m, n}, "Health check failed:\n  * " + mText + "\n  * " + nText, mText + "; " + nText,
		},
		"a deleted node has no message in v1beta1": {
			findings{gone}, "Health check failed:\n  * Node a has been deleted", "",
		},
		"unless there is a machine condition too": {
			findings{m, gone},
			"Health check failed:\n  * " + mText + "\n  * Node a has been deleted", mText + "; Node a has been deleted",
		},
		"a late node": {
			findings{{Reason: health.NodeStartup, Limit: 10 * time.Minute}},
			"Health check failed:\n  * Node failed to report startup in 10m0s", "Node failed to report startup in 10m0s",
		},
		"an unhealthy node": {findings{n, n}, "Health check failed:\n  * " + nText + "\n  * " + nText, nText + "; " + nText},
		"a final failure": {
			findings{{Reason: health.MachineFailed, Failure: "FailureReason: CreateError"}},
			"Health check failed:\n  * FailureReason: CreateError", "FailureReason: CreateError",
		},
		"nothing was found": {},
	} {
		if message, v1beta1 := HealthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}

// Users and other tools read these texts in conditions; they are Cluster API's to the letter.
func TestFindingsSpeakAsClusterAPIDoes(t *testing.T) {
	for text, f := range map[string]health.Finding{
		"marked for remediation via cluster.x-k8s.io/remediate-machine annotation": {Reason: health.MarkedByHand},
		"Condition InfrastructureReady on Machine is reporting status False with reason HostDead for more than 1h30m0s": {
			Reason: health.MachineCondition, Limit: 90 * time.Minute,
			Signal: health.Signal{Source: health.OnMachine, Type: "InfrastructureReady", Status: "False", Reason: "HostDead"},
		},
		"Condition DiskPressure on Node is reporting status True with reason Full for more than 0s": {
			Reason: health.NodeCondition, Signal: health.Signal{Source: health.OnNode, Type: "DiskPressure", Status: "True", Reason: "Full"},
		},
		"Node node-1 has been deleted":           {Reason: health.NodeDeleted, Node: "node-1"},
		"Node failed to report startup in 10m0s": {Reason: health.NodeStartup, Limit: 10 * time.Minute},
		"FailureReason: CreateError":             {Reason: health.MachineFailed, Failure: "FailureReason: CreateError"},
	} {
		if is := findingText(f); is != text {
			t.Errorf("%q, want %q", is, text)
		}
	}
}
