package nodehealthcheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

func TestANodeIsRemediatedAndLetGo(t *testing.T) {
	k := newRack(t, append(nodes("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.pass("nhc")
	k.turn("b", corev1.ConditionUnknown)
	k.after(299 * time.Second)
	k.pass("nhc")
	if got := k.requests(); len(got) != 0 {
		t.Fatalf("requested before the time is over: %v", got)
	}
	k.after(time.Second)
	k.pass("nhc")
	if diff := cmp.Diff([]string{"Reboot/b"}, k.requests()); diff != "" {
		t.Fatal(diff)
	}
	is := k.check("nhc")
	if is.Status.Phase != nhcv1.PhaseRemediating || *is.Status.HealthyNodes != 2 || *is.Status.ObservedNodes != 3 {
		t.Errorf("status %+v", is.Status)
	}
	k.turn("b", corev1.ConditionTrue)
	k.after(time.Second)
	k.pass("nhc")
	if got := append(k.requests(), k.leases()...); len(got) != 0 {
		t.Errorf("left behind: %v", got)
	}
	want := []string{
		"Normal Enabled No issues found, NodeHealthCheck is enabled.",
		`Normal DetectedUnhealthy Node matches unhealthy condition. Node "b", condition type "Ready", condition status "Unknown"`,
		"Normal RemediationCreated Created remediation object for node b",
		"Normal RemediationRemoved Deleted remediation CR of kind Reboot with name b",
	}
	if diff := cmp.Diff(want, k.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
