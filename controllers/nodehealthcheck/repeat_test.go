package nodehealthcheck

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
)

// turns are statuses of a node's Ready condition, and for how long each lasts.
type turns []struct {
	ready corev1.ConditionStatus
	lasts time.Duration
}

// A power cycle says Succeeded when the power is back. Until the node is, its Ready turns as it boots.
func TestASingleRemediationIsNotRepeatedBeforeTheNodeWasHealthy(t *testing.T) {
	const no, unknown, yes = corev1.ConditionFalse, corev1.ConditionUnknown, corev1.ConditionTrue
	delayed := func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: time.Hour} }
	byHand := func(s *nhcv1.NodeHealthCheckSpec) { s.HealthyDelay = &metav1.Duration{Duration: -1} }
	at := func(*nhcv1.NodeHealthCheckSpec) {}
	for name, tc := range map[string]struct {
		spec  func(*nhcv1.NodeHealthCheckSpec)
		turns turns
		made  int
	}{
		"the control plane notices only later that a node is booting":   {at, turns{{unknown, 10 * time.Minute}}, 1},
		"the network of a node that has booted does not come up":        {at, turns{{unknown, 2 * time.Minute}, {no, 10 * time.Minute}}, 1},
		"a node boots again and again":                                  {at, turns{{unknown, 6 * time.Minute}, {no, 6 * time.Minute}, {unknown, 6 * time.Minute}, {no, 6 * time.Minute}}, 1},
		"a node that turns was healthy before, and nobody saw that":     {delayed, turns{{unknown, 0}, {unknown, 10 * time.Minute}}, 1},
		"a node was healthy, for less than its delay":                   {delayed, turns{{yes, time.Minute}, {unknown, 10 * time.Minute}}, 2},
		"a node was healthy, and no person has said so":                 {byHand, turns{{yes, time.Minute}, {unknown, 10 * time.Minute}}, 2},
		"a node was healthy, and boots when it is remediated once more": {delayed, turns{{yes, time.Minute}, {unknown, 10 * time.Minute}, {no, 10 * time.Minute}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			k := newRack(t, append(nodes("a", "b", "c"), template("Reboot", "reboot", false), check("nhc", tc.spec))...)
			k.turn("b", no)
			k.after(300 * time.Second)
			k.pass("nhc")
			k.after(20 * time.Second)
			k.answers("Reboot", nhcv1.SucceededCondition, "True")
			k.after(time.Second)
			k.pass("nhc")
			for _, turn := range tc.turns {
				k.turn("b", turn.ready)
				k.pass("nhc")
				k.after(turn.lasts)
				k.pass("nhc")
			}
			if len(k.made) != tc.made {
				t.Errorf("made %v, want %d", k.made, tc.made)
			}
			if now := k.requests(); !slices.Equal(now, []string{"Reboot/b"}) {
				t.Errorf("requests %v", now)
			}
		})
	}
}

// A node that was deleted and made again, as Poison Pill does, was not healthy.
func TestASingleRemediationIsNotRepeatedSinceItsNodeWasGone(t *testing.T) {
	k := newRack(t, append(nodes("a", "b", "c"), template("Reboot", "reboot", false), check("nhc"))...)
	k.bad("b")
	k.pass("nhc")
	k.says(nhcv1.NodeDeletionExpectedCondition, "True", "Deletes", "")
	k.remove(node("b", nil))
	k.pass("nhc")
	again := node("b", nil)
	again.UID = "another"
	k.create(again)
	k.turn("b", corev1.ConditionUnknown)
	k.answers("Reboot", nhcv1.SucceededCondition, "True")
	k.pass("nhc")
	k.after(10 * time.Minute)
	k.pass("nhc")
	if len(k.made) != 1 {
		t.Errorf("made %v", k.made)
	}
}
