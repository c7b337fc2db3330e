package hostremediation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/event"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// milestonesOf writes the conditions of an attempt in short: + True, - False, ? Unknown, with the reasons of those that are False.
func milestonesOf(all []metav1.Condition) string {
	var b strings.Builder
	for _, m := range milestones {
		mark := " "
		for _, c := range all {
			switch {
			case c.Type != m.kind:
			case c.Status == metav1.ConditionTrue:
				mark = "+"
			case c.Status == metav1.ConditionUnknown:
				mark = "?"
			default:
				mark = "-" + c.Reason
			}
		}
		b.WriteString(mark)
	}
	return b.String()
}

func TestConditionsGoThroughAnAttempt(t *testing.T) {
	in := func(state powercycle.State, moved powercycle.Reason) powercycle.Memory {
		return powercycle.Memory{State: state, Attempt: 1, Moved: moved}
	}
	because := func(reason powercycle.Reason) powercycle.Step {
		return powercycle.Step{Do: powercycle.Wait, Reason: reason}
	}
	rem := remediation.Own.New()
	for _, now := range []struct {
		name   string
		memory powercycle.Memory
		facts  powercycle.Facts
		step   powercycle.Step
		want   string
	}{
		{"nothing was done", in(powercycle.Pending, ""), powercycle.Facts{}, because("WaitingInQueue"), "??????"},
		{"the host is not ready", in(powercycle.Preparing, ""), powercycle.Facts{}, because("HostNotReady"), "-HostNotReady?????"},
		{"it is asked", in(powercycle.PoweringOff, ""), powercycle.Facts{Marks: powercycle.Marks{KeptOff: true}}, because("PoweringOff"), "+-PoweringOff????"},
		{"it is off", in(powercycle.MovingWorkload, ""), powercycle.Facts{Marks: powercycle.Marks{KeptOff: true}}, because("WorkloadMoving"), "++-WorkloadMoving???"},
		{"it is to go on", in(powercycle.PoweringOn, "WorkloadMoved"), powercycle.Facts{Marks: powercycle.Marks{KeptOff: true}}, because("WorkloadMoved"), "+++-WorkloadMoved-WorkloadMoved?"},
		{"it was asked to", in(powercycle.PoweringOn, "WorkloadMoved"), powercycle.Facts{}, because("PoweringOn"), "++++-PoweringOn?"},
		{"it is on", in(powercycle.Booting, "WorkloadMoved"), powercycle.Facts{}, because("Booting"), "+++++-Booting"},
		{"the next attempt begins anew", in(powercycle.Preparing, ""), powercycle.Facts{}, because("NodeStillUnhealthy"), "-NodeStillUnhealthy?????"},
		{"the workload is stuck", in(powercycle.Booting, "WorkloadStuck"), powercycle.Facts{}, because("Booting"), "++-WorkloadStuck++-Booting"},
		{"what was reached stays when the owner is asked", in(powercycle.OwnerRequested, "WorkloadStuck"), powercycle.Facts{}, because("OwnerRequested"), "++-WorkloadStuck++-OwnerRequested"},
		{"a healthy machine is reported, and nothing that was not so", in(powercycle.Succeeded, "NodeGone"), powercycle.Facts{}, because("MachineHealthy"), "++-WorkloadStuck+++"},
		{"a host that cannot be off proves nothing", in(powercycle.Booting, ""), powercycle.Facts{Power: powercycle.Power{NoPowerOff: true}}, because("Booting"), "+-CannotBeProven-CannotBeProven++-Booting"},
	} {
		setConditions(rem, now.memory, now.facts, now.step, "why", noon)
		must.Is(t, now.want, milestonesOf(rem.GetConditions()), "%s:", now.name)
	}
}

func TestARemediationSaysHowItStandsAsAWhole(t *testing.T) {
	for name, tc := range map[string]struct {
		state powercycle.State
		facts powercycle.Facts
		do    powercycle.Action
		want  string
	}{
		"one that waits for its turn is under way":                  {powercycle.Pending, powercycle.Facts{}, powercycle.Wait, "True, Unknown"},
		"and one whose host is held off":                            {powercycle.PoweringOff, powercycle.Facts{Marks: powercycle.Marks{KeptOff: true, HasPowerAnnotations: true}}, powercycle.Wait, "True, Unknown"},
		"and one that boots":                                        {powercycle.Booting, powercycle.Facts{}, powercycle.Wait, "True, Unknown"},
		"and one whose owner is about to be asked":                  {powercycle.RequestingOwner, powercycle.Facts{}, powercycle.MarkHost, "True, Unknown"},
		"one that has helped has succeeded":                         {powercycle.Succeeded, powercycle.Facts{}, powercycle.Wait, "False, True"},
		"one whose owner was asked has not":                         {powercycle.OwnerRequested, powercycle.Facts{}, powercycle.Wait, "False, False"},
		"nor one that has failed":                                   {powercycle.Failed, powercycle.Facts{}, powercycle.Wait, "False, False"},
		"nor one that was cancelled":                                {powercycle.Ended, powercycle.Facts{}, powercycle.Wait, "False, False"},
		"nor one that its check has timed out":                      {powercycle.Stopped, powercycle.Facts{}, powercycle.Wait, "False, False"},
		"nothing else is tried while it keeps the host powered off": {powercycle.Stopped, powercycle.Facts{Marks: powercycle.Marks{KeptOff: true, HasPowerAnnotations: true}}, powercycle.Advance, "True, Unknown"},
		"which is over when the host is released":                   {powercycle.Stopped, powercycle.Facts{}, powercycle.Release, "False, False"},
		"a fence that cannot be removed delays nothing":             {powercycle.Failed, powercycle.Facts{FencedByUs: true}, powercycle.Wait, "False, False"},
		"one that cannot begin is not under way, and never was":     {"", powercycle.Facts{}, powercycle.Wait, "False, False"},
	} {
		rem := remediation.Own.New()
		step := powercycle.Step{Do: tc.do, Reason: "Because"}
		setConditions(rem, powercycle.Memory{State: tc.state}, tc.facts, step, "why", noon)
		processing, succeeded := conditions.Get(rem, nhcv1.ProcessingCondition), conditions.Get(rem, nhcv1.SucceededCondition)
		must.Is(t, tc.want, fmt.Sprintf("%s, %s", processing.Status, succeeded.Status), "%s:", name)
		if processing.Reason != "Because" || succeeded.Message != "why" || !succeeded.LastTransitionTime.Time.Equal(noon) {
			t.Errorf("%s: it does not say why, or when: %+v, %+v", name, processing, succeeded)
		}
	}
}

func TestEveryStateHasAPhaseAndAnAttemptADeadline(t *testing.T) {
	policy := powercycle.Policy{Timeout: time.Minute, Boot: 5 * time.Minute, Move: 3 * time.Minute, Queue: time.Hour}
	for state, want := range map[powercycle.State]struct {
		phase    infrav1.RemediationPhase
		deadline time.Time
	}{
		powercycle.Pending:         {infrav1.PhaseRunning, noon.Add(time.Hour)},
		powercycle.Preparing:       {infrav1.PhaseRunning, noon.Add(-time.Minute)},
		powercycle.PoweringOff:     {infrav1.PhaseRunning, noon.Add(-time.Minute)},
		powercycle.MovingWorkload:  {infrav1.PhaseRunning, noon.Add(policy.Move)},
		powercycle.Rebooting:       {infrav1.PhaseRunning, noon.Add(-time.Minute)},
		powercycle.PoweringOn:      {infrav1.PhaseWaiting, noon.Add(time.Minute)},
		powercycle.Booting:         {infrav1.PhaseWaiting, noon.Add(5 * time.Minute)},
		powercycle.RequestingOwner: {infrav1.PhaseWaiting, time.Time{}},
		powercycle.Succeeded:       {infrav1.PhaseWaiting, time.Time{}},
		powercycle.OwnerRequested:  {infrav1.PhaseDeleting, time.Time{}},
		powercycle.Failed:          {infrav1.PhaseFailed, time.Time{}},
		powercycle.Stopped:         {infrav1.PhaseFailed, time.Time{}},
	} {
		w := &observed{policy: policy, record: remediation.Record{Memory: powercycle.Memory{State: state, Since: noon, Began: noon.Add(-2 * time.Minute), Attempt: 2}}}
		got := statusOf(w, powercycle.Step{Do: powercycle.Wait}, "")
		if got.Phase != want.phase || got.Deadline == nil != want.deadline.IsZero() || got.Deadline != nil && !got.Deadline.Time.Equal(want.deadline) {
			t.Errorf("%s: phase %q until %v, want %q until %s", state, got.Phase, got.Deadline, want.phase, want.deadline)
		}
		m := &infrav1.Metal3Remediation{}
		remediation.Wrap(m).Report(got)
		if m.Status.RetryCount != 1 {
			t.Errorf("%s: retryCount is %d; the first attempt is no retry, the second is one", state, m.Status.RetryCount)
		}
	}
}

func TestWhoPausesARemediationIsSaid(t *testing.T) {
	paused := map[string]string{"cluster.x-k8s.io/paused": ""}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: clusterv1.ClusterSpec{Paused: ptr.To(true)}}
	for name, tc := range map[string]struct {
		annotations map[string]string
		observed    observed
		want        string
	}{
		"nothing":                     {nil, observed{cluster: &clusterv1.Cluster{}, machine: &clusterv1.Machine{}}, ""},
		"it is paused itself":         {paused, observed{}, "by its annotation cluster.x-k8s.io/paused"},
		"its Cluster is":              {nil, observed{cluster: cluster}, "with Cluster c"},
		"its Machine is":              {nil, observed{machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: paused}}}, "with its Machine, by the annotation cluster.x-k8s.io/paused"},
		"its Metal3Machine is":        {nil, observed{found: host.Found{Paused: true}}, "with its Metal3Machine, by the annotation cluster.x-k8s.io/paused"},
		"what clusterctl has left it": {map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}, observed{}, "because clusterctl has moved it to another management cluster, and deletes it here"},
	} {
		tc.observed.rem = remediation.Own.New()
		tc.observed.rem.SetAnnotations(tc.annotations)
		must.Is(t, tc.want, tc.observed.pause(), "%s: paused", name)
	}
}

func TestAMachineIsWellUnderAnotherBoot(t *testing.T) {
	aSituation := func(state powercycle.State, boot string, checked metav1.ConditionStatus) *observed {
		w := &observed{machine: &clusterv1.Machine{}, observation: observation{node: readyNode(boot)}, record: remediation.Record{BootID: "before", Memory: powercycle.Memory{State: state}}}
		if checked != "" {
			w.machine.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineHealthCheckSucceededCondition, Status: checked}}
		}
		return w
	}
	for name, tc := range map[string]struct {
		w    *observed
		want bool
	}{
		"a node that has booted is":                                  {aSituation(powercycle.Booting, "after", ""), true},
		"one that was ready when its host went off is not":           {aSituation(powercycle.Booting, "before", ""), false},
		"nor one that a health check calls bad for another reason":   {aSituation(powercycle.Booting, "after", metav1.ConditionFalse), false},
		"before it was cycled its boot does not matter":              {aSituation(powercycle.Preparing, "before", ""), true},
		"a machine whose health check has passed is, once it booted": {aSituation(powercycle.Booting, "after", metav1.ConditionTrue), true},
	} {
		must.Is(t, tc.want, tc.w.booted() && !remediation.MarkedUnhealthy(tc.w.machine), "%s: well:", name)
	}
}

func TestAPausedMachineIsHeardOf(t *testing.T) {
	paused := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{clusterv1.PausedAnnotation: ""}}}
	for want, was := range map[bool]*clusterv1.Machine{true: {}, false: paused} {
		if got := machineChanges().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: paused}); got != want {
			t.Errorf("it was paused before: %t, and enqueues its remediation: %t", !want, got)
		}
	}
}

// infra-operator#286: instance HA keeps a host off for moments, and an owner powers a host off for a repair. A remediation that keeps its
// host off counts under the limits of its check, whatever keeps BMO from acting.
func TestARemediationThatHoldsItsHostOffHasItsPlaceWhileItWaits(t *testing.T) {
	k := fixtureOf(t)
	k.expects(powersOff)
	k.pass()
	k.host.Status.ErrorType = bmov1alpha1.RegistrationError
	k.pass()
	rem := k.remediation()
	if got, waits := stands(rem)[2], rem.Annotations[mendv1.WaitsForAnnotation]; got != "HostNotReady" || waits != "" {
		t.Errorf("it stands at %s, and waits for %q without a place", got, waits)
	}
}

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

// When the pause ends, BMO would still carry out what was requested before it.
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

// removes reconciles ten times a second for 30 s, and calls remove after each. It returns how often the remediation was written.
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

// Without the delay there were 1200 writes in 30 s.
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

// Otherwise the minute for which a control-plane host waits for its cluster would start again at each reconcile.
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
	k.reaches(powercycle.Booting)
	if rec := remediation.Remembered(k.remediation()); rec.State != powercycle.Booting || rec.Attempt != 1 {
		t.Errorf("it remembers %+v", rec)
	}
}
