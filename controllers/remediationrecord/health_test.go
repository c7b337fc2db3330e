package remediationrecord

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// underPressure makes a record one of the pressure on the disk of n1.
func underPressure(r *mendv1.RemediationRecord) {
	r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
	r.Spec.Evidence = []mendv1.RecordEvidence{{Type: string(corev1.NodeDiskPressure), Status: "True"}}
}

func pressed(status corev1.ConditionStatus) *corev1.Node {
	return node("n1", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status})
}

// A Machine that a MachineHealthCheck calls healthy may have a node that a NodeHealthCheck or a user does not: they look at other things.
func TestWhoseWordItIsThatATargetIsHealthy(t *testing.T) {
	ofMachines := func(*mendv1.RemediationRecord) {}
	// cycle is the record of a power cycle, which is where the Machine is.
	cycle := byNodes
	byHand := func(r *mendv1.RemediationRecord) { r.Spec.Requester = mendv1.RecordRequester{User: "alice"} }
	unhealthyNode, another := &nhcv1.UnhealthyNode{Name: "n1"}, &nhcv1.UnhealthyNode{Name: "n2"}
	recovered := &nhcv1.UnhealthyNode{Name: "n1", ConditionsHealthyTimestamp: new(after(time.Minute))}
	for name, tc := range map[string]struct {
		by       func(*mendv1.RemediationRecord)
		machine  metav1.ConditionStatus // HealthCheckSucceeded
		pressure corev1.ConditionStatus // what it was unhealthy by is True
		listed   *nhcv1.UnhealthyNode
		want     mendv1.RecordOutcome
	}{
		"the MachineHealthCheck that asked says that it is":             {by: ofMachines, machine: "True", pressure: "True", want: mendv1.RecordHealed},
		"the MachineHealthCheck that asked says that it is not":         {by: ofMachines, machine: "False", pressure: "False"},
		"another check says so of what a NodeHealthCheck asked for":     {by: ofNodes, machine: "True", pressure: "True"},
		"another check says so of a power cycle of a NodeHealthCheck":   {by: cycle, machine: "True", pressure: "True"},
		"another check says so of a power cycle by hand":                {by: byHand, machine: "True", pressure: "True"},
		"another check says that it is not":                             {by: byHand, machine: "False", pressure: "False"},
		"the node says so, and its NodeHealthCheck does not list it":    {by: ofNodes, pressure: "False", want: mendv1.RecordHealed},
		"the node says so to a power cycle of a NodeHealthCheck":        {by: cycle, pressure: "False", want: mendv1.RecordHealed},
		"the node says so to a user":                                    {by: byHand, machine: "True", pressure: "False", want: mendv1.RecordHealed},
		"its NodeHealthCheck lists it for something else":               {by: ofNodes, machine: "True", pressure: "False", listed: unhealthyNode},
		"that of a power cycle lists it for something else":             {by: cycle, machine: "True", pressure: "False", listed: unhealthyNode},
		"its NodeHealthCheck lists another node":                        {by: ofNodes, pressure: "False", listed: another, want: mendv1.RecordHealed},
		"a NodeHealthCheck lists it that did not ask":                   {by: byHand, pressure: "False", listed: unhealthyNode, want: mendv1.RecordHealed},
		"its NodeHealthCheck lists it, and says since when it is again": {by: ofNodes, pressure: "False", listed: recovered, want: mendv1.RecordHealed},
	} {
		t.Run(name, func(t *testing.T) {
			w1, check := unhealthy(), nodeCheck("metal")
			w1.Status.Conditions = nil
			if tc.machine != "" {
				says(w1, clusterv1.MachineHealthCheckSucceededCondition, tc.machine, -time.Hour)
			}
			if tc.listed != nil {
				check.Status.UnhealthyNodes = []nhcv1.UnhealthyNode{*tc.listed}
			}
			node := pressed(tc.pressure)
			m := newManagement(t, append(fleet(), w1, check, node, recordOf(underPressure, begun("RequestCreated"), tc.by))...)
			m.nodes["n1"] = node
			if got := m.reconcile(2 * time.Minute); got.Status.Outcome != tc.want {
				t.Errorf("it ends as %q, want %q: %v", got.Status.Outcome, tc.want, reasons(got))
			}
		})
	}
}

// A KubeadmControlPlane leaves OwnerRemediated False where it has put a remediation off, and nothing replaces the machine then.
func TestARecordEndsWhoseCheckIsGoneAlthoughTheOwnerHasNotDoneAsItWasAsked(t *testing.T) {
	for ready, want := range map[corev1.ConditionStatus]mendv1.RecordOutcome{"True": mendv1.RecordHealed, "False": mendv1.RecordCancelled} {
		w1 := unhealthy()
		w1.Status.Conditions = nil
		says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
		m := newManagement(t, append(fleet(), w1, recordOf(begun("OwnerRequested")))...)
		m.nodes["n1"] = node("n1", corev1.NodeCondition{Type: corev1.NodeReady, Status: ready})
		m.reconcile(time.Minute)
		if got := m.reconcile(10 * time.Minute); got.Status.Outcome != want {
			t.Errorf("with a node that is Ready=%s it ends as %q, want %q: %v", ready, got.Status.Outcome, want, reasons(got))
		}
	}
}

// A manager with the rights of one namespace reads no NodeHealthCheck, whose power cycles it carries out. What such a check asks for beside
// them is not known: that keeps no record of a healthy machine open, which the next remediation would join, and closes none of an unhealthy
// one.
func TestARecordWhoseCheckMayNotBeReadEndsOnceItsTargetIsHealthy(t *testing.T) {
	for name, row := range map[string]struct {
		pressure corev1.ConditionStatus // what it was unhealthy by is True
		begun    bool
		want     mendv1.RecordOutcome
	}{
		"a machine that is healthy again is healed":          {pressure: corev1.ConditionFalse, begun: true, want: mendv1.RecordHealed},
		"one that is healthy before it began is cancelled":   {pressure: corev1.ConditionFalse, want: mendv1.RecordCancelled},
		"one that is unhealthy may have another request":     {pressure: corev1.ConditionTrue, begun: true},
		"one that is unhealthy may have its first elsewhere": {pressure: corev1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			w1.Status.Conditions = nil
			changes := []func(*mendv1.RemediationRecord){byNodes, underPressure}
			if row.begun {
				changes = append(changes, begun("RequestCreated"))
			}
			m := newManagement(t, append(fleet(), w1, nodeCheck("metal"), recordOf(changes...))...)
			m.Recent.Live = refusing[*nhcv1.NodeHealthCheck](m.server, apierrors.NewForbidden(schema.GroupResource{}, "nodes", nil))
			m.nodes["n1"] = pressed(row.pressure)
			is := m.reconcile(10 * time.Minute)
			if is.Open() {
				is = m.reconcile(24 * time.Hour)
			}
			if is.Status.Outcome != row.want {
				t.Errorf("it has ended as %q by %q, want %q", is.Status.Outcome, is.Status.EndedBy, row.want)
			}
		})
	}
}
