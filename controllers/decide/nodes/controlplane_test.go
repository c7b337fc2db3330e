package nodes

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The rule itself has its table in package controlplane.
func TestWhoMayBeDisrupted(t *testing.T) {
	reboots := func(name string) MemberRequest {
		return MemberRequest{Ref: Ref{"Reboot", "remediators", name}, Node: name, There: true}
	}
	machine := func(node string, change func(*MemberMachine)) MemberMachine {
		m := MemberMachine{Ref: Ref{"Machine", "ns", "m1"}, Node: node}
		change(&m)
		return m
	}
	replaced := func(at time.Time) func(*MemberMachine) { return func(m *MemberMachine) { m.Replaced = at } }
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
			"nyy", ControlPlane{Requests: []MemberRequest{{Ref: Ref{"Reboot", "remediators", "m9"}, Node: "m9", Gone: epoch}}}, "m9 is being remediated (Reboot remediators/m9)",
		},
		"one while another one's Machine is remediated": {
			"nyy", ControlPlane{Machines: []MemberMachine{machine("m1", func(m *MemberMachine) { m.Remediated = true })}}, "m1 is being remediated (Machine ns/m1)",
		},
		"one while another one's Machine is being replaced": {
			"nyy", ControlPlane{Machines: []MemberMachine{machine("m1", replaced(epoch))}}, "m1 is being remediated (Machine ns/m1)",
		},
		"one while that has taken very long": {"nyy", ControlPlane{Machines: []MemberMachine{machine("m1", replaced(epoch.Add(-time.Hour)))}}, ""},
		"one that is ready while a fourth joins": {
			"yyy", ControlPlane{Machines: []MemberMachine{{Ref: Ref{"Machine", "ns", "m3"}}}}, "without it 2 of 4 control-plane nodes are healthy, and 3 are needed",
		},
		"one that is ready when the fourth has a node": {"yyyy", ControlPlane{Machines: []MemberMachine{{Ref: Ref{"Machine", "ns", "m3"}}}}, ""},
		"while it is not known":                        {"nyy", ControlPlane{Unread: "a time-out"}, "the control plane could not be read: a time-out"},
	} {
		t.Run(name, func(t *testing.T) {
			for i, is := range tc.ready {
				tc.of.Nodes = append(tc.of.Nodes, Member{Name: fmt.Sprintf("m%d", i), Ready: is == 'y'})
			}
			d := &decider{f: &Facts{Now: epoch, ControlPlane: &tc.of}, plane: tc.of.plane(epoch)}
			var got string
			if all := d.against("m0"); len(all) > 0 {
				got = strings.TrimPrefix(all[0].Message, quorumLoss("m0", "", "", Ref{}).Message)
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
			if b := tc.etcd.against("n"); (b == nil) != tc.can {
				t.Errorf("against() = %+v, want that it can do without: %t", b, tc.can)
			}
		})
	}
}
