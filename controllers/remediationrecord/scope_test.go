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

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// theirs are the objects of another namespace, of which a record in metal must learn nothing.
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

// A user who may write records in a namespace may name in one what is in another, or in none. The manager must not read that for that user.
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

// A NodeHealthCheck is in no namespace: who may write it may read what is in all.
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

// The record of a NodeHealthCheck names no Cluster, so that what came in place of its Machine is found by the owner.
func TestTheMachineOfANodeIsFollowedWhenItIsGone(t *testing.T) {
	for name, labels := range map[string]map[string]string{
		"of a MachineDeployment": {clusterv1.MachineDeploymentNameLabel: "workers", clusterv1.MachineSetNameLabel: "pool"},
		"of a MachineSet":        {clusterv1.MachineSetNameLabel: "pool"},
	} {
		t.Run(name, func(t *testing.T) {
			own := func(m *clusterv1.Machine) *clusterv1.Machine { m.Labels = labels; return m }
			record := recordOf(ofNodes)
			delete(record.Labels, clusterv1.MachineDeploymentNameLabel)
			OnMachine(record, own(unhealthy()))
			record.Spec.Target.ClusterName = ""
			m := newManagement(t, append(fleet(), own(unhealthy()), nodeCheck("metal"), record)...)
			if _, has := labels[clusterv1.MachineDeploymentNameLabel]; !has {
				set := &clusterv1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "pool"}}
				m.edit(set, func(o client.Object) { o.SetLabels(nil) })
			}
			m.ask(time.Second)
			m.reconcile(2 * time.Second)
			m.remove(unhealthy())
			if got := m.reconcile(time.Minute); !got.Open() {
				t.Fatalf("before another one is there it ends as %s by %s", got.Status.Outcome, got.Status.EndedBy)
			}
			m.create(own(machine("w2", 2*time.Minute)))
			m.ready("w2", 3*time.Minute)
			got := m.reconcile(4 * time.Minute)
			if got.Status.Outcome != mendv1.RecordReplaced || got.Status.Replacement.Machine.Name != "w2" {
				t.Errorf("it ends as %q by %q: %v", got.Status.Outcome, got.Status.EndedBy, reasons(got))
			}
		})
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

// An open record is bounded, too: one of which nothing can be known is kept no longer than others.
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

// After a move all UIDs are others. Else a healthy Machine with the name of the one that its owner was asked for, and another UID, is
// another one.
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
