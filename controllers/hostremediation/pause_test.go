package hostremediation

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// N10, W21.
func TestAPauseReleasesTheHostAndTheAttemptStartsOverAfterIt(t *testing.T) {
	k := fixtureOf(t)
	k.expects(powersOff, releases, powersOff)

	k.pass()
	k.edit(func(rem *mendv1.HostRemediation) { rem.Annotations[clusterv1.PausedAnnotation] = "" })
	status := k.pass()
	rem := k.remediation()
	if _, blocked := rem.Annotations[clusterctlv1.BlockMoveAnnotation]; blocked || len(k.host.Annotations) != 0 {
		t.Errorf("while paused the remediation has %v, its host %v", rem.Annotations, k.host.Annotations)
	}
	if want := "Attempt 1 of 2: The remediation is paused (by its annotation cluster.x-k8s.io/paused)"; status.Message != want || status.Deadline != nil {
		t.Errorf("it says %q until %v, want %q without an end", status.Message, status.Deadline, want)
	}
	k.wait(24 * time.Hour)
	k.edit(func(rem *mendv1.HostRemediation) { delete(rem.Annotations, clusterv1.PausedAnnotation) })
	if got := k.pass(); got.Attempt != 1 || got.Step != string(powercycle.PoweringOff) {
		t.Errorf("after the pause it is in %s, attempt %d; want it to power the host off, still in its first attempt", got.Step, got.Attempt)
	}
}

func TestInAPauseTheMoveIsBlockedUntilTheHostIsReleased(t *testing.T) {
	k := fixtureOf(t)
	blocked := func() bool { _, is := k.remediation().Annotations[clusterctlv1.BlockMoveAnnotation]; return is }
	k.expects(powersOff, fences, releases, unfences)
	k.at[releases] = func() error {
		if !blocked() {
			t.Error("clusterctl may move the remediation before its host is released")
		}
		return nil
	}

	k.pass()
	k.power(false)
	k.pass()
	k.edit(func(rem *mendv1.HostRemediation) { rem.Annotations[clusterv1.PausedAnnotation] = "" })
	k.pass()
	k.seen.Drained = true
	k.pass()
	if blocked() {
		t.Error("the host is released, and the remediation is still kept from moving")
	}
}

func TestOneThatIsPausedBeforeItHasBegunIsLeftAsItIs(t *testing.T) {
	k := fixtureOf(t, func(rem *mendv1.HostRemediation) { rem.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
	status := k.pass()
	if rem := k.remediation(); len(rem.Finalizers) != 0 || len(rem.Annotations) != 1 {
		t.Errorf("it has finalizers %v and annotations %v", rem.Finalizers, rem.Annotations)
	}
	if want := "The remediation is paused (by its annotation cluster.x-k8s.io/paused)"; status.Message != want {
		t.Errorf("it says %q, want %q", status.Message, want)
	}
}
