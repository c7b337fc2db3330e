package nodehealthcheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// The rule itself has its table in package controlplane.
func TestWhoMayBeDisrupted(t *testing.T) {
	gone := reboots("m9")
	gone.Node, gone.Gone = nil, epoch
	machine := func(name, node string, replaced time.Time, remediated bool) ControlPlane {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		m.Status.NodeRef.Name = node
		if !replaced.IsZero() {
			m.DeletionTimestamp = &metav1.Time{Time: replaced}
		}
		if remediated {
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineExternallyRemediatedCondition, Status: metav1.ConditionFalse}}
		}
		return ControlPlane{Machines: []clusterv1.Machine{m}}
	}
	for name, tc := range map[string]struct {
		ready string // of which members the node is ready, in the order of their names: m0, m1, ...
		of    ControlPlane
		want  string // what blocks m0
	}{
		"the only one may be": {"n", ControlPlane{}, ""},
		"so may one of two":   {"ny", ControlPlane{}, ""},
		"one of two while the other one is being remediated":     {"nn", ControlPlane{Requests: []MemberRequest{reboots("m1")}}, "m1 is being remediated (Reboot remediators/m1)"},
		"one of three that is down":                              {"nyy", ControlPlane{}, ""},
		"one of three that is down, as another one is":           {"nny", ControlPlane{}, ""},
		"one that is ready, and bad in another way, with all up": {"yyy", ControlPlane{}, ""},
		"one that is ready while another one is down":            {"yny", ControlPlane{}, "without it 1 of 3 control-plane nodes are healthy, and 2 are needed"},
		"W3: one of five while another one is being remediated": {
			"nyyyy", ControlPlane{Requests: []MemberRequest{reboots("m1")}}, "m1 is being remediated (Reboot remediators/m1)",
		},
		"the one that is being remediated already": {"nyy", ControlPlane{Requests: []MemberRequest{reboots("m0")}}, ""},
		"W3: one that is being remediated already, as another one is": {
			"nnyyy", ControlPlane{Requests: []MemberRequest{reboots("m0"), reboots("m1")}}, "m1 is being remediated (Reboot remediators/m1)",
		},
		"one while a node that is gone is away": {
			"nyy", ControlPlane{Requests: []MemberRequest{gone}}, "m9 is being remediated (Reboot remediators/m9)",
		},
		"one while another one's Machine is remediated": {
			"nyy", machine("m1", "m1", time.Time{}, true), "m1 is being remediated (Machine ns/m1)",
		},
		"one while another one's Machine is being replaced": {
			"nyy", machine("m1", "m1", epoch, false), "m1 is being remediated (Machine ns/m1)",
		},
		"one while that has taken very long": {"nyy", machine("m1", "m1", epoch.Add(-time.Hour), false), ""},
		"one that is ready while a fourth joins": {
			"yyy", machine("m3", "", time.Time{}, false), "without it 2 of 4 control-plane nodes are healthy, and 3 are needed",
		},
		"one that is ready when the fourth has a node": {"yyyy", machine("m3", "", time.Time{}, false), ""},
		"while it is not known":                        {"nyy", ControlPlane{Unread: "a time-out"}, "the control plane could not be read: a time-out"},
	} {
		t.Run(name, func(t *testing.T) {
			for i, is := range tc.ready {
				tc.of.Nodes = append(tc.of.Nodes, seen(fmt.Sprintf("m%d", i), is == 'y'))
			}
			facts := &Facts{Now: epoch, ControlPlane: &tc.of, Nodes: []Node{{Name: "m0"}}}
			d := &decider{f: facts, p: &Plan{Decisions: make([]Decision, 1)}, plane: tc.of.plane(epoch)}
			c := d.caseOf(0, &view{})
			var got string
			if blockers := c.ask(ofControlPlane); len(blockers) > 0 {
				got = strings.TrimPrefix(blockers[0].Text, strings.Replace(quorumLoss, "{node}", "m0", 1))
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestWhetherEtcdCanDoWithoutANode(t *testing.T) {
	guards := func(nodes ...string) map[string]string {
		all := map[string]string{}
		for _, n := range nodes {
			all[n] = "guard-" + n
		}
		return all
	}
	for name, tc := range map[string]struct {
		etcd Etcd
		can  bool
	}{
		"there is none of OpenShift's":                         {Etcd{}, true},
		"C66: its budget allows a disruption":                  {Etcd{There: true, Budgets: 1, Allows: true}, true},
		"C66: the guard on the node is the one that is lost":   {Etcd{There: true, Budgets: 1}, true},
		"there is no guard on the node":                        {Etcd{There: true, Budgets: 1, Guards: guards("other")}, true},
		"another guard is lost, and that on the node is not":   {Etcd{There: true, Budgets: 1, Guards: guards("n")}, false},
		"C66: it has no budget":                                {Etcd{There: true}, false},
		"it has two budgets, and it is not known which counts": {Etcd{There: true, Budgets: 2}, false},
		"it could not be asked":                                {Etcd{There: true, Unread: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if b := tc.etcd.against("n"); (b == "") != tc.can {
				t.Errorf("against() = %q, want that it can do without: %t", b, tc.can)
			}
		})
	}
}

func TestWhichMachinesAreBeingRemediated(t *testing.T) {
	at := metav1.NewTime(epoch)
	is := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at}
	}
	asked := is(clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, "Waiting")
	const externally = clusterv1.MachineExternallyRemediatedCondition
	for name, tc := range map[string]struct {
		conditions []metav1.Condition
		deleted    *metav1.Time
		busy       bool
		replaced   time.Time
	}{
		"W3: one whose owner was asked":         {[]metav1.Condition{asked}, nil, true, epoch},
		"W3: one that is remediated externally": {[]metav1.Condition{is(externally, metav1.ConditionFalse, "Waiting")}, nil, true, time.Time{}},
		"W3: one that is being deleted":         {nil, &at, false, epoch},
		"none whose owner is done":              {[]metav1.Condition{is(asked.Type, metav1.ConditionTrue, "Done")}, nil, false, time.Time{}},
		"none for which no request was made": {
			[]metav1.Condition{is(externally, metav1.ConditionFalse, clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason)}, nil, false, time.Time{},
		},
		"none that is healthy again": {
			[]metav1.Condition{asked, is(clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, "Healthy")}, nil, false, time.Time{},
		},
	} {
		m := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: tc.deleted}, Status: clusterv1.MachineStatus{Conditions: tc.conditions}}
		if busy, since := BeingRemediated(m), replacedSince(m); busy != tc.busy || !since.Equal(tc.replaced) {
			t.Errorf("%s: remediated %t, replaced since %s", name, busy, since)
		}
	}
}
