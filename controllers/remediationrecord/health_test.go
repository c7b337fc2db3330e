package remediationrecord

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// A Machine that a MachineHealthCheck calls healthy may have a node that a NodeHealthCheck or a user does not: they look at other things.
func TestWhoseWordItIsThatATargetIsHealthy(t *testing.T) {
	ofMachines := func(*mendv1.RemediationRecord) {}
	// cycle is the record of a power cycle, which is where the Machine is.
	cycle := func(r *mendv1.RemediationRecord) {
		r.Spec.Requester.Check = &mendv1.RecordRef{APIVersion: nhcv1.GroupVersion.String(), Kind: nodeCheckKind, Name: "nodes"}
	}
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
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: corev1.NodeDiskPressure, Status: tc.pressure},
			}}}
			is := recordOf(func(r *mendv1.RemediationRecord) {
				r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
				r.Spec.Evidence = []mendv1.RecordEvidence{{Type: string(corev1.NodeDiskPressure), Status: "True"}}
				r.Status.Begun = new(after(time.Second))
				r.Status.Steps = []mendv1.RecordStep{{Time: after(time.Second), Reason: "RequestCreated", Message: "asked"}}
				tc.by(r)
			})
			m := newManagement(t, append(fleet(), w1, check, node, is)...)
			m.nodes["n1"] = node
			if got := m.reconcile(2 * time.Minute); got.Status.Outcome != tc.want {
				t.Errorf("it ends as %q, want %q: %v", got.Status.Outcome, tc.want, reasons(got))
			}
		})
	}
}
