package remediationrecord

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A user may make up an open record of a machine that is remediated, also with the name and the UID of that.
func TestARecordThatNothingCarriesIsNotBegun(t *testing.T) {
	uid := func(r *mendv1.RemediationRecord) { r.UID = "of the real one" }
	for name, tc := range map[string]struct {
		change func(*management)
		begun  string
	}{
		"the Machine carries another one, as its owner is asked": {func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) {
				says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
				says(w, mendv1.Remediation, metav1.ConditionTrue, time.Second)
				w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + followedBy + "w1-record@another"
			})
		}, ""},
		"a request carries another one of that name": {func(m *management) {
			req := cycled("w1", "PoweringOff")
			req.Annotations[mendv1.RecordAnnotation] += "@another"
			m.create(req)
		}, ""},
		"the owner is asked, and the Machine carries it": {func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) {
				says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
				says(w, mendv1.Remediation, metav1.ConditionTrue, time.Second)
				w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + Mention(recordOf(uid))
			})
		}, "True OwnerRequested"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t, append(fleet(), unhealthy(), recordOf(uid))...)
			tc.change(m)
			if got := condition(m.reconcile(time.Minute), mendv1.RecordBegun); got != tc.begun {
				t.Errorf("begun: %q, want %q", got, tc.begun)
			}
		})
	}
}

// The owner is asked anew, as after the check released the machine or after clusterctl move: that is another record's, and two would end as Replaced.
func TestARecordEndsWhoseMachineCarriesAnother(t *testing.T) {
	for remediator, want := range map[mendv1.RecordRemediator]mendv1.RecordOutcome{mendv1.RemediatedByOwner: mendv1.RecordCancelled, mendv1.RemediatedByRequest: ""} {
		m := newManagement(t, append(fleet(), unhealthy(), cycled("w1", "PoweringOff"), recordOf(func(r *mendv1.RemediationRecord) { r.Spec.Remediator = remediator }))...)
		m.ask(time.Second)
		m.reconcile(2 * time.Second)
		m.change("w1", func(w *clusterv1.Machine) {
			w.Status.Conditions[len(w.Status.Conditions)-1].Message = "asked" + followedBy + "w1-next@next"
		})
		if got := m.reconcile(time.Minute); got.Status.Outcome != want {
			t.Errorf("one by %s ends as %q", remediator, got.Status.Outcome)
		}
	}
}

// Requests that are stored name their records without a UID: one that the record has goes on.
func TestARequestOfBeforeUIDsIsFollowed(t *testing.T) {
	for uid, want := range map[string]string{"r": "False PoweringOff", "of another": "False " + Withdrawn} {
		m := newManagement(t, append(fleet(), unhealthy(), cycled("w1", "PoweringOff"), recordOf(begun(RequestCreated), func(r *mendv1.RemediationRecord) {
			r.UID = "of the record"
			r.Status.Requests = []mendv1.RecordRef{{
				APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediation", Namespace: "metal", Name: "w1", UID: uid,
			}}
		}))...)
		m.ActsOnUnclaimed = false
		if got := condition(m.reconcile(time.Minute), mendv1.RecordCapacityBack); got != want {
			t.Errorf("with a request %q it waits for %q, want %q", uid, got, want)
		}
	}
}

// Only a check that kubemend acts on has a step left.
func TestACheckOfOthersHasNoStepLeft(t *testing.T) {
	for claim, want := range map[string]string{mendv1.Claim: "False " + AwaitingNextStep, "": "False " + Withdrawn} {
		check := &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}}
		if claim != "" {
			check.Annotations = map[string]string{clusterv1.PausedAnnotation: claim}
		}
		m := newManagement(t, append(fleet(), unhealthy(), recordOf(begun(RequestCreated)), check)...)
		m.ActsOnUnclaimed = false
		if got := condition(m.reconcile(time.Minute), mendv1.RecordCapacityBack); got != want {
			t.Errorf("claimed %q: it waits for %q, want %q", claim, got, want)
		}
	}
}

// What hundreds of records read is read once.
func TestRecordsShareWhatTheyRead(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy())...)
	read := func() {
		t.Helper()
		set := m.Recent.Get(t.Context(), recordKey, &clusterv1.MachineSet{})
		machines := &clusterv1.MachineList{}
		list := m.Recent.List(t.Context(), machines)
		if list != nil || len(machines.Items) != 1 || machines.Items[0].Name != "w1" {
			t.Errorf("%d Machines: %v", len(machines.Items), list)
		}
		if !apierrors.IsNotFound(set) {
			t.Errorf("the set: %v", set)
		}
		clear(machines.Items) // as who sorts out those that do not matter
	}
	for range 100 {
		read()
	}
	m.clock.Step(time.Minute)
	read()
	if diff := cmp.Diff(map[string]int{"MachineSet": 2, "MachineList": 2}, m.asked); diff != "" {
		t.Errorf("in two minutes the API server is asked (-want +got):\n%s", diff)
	}
}
