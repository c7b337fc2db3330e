package nodehealthcheck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

// plane adds a control plane of five members; the members with the given letters are not ready.
func plane(silentMember string, changes ...func(*ControlPlane)) func(*Facts) {
	return func(f *Facts) {
		f.ControlPlane = &ControlPlane{}
		for _, name := range "abcde" {
			f.ControlPlane.Members = append(f.ControlPlane.Members, seen(string(name), !strings.ContainsRune(silentMember, name)))
		}
		for _, change := range changes {
			change(f.ControlPlane)
		}
	}
}

// etcd adds OpenShift's etcd, which allows no disruption, with a ready guard pod on each of the given nodes.
func etcd(guarded string) func(*ControlPlane) {
	return func(c *ControlPlane) {
		c.Etcd = Etcd{There: true, Budgets: 1, Budget: "etcd", Guards: map[string]string{}}
		for _, name := range guarded {
			c.Etcd.Guards[string(name)] = "guard-" + string(name)
		}
	}
}

func TestWhichNodeOfTheControlPlaneGoesFirst(t *testing.T) {
	unread := func(why string) func(*ControlPlane) { return func(c *ControlPlane) { c.Unread, c.Members = why, nil } }
	refused := func(name string, ago time.Duration) func(*Facts) {
		return func(f *Facts) {
			if f.Memory.Refusals == nil {
				f.Memory.Refusals = map[string]Refusal{}
			}
			f.Memory.Refusals[name] = Refusal{Last: epoch.Add(-ago)}
		}
	}
	due := func(minutes int, changes ...func(*Node)) Node {
		return lost(append(changes, ofPlane, since(time.Duration(minutes+5)*time.Minute))...)
	}
	for name, tc := range map[string]struct {
		given Facts
		want  string // the blockers of each node; a node without blockers starts
	}{
		"of two that are silent that which has been due for longest": {of(due(10), due(20)).with(plane("ab")), "NotFirstInQueue b; "},
		"wherever it comes in the order of their names":              {of(due(20), due(10)).with(plane("ab")), "; NotFirstInQueue a"},
		"a silent one before one that is alive":                      {of(due(10), due(20)).with(plane("a")), "; NotFirstInQueue a"},
		"one that is alive, too, while the others are the majority":  {of(due(10), due(20)).with(plane("")), "NotFirstInQueue b; "},
		"none while another one is being remediated": {
			of(due(10), due(20)).with(plane("ab", reboots("e"))),
			"AnotherBeingRemediated e, NotFirstInQueue b; AnotherBeingRemediated e",
		},
		"the first one knows that too": {
			of(due(20), due(10)).with(plane("ab", reboots("e"))),
			"AnotherBeingRemediated e; AnotherBeingRemediated e, NotFirstInQueue a",
		},
		"none that is not a member": {of(due(20), due(10), lost(ofPlane, func(n *Node) { n.Selected = true })).with(func(f *Facts) {
			f.ControlPlane = &ControlPlane{Members: []controlplane.Member{seen("b", false), seen("c", false)}}
		}), "ControlPlaneNotSeen, NotFirstInQueue b; ; NotFirstInQueue b"},
		"none while the control plane is not read, and the longest says why": {
			of(due(10), due(20)).with(plane("a", unread("a timeout"))), "ControlPlaneUnread, NotFirstInQueue b; ControlPlaneUnread",
		},
		"not one whose request was refused a moment ago": {of(due(10), due(20)).with(plane("ab"), refused("b", 59*time.Second)), "; NotFirstInQueue a"},
		"not one that waits since its requests are deleted again and again": {
			of(due(10), due(20, deletedBefore(3), deleted(was(0, 3*time.Minute)))).with(plane("ab")),
			"; NotFirstInQueue a, RemediationLoop",
		},
		"one whose request was deleted once": {
			of(due(10), due(20, deletedBefore(1), deleted(was(0, 30*time.Second)))).with(plane("ab")), "NotFirstInQueue b; RequestDeleted",
		},
		"one whose request was refused a minute ago":                 {of(due(10), due(20)).with(plane("ab"), refused("b", time.Minute)), "NotFirstInQueue b; "},
		"the longest if the requests of all were refused":            {of(due(10), due(20)).with(plane("ab"), refused("a", 0), refused("b", 0)), "NotFirstInQueue b; "},
		"not one that something else blocks":                         {of(due(10), due(20, excluded)).with(plane("ab")), "; NodeExcluded, NotFirstInQueue a"},
		"not one that etcd cannot do without":                        {of(due(10), due(20)).with(plane("ab", etcd("b"))), "; NotFirstInQueue a"},
		"the longest says so if etcd can do without none":            {of(due(10), due(20)).with(plane("ab", etcd("ab"))), "NotFirstInQueue b; EtcdAtRisk etcd"},
		"the majority comes before etcd":                             {of(due(20), due(10)).with(plane("cde", etcd("ab"))), "MajorityAtRisk, EtcdAtRisk etcd; MajorityAtRisk, NotFirstInQueue a"},
		"while nothing is due, the pending one that comes due first": {of(due(-2), due(-3)).with(plane("ab")), "WithinTimeout; WithinTimeout, NotFirstInQueue a"},
		"wherever that comes in the order of their names":            {of(due(-3), due(-2)).with(plane("ab")), "WithinTimeout, NotFirstInQueue b; WithinTimeout"},
		"one of two at the same moment":                              {of(due(-3), due(-3)).with(plane("ab")), "WithinTimeout; WithinTimeout, NotFirstInQueue a"},
		"but for one that something else will block":                 {of(due(-2, excluded), due(-3)).with(plane("ab")), "WithinTimeout, NodeExcluded, NotFirstInQueue b; WithinTimeout"},
		"and for one with a request":                                 {of(due(-2, asked()), due(-3)).with(plane("ab")), "WithinTimeout; WithinTimeout"},
		"a lease that ends before does not count": {
			of(due(-2, leased(leaseFor("NMO", 2*time.Minute, 0, 0))), due(-3)).with(plane("ab")), "WithinTimeout, LeaseTaken; WithinTimeout, NotFirstInQueue a",
		},
		"one that ends later does": {
			of(due(-2, leased(leaseFor("NMO", 2*time.Minute+time.Second, 0, 0))), due(-3)).with(plane("ab")), "WithinTimeout, LeaseTaken, NotFirstInQueue b; WithinTimeout",
		},
		"what etcd will say":                   {of(due(-2), due(-3)).with(plane("ab", etcd("a"))), "WithinTimeout, EtcdAtRisk etcd; WithinTimeout, NotFirstInQueue a"},
		"also of the last one":                 {of(due(-3), due(-2)).with(plane("ab", etcd("b"))), "WithinTimeout, NotFirstInQueue b; WithinTimeout, EtcdAtRisk etcd"},
		"a pending one behind one that is due": {of(due(-2), due(10)).with(plane("ab")), "WithinTimeout, NotFirstInQueue b; "},
		"none waits for one that is excluded":  {of(due(10, excluded), due(-2)).with(plane("ab")), "NodeExcluded; WithinTimeout"},
		"no node besides":                      {of(due(10), lost()).with(plane("a")), "; "},
	} {
		t.Run(name, func(t *testing.T) {
			p := Decide(tc.given)
			var got []string
			for i := range p.Decisions {
				var all []string
				for _, b := range p.Decisions[i].Blockers {
					worded(t, b)
					all = append(all, strings.TrimSuffix(string(b.Reason)+" "+b.Object.Name, " "))
				}
				got = append(got, strings.Join(all, ", "))
			}
			must.Equal(t, tc.want, strings.Join(got, "; "), "blockers")
		})
	}
}

// No event shows when other members are back, so a control-plane node that waits for them is checked again after a minute.
func TestANodeThatWaitsForTheControlPlaneIsLookedAtAgain(t *testing.T) {
	for name, f := range map[string]Facts{
		"it is not first":         of(lost(ofPlane), lost(ofPlane, since(time.Hour))).with(plane("ab")),
		"etcd cannot do without":  of(lost(ofPlane)).with(plane("a", etcd("a"))),
		"it could not be read":    of(lost(ofPlane)).with(plane("a", func(c *ControlPlane) { c.Unread = "a timeout" })),
		"the majority is at risk": of(lost(ofPlane)).with(plane("bcd")),
	} {
		p := Decide(f)
		d := p.Decisions[0]
		if want := askedAgain([]Blocker{{Again: epoch.Add(time.Minute)}}); d.starts() || d.Next != want || p.Recheck.After(want.At) {
			t.Errorf("%s: next %+v, looked at again at %s", name, d.Next, p.Recheck)
		}
	}
}

// Package controlplane has the table for the rule itself.
func TestWhoMayBeDisrupted(t *testing.T) {
	gone := func(c *ControlPlane) {
		c.addRequest(&Request{Object: requestOf("Reboot", "m9", "m9")}, "m9", nil, epoch, epoch)
	}
	machine := func(name, node string, replaced time.Time, remediated bool) func(*ControlPlane) {
		m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		m.Status.NodeRef.Name = node
		if !replaced.IsZero() {
			m.DeletionTimestamp = &metav1.Time{Time: replaced}
		}
		if remediated {
			m.Status.Conditions = []metav1.Condition{{Type: clusterv1.MachineExternallyRemediatedCondition, Status: metav1.ConditionFalse}}
		}
		return func(c *ControlPlane) { c.addMachine(&m) }
	}
	for name, tc := range map[string]struct {
		ready string // y or n for each member m0, m1, ...: whether its node is ready
		of    func(*ControlPlane)
		want  string // what blocks m0
	}{
		"one of two while the other one is being remediated": {"nn", reboots("m1"), "m1 is being remediated (Reboot remediators/m1)"},
		"one that is ready while another one is down":        {"yny", nil, "without it 1 of 3 control-plane nodes are healthy, and 2 are needed"},
		"W3: one of five while another one is being remediated": {
			"nyyyy", reboots("m1"), "m1 is being remediated (Reboot remediators/m1)",
		},
		"the one that is being remediated already": {"nyy", reboots("m0"), ""},
		"W3: one that is being remediated already, as another one is": {
			"nnyyy", reboots("m0", "m1"), "m1 is being remediated (Reboot remediators/m1)",
		},
		"one while a node that is gone is away": {
			"nyy", gone, "m9 is being remediated (Reboot remediators/m9)",
		},
		"one while another one's Machine is remediated": {
			"nyy", machine("m1", "m1", time.Time{}, true), "m1 is being remediated (Machine ns/m1)",
		},
		"one while another one's Machine is being replaced": {
			"nyy", machine("m2", "m2", epoch, false), "m2 is being remediated (Machine ns/m2)",
		},
		"one while that has taken very long": {"nyy", machine("m1", "m1", epoch.Add(-time.Hour), false), ""},
		"one that is ready while a fourth joins": {
			"yyy", machine("m3", "", time.Time{}, false), "without it 2 of 4 control-plane nodes are healthy, and 3 are needed",
		},
		"one that is ready when the third has a node": {"yyy", machine("m2", "", time.Time{}, false), ""},
		"while it is not known": {
			"nyy", func(c *ControlPlane) { c.Unread = "a time-out" }, "the control plane could not be read: a time-out",
		},
	} {
		t.Run(name, func(t *testing.T) {
			controlPlane := &ControlPlane{}
			for i := len(tc.ready) - 1; i >= 0; i-- { // m0 is last in the list
				controlPlane.Members = append(controlPlane.Members, seen(fmt.Sprintf("m%d", i), tc.ready[i] == 'y'))
			}
			if tc.of != nil {
				tc.of(controlPlane)
			}
			facts := &Facts{Now: epoch, ControlPlane: controlPlane, Nodes: []Node{{Name: "m0"}}}
			d := newDecider(facts, &Plan{})
			c := d.caseOf(d.p.Decisions[0])
			var got string
			if blockers := c.ask(ofControlPlane); len(blockers) > 0 {
				got = strings.TrimPrefix(blockers[0].Text, strings.Replace(quorumLoss, "{node}", "m0", 1))
			}
			must.Is(t, tc.want, got)
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
