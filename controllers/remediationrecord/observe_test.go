package remediationrecord

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// theirs returns objects of another namespace. A record in namespace metal must reveal nothing about them.
func theirs() []client.Object {
	all := []client.Object{&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}}
	for _, o := range append(fleet()[1:], unhealthy()) {
		o.SetNamespace("theirs")
		all = append(all, o)
	}
	w1 := all[len(all)-1].(*clusterv1.Machine)
	says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
	w1.Status.Conditions[len(w1.Status.Conditions)-1].Message = "what only they may read"
	carried(w1)
	return append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "theirs", Name: "w1"}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", UID: "node-uid"}})
}

// A user who may write records in one namespace may name objects of another one, or without a namespace. The manager must not read these
// for the user.
func TestARecordTellsNothingOfWhatIsNotInItsNamespace(t *testing.T) {
	machineThere := &mendv1.RecordRef{Kind: "Machine", Namespace: "theirs", Name: "w1", UID: "w1"}
	node := &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "here", UID: "node-uid"}
	for name, change := range map[string]func(*mendv1.RemediationRecord){
		"a Machine":               func(r *mendv1.RemediationRecord) { r.Spec.Target.Machine = machineThere },
		"a Machine of no Cluster": func(r *mendv1.RemediationRecord) { r.Spec.Target = mendv1.RecordTarget{Machine: machineThere} },
		"a Node":                  func(r *mendv1.RemediationRecord) { r.Spec.Target = mendv1.RecordTarget{Node: node} },
		"a Node of a Cluster":     func(r *mendv1.RemediationRecord) { r.Spec.Target.Machine, r.Spec.Target.Node = nil, node },
		"a Machine that is gone there": func(r *mendv1.RemediationRecord) {
			r.Spec.Target.Machine = &mendv1.RecordRef{Kind: "Machine", Namespace: "theirs", Name: "w0"}
			r.Spec.Target.Owner.Namespace = "theirs"
		},
		"a Secret": func(r *mendv1.RemediationRecord) {
			r.Spec.Target = mendv1.RecordTarget{Host: &mendv1.RecordRef{APIVersion: "v1", Kind: "Secret", Namespace: "theirs", Name: "w1"}}
		},
		"a Secret as a Machine": func(r *mendv1.RemediationRecord) {
			r.Spec.Target.Machine = &mendv1.RecordRef{APIVersion: "v1", Kind: "Secret", Namespace: "metal", Name: "w1"}
		},
		"a Secret as a request": func(r *mendv1.RemediationRecord) {
			r.Spec.Target = mendv1.RecordTarget{Machine: machineThere}
			r.Status.Requests = []mendv1.RecordRef{{APIVersion: "v1", Kind: "Secret", Namespace: "theirs", Name: "w1"}}
		},
		"a request": func(r *mendv1.RemediationRecord) {
			r.Spec.Target = mendv1.RecordTarget{Machine: machineThere}
			r.Status.Requests = []mendv1.RecordRef{{APIVersion: mendv1.GroupVersion.String(), Kind: "HostRemediation", Namespace: "theirs", Name: "w1"}}
		},
		"a check of nodes that has no template here": func(r *mendv1.RemediationRecord) {
			ofNodes(r)
			r.Spec.Target.Machine = machineThere
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := recordOf(func(r *mendv1.RemediationRecord) {
				r.Status.Begun = new(after(time.Second))
				change(r)
			})
			m := newManagement(t, append(append(fleet(), theirs()...), nodeCheck("elsewhere"), is.DeepCopy())...)
			got := m.reconcile(time.Minute)
			text, err := yaml.Marshal(got.Status)
			must.Do(t, err)
			if len(got.Status.Steps)+len(got.Status.Conditions) > 0 || strings.Contains(string(text), "only they") {
				t.Errorf("it says:\n%s", text)
			}
			if n := m.asked["HostRemediationList"]; n > 0 {
				t.Errorf("requests are listed %d times, for nothing", n)
			}
		})
	}
}

// A NodeHealthCheck has no namespace: a user who may write one may read in all namespaces.
func TestTheMachineOfANodeIsFollowedWhereverItIs(t *testing.T) {
	is := recordOf(func(r *mendv1.RemediationRecord) {
		ofNodes(r)
		r.Spec.Target.Machine = &mendv1.RecordRef{Kind: "Machine", Namespace: "theirs", Name: "w1", UID: "w1"}
	})
	m := newManagement(t, append(append(fleet(), theirs()...), nodeCheck("metal"), is)...)
	if got := condition(m.reconcile(time.Minute), mendv1.RecordBegun); got != "True OwnerRequested" {
		t.Errorf("begun %q", got)
	}
}

// The record of a NodeHealthCheck names no Cluster, so that the replacement of its Machine is found by the owner.
func TestTheMachineOfANodeIsFollowedWhenItIsGone(t *testing.T) {
	record := recordOf(ofNodes)
	OnMachine(record, unhealthy())
	record.Spec.Target.ClusterName = ""
	m := newManagement(t, append(fleet(), unhealthy(), nodeCheck("metal"), record)...)
	m.ask(time.Second)
	m.reconcile(2 * time.Second)
	m.remove(unhealthy())
	if got := m.reconcile(time.Minute); !got.Open() {
		t.Fatalf("before another one is there it ends as %s by %s", got.Status.Outcome, got.Status.EndedBy)
	}
	m.create(machine("w2", 2*time.Minute))
	m.ready("w2", 3*time.Minute)
	got := m.reconcile(4 * time.Minute)
	if got.Status.Outcome != mendv1.RecordReplaced || got.Status.Replacement.Machine.Name != "w2" {
		t.Errorf("it ends as %q by %q: %v", got.Status.Outcome, got.Status.EndedBy, reasons(got))
	}
}

// clusterctl creates the records of a Cluster beside its Machines, while the Cluster is paused. The cache may show the Cluster last.
func TestNothingIsWrittenBeforeAMovedClusterIsSeen(t *testing.T) {
	objects := fleet()
	objects[1].(*clusterv1.Cluster).Spec.Paused = new(true)
	m := newManagement(t, append(objects, recordOf())...)
	m.Client = refusing[*clusterv1.Cluster](m.server, apierrors.NewNotFound(schema.GroupResource{}, "c"))
	if got := m.reconcile(time.Minute); len(got.Status.Steps) > 0 {
		t.Errorf("it says %v", reasons(got))
	}
}

// The number of open records must have a bound, too: a record about which nothing can be known is kept no longer than others.
func TestAnOpenRecordThatCannotBeFollowedIsDeletedOnceItIsOld(t *testing.T) {
	unread := func(r *mendv1.RemediationRecord) { r.Spec.Target.Machine.Namespace = "theirs" }
	const keep = 24 * time.Hour
	for name, tc := range map[string]struct {
		record *mendv1.RemediationRecord
		at     time.Duration
		gone   bool
	}{
		"one that cannot be read":               {recordOf(unread), keep, true},
		"not before":                            {recordOf(unread), keep - time.Second, false},
		"not one whose Machine waits that long": {recordOf(begun("OwnerRequested")), 2 * keep, false},
	} {
		t.Run(name, func(t *testing.T) {
			w1 := unhealthy()
			says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
			carried(w1)
			m := newManagement(t, append(fleet(), w1, tc.record)...)
			m.Retention.Keep = keep
			m.clock.SetTime(noon.Add(tc.at))
			if _, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: recordKey}); err != nil {
				t.Fatal(err)
			}
			err := m.server.Get(t.Context(), recordKey, &mendv1.RemediationRecord{})
			must.Is(t, tc.gone, apierrors.IsNotFound(err), "deleted:")
		})
	}
}

// After a move all UIDs are different. Without a move, a healthy Machine with the name of the target and another UID is another Machine.
func TestAMachineOfTheSameNameIsAnotherUnlessTheRecordWasMoved(t *testing.T) {
	for cluster, healed := range map[types.UID]bool{"of the new management cluster": true, "c": false} {
		w1 := unhealthy()
		w1.UID = "another"
		says(w1, clusterv1.MachineHealthCheckSucceededCondition, metav1.ConditionTrue, time.Minute)
		is := recordOf(begun("OwnerRequested"))
		is.OwnerReferences[0].UID = cluster
		got := newManagement(t, append(fleet(), w1, is)...).reconcile(10 * time.Minute)
		if (got.Status.Outcome == mendv1.RecordHealed) != healed || slices.Contains(reasons(got), "TargetGone") == healed {
			t.Errorf("owned by Cluster %q it ends as %q with %v", cluster, got.Status.Outcome, reasons(got))
		}
	}
}

// underPressure makes a record about the disk pressure of n1.
func underPressure(r *mendv1.RemediationRecord) {
	r.Spec.Target.Node = &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: "n1"}
	r.Spec.Evidence = []mendv1.RecordEvidence{{Type: string(corev1.NodeDiskPressure), Status: "True"}}
}

func pressed(status corev1.ConditionStatus) *corev1.Node {
	return node("n1", corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: status})
}

// underPressureOf gives a Machine the conditions of a node under pressure, as pressed does for a node.
func underPressureOf(m *clusterv1.Machine, pressure corev1.ConditionStatus) {
	mirrors(m, map[corev1.ConditionStatus]metav1.ConditionStatus{"True": "False", "False": "True"}[pressure], "Test")
}

// A MachineHealthCheck may find a Machine healthy whose node is unhealthy to a NodeHealthCheck or a user, since they check other
// conditions.
func TestWhoseWordItIsThatATargetIsHealthy(t *testing.T) {
	ofMachines := func(*mendv1.RemediationRecord) {}
	// cycle makes the record that of a power cycle, which is in the namespace of the Machine.
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
			underPressureOf(w1, tc.pressure)
			m := newManagement(t, append(fleet(), w1, check, pressed(tc.pressure), recordOf(underPressure, begun("RequestCreated"), tc.by))...)
			if got := m.reconcile(2 * time.Minute); got.Status.Outcome != tc.want {
				t.Errorf("it ends as %q, want %q: %v", got.Status.Outcome, tc.want, reasons(got))
			}
		})
	}
}

// A KubeadmControlPlane that has deferred a remediation leaves OwnerRemediated at False, and nothing replaces the Machine then.
func TestARecordEndsWhoseCheckIsGoneAlthoughTheOwnerHasNotDoneAsItWasAsked(t *testing.T) {
	for ready, want := range map[metav1.ConditionStatus]mendv1.RecordOutcome{"True": mendv1.RecordHealed, "False": mendv1.RecordCancelled} {
		w1 := unhealthy()
		w1.Status.Conditions = nil
		says(w1, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
		mirrors(w1, ready, "Test")
		m := newManagement(t, append(fleet(), w1, recordOf(begun("OwnerRequested")))...)
		m.reconcile(time.Minute)
		if got := m.reconcile(10 * time.Minute); got.Status.Outcome != want {
			t.Errorf("with a node that is Ready=%s it ends as %q, want %q: %v", ready, got.Status.Outcome, want, reasons(got))
		}
	}
}

// A manager with the rights of one namespace cannot read the NodeHealthCheck whose power cycles it carries out. It does not know what else
// the check requests. Still, the record of a healthy machine ends, since the next remediation would join it, and that of an unhealthy one
// stays open.
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
			underPressureOf(w1, row.pressure)
			changes := []func(*mendv1.RemediationRecord){byNodes, underPressure}
			if row.begun {
				changes = append(changes, begun("RequestCreated"))
			}
			m := newManagement(t, append(fleet(), w1, nodeCheck("metal"), recordOf(changes...))...)
			m.Recent.Live = refusing[*nhcv1.NodeHealthCheck](m.server, apierrors.NewForbidden(schema.GroupResource{}, "nodes", nil))
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
