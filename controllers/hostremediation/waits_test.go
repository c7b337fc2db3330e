package hostremediation

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
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
				got := k.remediation().Annotations[mendv1.WaitsForAnnotation]
				if got != tc.reason || powercycle.State(status.Step).Final() {
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

// What the operator of a paused host does when the pause ends was asked before it.
func TestAHostThatIsPausedBeforeItIsOffIsNotPoweredOffUnasked(t *testing.T) {
	k := fixtureOf(t)
	k.expects(powersOff, releases)
	k.r.Clusters = boots("before", corev1.ConditionUnknown)
	k.pass()
	k.host.Annotations[bmov1alpha1.PausedAnnotation] = "me"
	if status := k.pass(); status.Step != string(powercycle.Preparing) || k.remediation().Annotations[mendv1.WaitsForAnnotation] != "HostNotReady" {
		t.Errorf("in %s: %s", status.Step, status.Message)
	}
	k.r.Clusters = boots("before", corev1.ConditionTrue)
	delete(k.host.Annotations, bmov1alpha1.PausedAnnotation)
	if status := k.pass(); status.Step != string(powercycle.Succeeded) {
		t.Errorf("in %s: %s", status.Step, status.Message)
	}
}

// removes reconciles for 30 s, ten times a second, and removes after each what was written. It returns how often that was the remediation.
func (k *fixture) removes(remove func()) int {
	k.t.Helper()
	writes := 0
	for range 300 {
		before := k.remediation().ResourceVersion
		k.reconciles()
		if k.remediation().ResourceVersion != before {
			writes++
		}
		remove()
		k.clock.SetTime(k.clock.Now().Add(100 * time.Millisecond))
	}
	return writes
}

// Twelve hundred writes were seen in 30 s.
func TestWhatIsUndoneIsDoneAgainAfterAGrowingPause(t *testing.T) {
	later := &metav1.Time{Time: noon.Add(time.Hour)}
	stripper := []metav1.ManagedFieldsEntry{
		{Manager: mendv1.FieldOwner, Time: later}, {Manager: "long-ago", Time: &metav1.Time{Time: noon.Add(-time.Hour)}},
		{Manager: "baremetal-operator", Subresource: "status", Time: later}, {Manager: "stripper", Time: later},
	}
	for _, tc := range []struct {
		state  powercycle.State
		do     act
		remove func(*fixture)
	}{
		{powercycle.PoweringOff, powersOff, func(k *fixture) {
			clear(k.host.Annotations)
			k.host.ManagedFields = stripper
		}},
		{powercycle.MovingWorkload, fences, func(k *fixture) {
			k.seen.Fenced, k.seen.Ours = false, false
			k.seen.Node.ManagedFields = stripper
		}},
	} {
		t.Run(string(tc.state), func(t *testing.T) {
			k := fixtureOf(t)
			k.obeys()
			if tc.state == powercycle.MovingWorkload {
				k.reaches(tc.state)
				tc.remove(k)
			}
			writes := k.removes(func() { tc.remove(k) })
			done := len(slices.DeleteFunc(slices.Clone(k.did), func(a act) bool { return a != tc.do }))
			if done < 4 || done > 6 || writes > 4*done {
				t.Errorf("it was done %d times with %d writes", done, writes)
			}
			status := k.remediation().Status
			if status.Step != string(tc.state) || !strings.HasSuffix(status.Message, "after a while (likely stripper)") {
				t.Errorf("in %s: %s", status.Step, status.Message)
			}
		})
	}
}

// The minute for which a control-plane host waits for its cluster would begin anew at each look.
func TestWhatCannotBeStoredAgainYetIsRemembered(t *testing.T) {
	k := fixtureOf(t)
	k.obeys()
	k.reaches(powercycle.MovingWorkload)
	remove := func() { k.edit(func(rem *mendv1.HostRemediation) { clear(rem.Annotations) }) }
	k.removes(remove)
	remove()
	k.seen = fence.Seen{}
	began := k.clock.Now()
	for range 2 {
		k.pass()
		k.clock.SetTime(k.clock.Now().Add(time.Second))
	}
	value, _ := k.r.kept.Load(k.key)
	var rec remediation.Record
	if err := json.Unmarshal([]byte(value.(kept).record), &rec); err != nil || !rec.Unseen.Equal(began) {
		t.Errorf("it remembers %+v, %v", rec, err)
	}
}

func TestWhatARemediationRemembersIsStoredAgain(t *testing.T) {
	k := fixtureOf(t)
	k.r.Clusters = boots("before", corev1.ConditionUnknown)
	k.expects(powersOff, fences, releases, unfences)
	writes := k.removes(func() {
		k.edit(func(rem *mendv1.HostRemediation) { clear(rem.Annotations) }) // also what keeps clusterctl from moving it
	})
	if writes > 8 {
		t.Errorf("it was written %d times in 30 s", writes)
	}
	k.power(false)
	k.pass()
	k.seen.Drained = true
	k.pass()
	k.power(true)
	k.pass()
	if rec := remediation.Remembered(k.remediation()); rec.State != powercycle.Booting || rec.Attempt != 1 {
		t.Errorf("it remembers %+v", rec)
	}
}
