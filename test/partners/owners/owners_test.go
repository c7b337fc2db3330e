package owners

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func asked(name string, edits ...func(*clusterv1.Machine)) *clusterv1.Machine {
	m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, OwnerReferences: []metav1.OwnerReference{
		{Kind: "MachineSet", Name: "md-0", UID: "md-0", Controller: ptr.To(true)},
	}}}
	for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineOwnerRemediatedCondition} {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionFalse})
	}
	for _, edit := range edits {
		edit(m)
	}
	return m
}

func controlPlane(m *clusterv1.Machine) { m.Labels[clusterv1.MachineControlPlaneLabel] = "" }

func TestWhichMachinesAreReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(*clusterv1.Machine)
		want bool
	}{
		"one that its owner is asked to remediate": {func(*clusterv1.Machine) {}, true},
		"not one without an owner":                 {func(m *clusterv1.Machine) { m.OwnerReferences = nil }, false},
		"not one that is being deleted":            {func(m *clusterv1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, false},
		"not one that is not unhealthy":            {func(m *clusterv1.Machine) { m.Status.Conditions[0].Status = metav1.ConditionTrue }, false},
		"not one whose owner is not asked":         {func(m *clusterv1.Machine) { m.Status.Conditions = m.Status.Conditions[:1] }, false},
	} {
		if _, got := (&Owners{}).Replace(asked("m", tc.edit)); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestAControlPlaneReplacesOneMachineAfterTheOther(t *testing.T) {
	o := &Owners{}
	first, begins := o.Replace(asked("a", controlPlane))
	if !begins || !first.WaitsForDeletion {
		t.Errorf("the first one: %+v, %t", first, begins)
	}
	if _, begins := o.Replace(asked("b", controlPlane)); begins {
		t.Error("the second one is replaced beside the first one")
	}
	o.Done(first.Owner.UID)
	if _, begins := o.Replace(asked("b", controlPlane)); !begins {
		t.Error("the second one is not replaced after the first one")
	}
}

func TestAMachineSetReplacesSeveralMachinesAtOnce(t *testing.T) {
	o := &Owners{}
	for _, name := range []string{"a", "b"} {
		if r, begins := o.Replace(asked(name)); !begins || r.WaitsForDeletion {
			t.Errorf("%s: %+v, %t", name, r, begins)
		}
	}
}

func TestTheNameOfASuccessor(t *testing.T) {
	for name, want := range map[string]string{"w1": "w1-r1", "w1-r1": "w1-r2", "w1-r9": "w1-r10", "worker-red": "worker-red-r1"} {
		if got := NextName(name); got != want {
			t.Errorf("%s is replaced by %s, want %s", name, got, want)
		}
	}
}
