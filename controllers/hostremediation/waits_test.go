package hostremediation

import (
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// infra-operator#286: instance HA holds a host off for moments; an owner switches one off for its repair.
func TestARemediationWaitsForWhatPassesAndGoesOn(t *testing.T) {
	const iha = "reboot.metal3.io/iha"
	waits := map[string]struct {
		begin, end func(*bmov1alpha1.BareMetalHost)
		reason     string
	}{
		"another holder": {
			func(h *bmov1alpha1.BareMetalHost) { h.Annotations[iha] = "" },
			func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, iha) }, "HostKeptOff",
		},
		"switched off": {
			func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = false },
			func(h *bmov1alpha1.BareMetalHost) { h.Spec.Online = true }, "HostSwitchedOff",
		},
		"paused": {
			func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.PausedAnnotation] = "me" },
			func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.PausedAnnotation) }, "HostNotReady",
		},
		"detached": {
			func(h *bmov1alpha1.BareMetalHost) { h.Annotations[bmov1alpha1.DetachedAnnotation] = "" },
			func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.DetachedAnnotation) }, "HostNotReady",
		},
	}
	for name, tc := range waits {
		for _, well := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				k := fixtureOf(t)
				k.r.Clusters = boots("before", corev1.ConditionUnknown)
				tc.begin(k.host)
				status := k.pass()
				for range 3 { // a person is asked meanwhile
					status = k.wait(11 * time.Minute)
				}
				if got := k.remediation().Annotations[mendv1.WaitsForAnnotation]; got != tc.reason || powercycle.State(status.Step).Final() {
					t.Fatalf("it waits for %q in %s: %s", got, status.Step, status.Message)
				}
				want := powercycle.PoweringOff
				if tc.end(k.host); well {
					k.r.Clusters, want = boots("before", corev1.ConditionTrue), powercycle.Succeeded
				} else {
					k.expects(powersOff)
				}
				status = k.pass()
				if _, waits := k.remediation().Annotations[mendv1.WaitsForAnnotation]; waits || status.Step != string(want) {
					t.Errorf("after that it waits: %t, in %s: %s", waits, status.Step, status.Message)
				}
			})
		}
	}
}
