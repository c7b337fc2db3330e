package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/test/golden"
)

// replaced is the record of a machine that its owner has replaced, on the host of which another one runs by now.
func replaced() mendv1.RemediationRecord {
	ref := func(kind, name string) *mendv1.RecordRef {
		r := &mendv1.RecordRef{Kind: kind, Namespace: "metal", Name: name}
		if kind == "Node" {
			r.Namespace = ""
		}
		return r
	}
	since, due, begun, back, ended := stamp(0), stamp(300), stamp(301), stamp(700), stamp(701)
	r := mendv1.RemediationRecord{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers-old-3f2a"}}
	r.Spec = mendv1.RemediationRecordSpec{
		Mode: mendv1.RecordActive, Remediator: mendv1.RemediatedByOwner, Cause: "Ready=Unknown", UnhealthySince: &since, Due: &due, Decided: stamp(301),
		Target: mendv1.RecordTarget{
			ClusterName: "prod", Machine: ref("Machine", "workers-old"), Node: ref("Node", "node-old"), Host: ref("BareMetalHost", "host-0"),
			Owner: ref("MachineSet", "workers"),
		},
		Requester: mendv1.RecordRequester{Check: ref("MachineHealthCheck", "workers")},
	}
	r.Status = mendv1.RemediationRecordStatus{
		Begun: &begun, BegunBy: "kubemend", CapacityBack: &back, Ended: &ended, Outcome: mendv1.RecordReplaced,
		Replacement: &mendv1.RecordReplacement{Machine: *ref("Machine", "workers-new")},
		Steps: []mendv1.RecordStep{
			{Time: stamp(301), Reason: "OwnerRemediationRequested", Message: "MachineSet workers was asked to replace the machine"},
			{Time: stamp(330), Reason: "MachineDeleting", Message: "Machine is deleting: draining, 2 pods are left"},
			{Time: stamp(395), Reason: "OwnerCreates", Message: "MachineDeployment workers makes another one", Object: &mendv1.RecordRef{Kind: "MachineDeployment", Name: "workers"}},
			{Time: stamp(400), Reason: "ReplacementCreated", Message: "Machine workers-new is to take its place", Object: ref("Machine", "workers-new")},
		},
	}
	return r
}

// gone is what is left of it: its record, some events, the host.
func gone() Objects {
	machine := regarding("Machine", "metal", "workers-old")
	host := bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "host-0", CreationTimestamp: stamp(-90000)}}
	host.Spec.ConsumerRef = &corev1.ObjectReference{Name: "workers-new"}
	host.Status.OperationHistory.Deprovision = bmov1alpha1.OperationMetric{Start: stamp(350), End: stamp(390)}
	host.Status.OperationHistory.Provision = bmov1alpha1.OperationMetric{Start: stamp(410), End: stamp(600)}
	return Objects{
		Now: at(13 * 60), Records: []mendv1.RemediationRecord{replaced()}, Hosts: []bmov1alpha1.BareMetalHost{host},
		Events: append(metal().Events,
			event(300, machine, "MachineMarkedUnhealthy", "Machine metal/workers-old has been marked as unhealthy by metal/workers"),
			event(302, machine, "OwnerRemediationRequested", "MachineSet workers was asked to replace the machine"),                                    // as its record says
			event(331, machine, "Drain", "Machine is deleting: draining, 2 pods are left; node node-old"),                                              // likewise
			event(305, regarding("Node", "", "node-old"), "NodeNotReady", "Node node-old status is now: NodeNotReady", old("node-controller", 1, 305)), // within its time
			event(100000, regarding("Node", "", "node-old"), "NodeReady", "another day", old("node-controller", 1, 100000)),
		),
	}
}

func TestAMachineThatIsGoneHasTheHistoryOfItsRecord(t *testing.T) {
	type story struct {
		scope Scope
		width int
		wide  bool
	}
	golden.StoriesIn(t, "testdata/recorded", map[string]story{
		"a machine that is gone at 80 columns":       {Scope{Namespace: "metal", Machine: "workers-old"}, 80, false},
		"a machine that is gone at 200 columns":      {Scope{Namespace: "metal", Machine: "workers-old"}, 200, true},
		"the one in its place":                       {Scope{Namespace: "metal", Machine: "workers-new"}, 200, false},
		"its host":                                   {Scope{Namespace: "metal", Host: "host-0"}, 200, false},
		"its node":                                   {Scope{Namespace: "metal", Node: "node-old"}, 200, false},
		"its cluster since it was begun":             {Scope{Namespace: "metal", Cluster: "prod", Since: at(301)}, 200, false},
		"a machine that the record does not concern": {Scope{Namespace: "metal", Machine: "workers-c"}, 200, false},
	}, func(t *testing.T, s story) string { return printed(t, Of(gone(), s.scope), s.width, s.wide) })
}

func TestWhatARecordWaitsForIsInItsNamespaceIfItsKindHasOne(t *testing.T) {
	r := replaced()
	for ref, want := range map[mendv1.RecordRef]string{
		{Kind: "MachineDeployment", Name: "workers"}:         "metal",
		{Kind: "DockerMachine", Name: "w"}:                   "metal",
		{Kind: "Pod", Namespace: "shop", Name: "db-0"}:       "shop",
		{Kind: "VolumeAttachment", Name: "csi-1"}:            "",
		{Kind: "Node", Namespace: "metal", Name: "node-old"}: "",
	} {
		if got := recordRef(&ref, &r).Namespace; got != want {
			t.Errorf("%s %s is in namespace %q, want %q", ref.Kind, ref.Name, got, want)
		}
	}
}

func TestWhatARecordSaysIsShownOnce(t *testing.T) {
	machine := regarding("Machine", "metal", "workers-old")
	step := mendv1.RecordStep{Time: stamp(301), Reason: "AttemptBegan", Message: "attempt 1 of 2 has begun", Object: &mendv1.RecordRef{Kind: "HostRemediation", Namespace: "metal", Name: "x"}}
	for name, tc := range map[string]struct {
		edit func(*Objects)
		want int
	}{
		"an event of what it waits for": {func(o *Objects) {
			o.Events = append(o.Events, event(395, machine, "CapacityAwaited", "The capacity of Machine workers-old is not back: Machine is deleting: draining, 2 pods are left. To do: wait"))
		}, 0},
		"an event of its end": {func(o *Objects) {
			o.Events = append(o.Events, event(702, machine, "CapacityBack", "The capacity of Machine workers-old is back"))
		}, 0},
		"but not an event of another wait": {func(o *Objects) {
			o.Events = append(o.Events, event(395, machine, "CapacityAwaited", "The capacity is not back: no host fits"))
		}, 1},
		"nor that of a passed deadline": {func(o *Objects) {
			o.Events = append(o.Events, event(395, machine, "CapacityLate", "The deadline has passed"))
		}, 1},
		"an event of the same reason": {func(o *Objects) { o.Events = append(o.Events, event(301, machine, "MachineDeleting", "it is")) }, 0},
		"at another time":             {func(o *Objects) { o.Events = append(o.Events, event(5000, machine, "MachineDeleting", "it is")) }, 1},
		"an event with the text of a step in it": {func(o *Objects) {
			o.Events = append(o.Events, event(301, machine, "X", "metal: MachineSet workers was asked to replace the machine"))
		}, 0},
		"an event about the machine, of a step of its request": {func(o *Objects) {
			o.Records[0].Status.Steps = append(o.Records[0].Status.Steps, step)
			o.Events = append(o.Events, event(302, machine, "AttemptBegan", "attempt 1 of 2 has begun"))
		}, 1}, // the step alone
		"a condition": {func(o *Objects) {
			m := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "workers-old", Namespace: "metal"}}
			m.Status.Conditions = []metav1.Condition{condition(302, "OwnerRemediated", "False", "OwnerRemediationRequested", "wait for it")}
			o.Machines = append(o.Machines, m)
		}, 0},
		"what the rest of the record says, said by a step": {func(o *Objects) {
			o.Records[0].Status.Steps = append(o.Records[0].Status.Steps, mendv1.RecordStep{Time: stamp(700), Reason: "ReplacementHealthy", Message: "back"})
		}, 0}, // in place of CapacityBack
		"its end, said by a step": {func(o *Objects) {
			o.Records[0].Status.Steps = append(o.Records[0].Status.Steps, mendv1.RecordStep{Time: stamp(701), Reason: "Replaced", Message: "it is over"})
		}, 0}, // in place of RemediationEnded
		"an open record": {func(o *Objects) { o.Records[0].Status.Ended, o.Records[0].Status.Outcome = nil, "" }, -1}, // it has no end,
	} {
		t.Run(name, func(t *testing.T) {
			scope, o := Scope{Namespace: "metal", Machine: "workers-old"}, gone()
			before := len(Of(o, scope))
			tc.edit(&o)
			if got := len(Of(o, scope)) - before; got != tc.want {
				t.Errorf("there are %d entries more, want %d", got, tc.want)
			}
		})
	}
}

func TestARecordSaysWhatWasDecidedAndHowItEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		edit   func(*mendv1.RemediationRecord)
		reason string
		want   string
	}{
		"by a check":        {func(*mendv1.RemediationRecord) {}, "RemediationDecided", "remediation decided for MachineHealthCheck workers: Ready=Unknown"},
		"by a user":         {func(r *mendv1.RemediationRecord) { r.Spec.Requester.User = "alice" }, "RemediationDecided", "remediation decided, requested by alice: Ready=Unknown"},
		"observed":          {func(r *mendv1.RemediationRecord) { r.Spec.Mode = "Observed" }, "RemediationObserved", "kubemend would remediate, and only observes for MachineHealthCheck workers: Ready=Unknown"},
		"what others began": {func(r *mendv1.RemediationRecord) { r.Spec.Mode, r.Spec.BlockedBy = "Observed", "Pending" }, "RemediationObserved", "remediation by others; kubemend would not have begun it: Pending"},
		"the end":           {func(*mendv1.RemediationRecord) {}, "RemediationEnded", "remediation ended: Replaced"},
		"given up": {func(r *mendv1.RemediationRecord) {
			r.Status.Outcome, r.Status.EndedBy = "GivenUp", "the last remediator"
			r.Status.Ended.Time = at(900)
		}, "RemediationEnded", "remediation ended: GivenUp, by the last remediator"},
		"capacity back":                       {func(*mendv1.RemediationRecord) {}, "CapacityBack", "capacity is back by Machine workers-new"},
		"capacity back, probably":             {func(r *mendv1.RemediationRecord) { r.Status.Replacement.Guessed = true }, "CapacityBack", "capacity is back, probably by Machine workers-new"},
		"capacity back, on the same machine":  {func(r *mendv1.RemediationRecord) { r.Status.Replacement = nil }, "CapacityBack", "capacity is back"},
		"begun, which no step says":           {func(r *mendv1.RemediationRecord) { r.Status.Steps = nil; r.Status.BegunBy = "" }, "RemediationBegun", "remediation begun"},
		"begun by others, which no step says": {func(r *mendv1.RemediationRecord) { r.Status.Steps = nil; r.Status.BegunBy = "core" }, "RemediationBegun", "remediation begun by core"},
	} {
		t.Run(name, func(t *testing.T) {
			o := gone()
			tc.edit(&o.Records[0])
			got := ""
			for _, e := range Of(o, Scope{Namespace: "metal", Machine: "workers-old"}) {
				if e.Reason == tc.reason {
					got = e.Text
					if e.Source != FromRecord || e.Record.Name != "workers-old-3f2a" || e.Warning != (name == "given up") {
						t.Errorf("%+v", e)
					}
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhichRecordsConcernAScope(t *testing.T) {
	r := replaced()
	for name, tc := range map[string]struct {
		scope Scope
		want  bool
	}{
		"everything": {Scope{}, true}, "its namespace": {Scope{Namespace: "metal"}, true}, "another namespace": {Scope{Namespace: "other"}, false},
		"its machine": {Scope{Machine: "workers-old"}, true}, "its replacement": {Scope{Machine: "workers-new"}, true}, "another machine": {Scope{Machine: "w"}, false},
		"its host": {Scope{Host: "host-0"}, true}, "another host": {Scope{Host: "host-1"}, false}, "its node": {Scope{Node: "node-old"}, true},
		"another node": {Scope{Node: "node-new"}, false}, "its cluster": {Scope{Cluster: "prod"}, true}, "another cluster": {Scope{Cluster: "test"}, false},
		"since before its end": {Scope{Since: at(701)}, true}, "since after its end": {Scope{Since: at(702)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.scope.Concerns(&r); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	r.Status = mendv1.RemediationRecordStatus{}
	if !(Scope{Since: at(100000)}).Concerns(&r) || (Scope{Machine: "workers-new"}).Concerns(&r) || (Scope{Host: "x"}).Concerns(&r) {
		t.Error("of an open record without a replacement")
	}
}
