package remediationrecord

import (
	"errors"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

func reasons(is *mendv1.RemediationRecord) (all []string) {
	for _, step := range is.Status.Steps {
		all = append(all, step.Reason)
	}
	return all
}

func condition(is *mendv1.RemediationRecord, kind string) string {
	c := meta.FindStatusCondition(is.Status.Conditions, kind)
	if c == nil {
		return ""
	}
	return string(c.Status) + " " + c.Reason
}

// replaced replaces w1 in several steps, and returns the record.
func (m *management) replaced() *mendv1.RemediationRecord {
	m.reconcile(time.Second)
	m.ask(2 * time.Second)
	m.reconcile(3 * time.Second)
	m.change("w1", func(w *clusterv1.Machine) { w.Finalizers = []string{"machine.cluster.x-k8s.io"} })
	m.remove(unhealthy())
	m.reconcile(time.Minute)
	m.change("w1", func(w *clusterv1.Machine) { w.Finalizers = nil })
	m.reconcile(2 * time.Minute)
	m.create(machine("w2", 3*time.Minute))
	m.reconcile(4 * time.Minute)
	m.ready("w2", 9*time.Minute)
	return m.reconcile(10 * time.Minute)
}

// The manager is killed before each write in turn, or the write fails. The record ends the same.
func TestARecordEndsTheSameWhateverWriteFails(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.replaced()
	all := m.writes
	for _, fails := range []error{errors.New("killed"), apierrors.NewConflict(schema.GroupResource{}, "w1-record", nil)} {
		for broken := range all {
			m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
			m.reconcile(time.Second)
			attempt := func(at time.Duration) {
				m.clock.SetTime(noon.Add(at))
				if m.writes == broken && m.fails == nil {
					m.fails = fails
				}
				if _, err := m.Reconcile(t.Context(), ctrl.Request{NamespacedName: recordKey}); err != nil {
					m.restart()
				}
			}
			m.ask(2 * time.Second)
			attempt(3 * time.Second)
			m.remove(unhealthy())
			attempt(2 * time.Minute)
			m.create(machine("w2", 3*time.Minute))
			attempt(4 * time.Minute)
			m.ready("w2", 9*time.Minute)
			attempt(10 * time.Minute)
			m.fails = nil
			if is := m.reconcile(11 * time.Minute); is.Status.Outcome != mendv1.RecordReplaced {
				t.Errorf("after write %d has failed it ends as %q with %v", broken, is.Status.Outcome, reasons(is))
			}
		}
	}
}

// The owner is scaled up while the old machine exists. The machine of that scale-up is no replacement, even if the process did not see the
// old one being deleted.
func TestARestartDoesNotTakeAnOlderMachineForTheReplacement(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.ask(time.Second)
	m.reconcile(time.Minute)
	m.edit(&clusterv1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "workers"}}, func(o client.Object) {
		o.(*clusterv1.MachineDeployment).Spec.Replicas = new(int32(2))
	})
	m.create(machine("w9", time.Hour))
	m.ready("w9", 61*time.Minute)
	m.reconcile(2 * time.Hour)
	m.remove(unhealthy())
	m.reconcile(3 * time.Hour)
	m.create(machine("w10", 3*time.Hour+time.Minute))
	if got := m.reconcile(3*time.Hour + 2*time.Minute); !got.Open() || got.Status.Replacement == nil || got.Status.Replacement.Machine.Name != "w10" {
		t.Fatalf("it is replaced by %+v, ended as %q", got.Status.Replacement, got.Status.Outcome)
	}
	m.restart()
	if got := m.reconcile(4 * time.Hour); !got.Open() || got.Status.Replacement.Machine.Name != "w10" {
		t.Errorf("after a restart it is replaced by %+v, ended as %q", got.Status.Replacement, got.Status.Outcome)
	}
}

// A drain may take an hour without a new step. When the Machine is gone, the watch has shown it, so that no live read is needed.
func TestARecordSaysWhenItsMachineWent(t *testing.T) {
	w1 := unhealthy()
	another := w1.DeepCopy()
	another.UID = "another"
	for name, tc := range map[string]struct {
		shown *clusterv1.Machine
		want  time.Duration
		asked int
	}{
		"as the watch has shown it": {w1, time.Hour, 0},
		"not as it shows another one of its name, when something was last written of it": {another, time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
			m.ask(time.Second)
			m.reconcile(time.Minute)
			m.clock.SetTime(noon.Add(time.Hour))
			must.Do(t, m.server.Delete(t.Context(), unhealthy()))
			m.onMachines().Delete(t.Context(), event.DeleteEvent{Object: tc.shown}, delayed{in: map[string]time.Duration{}})
			got := m.reconcile(time.Hour + time.Minute)
			if step := last(&got.Status, TargetGone); step == nil || !step.Time.Time.Equal(noon.Add(tc.want)) || m.asked["Machine"] != tc.asked {
				t.Errorf("it says %+v, and the API server was asked for %v", step, m.asked)
			}
		})
	}
}

// A MachineSet creates the next machine within a second. A busy manager may notice only later that the old one is gone, and its clock may
// be ahead of the API server's.
func TestAMachineThatWasMadeBeforeTheOldOneWasFoundGoneReplacesIt(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.ask(time.Second)
	m.reconcile(time.Minute)
	m.remove(unhealthy())
	m.create(machine("w2", time.Minute-5*time.Second))
	if got := m.reconcile(time.Minute + 30*time.Second); !got.Open() || got.Status.Replacement == nil {
		t.Errorf("it ends as %q by %s, replaced by %v", got.Status.Outcome, got.Status.EndedBy, got.Status.Replacement)
	}
}

// Two machines go in the same second. The capacity of only one is back.
func TestTheReplacementOfOneMachineIsNotThatOfAnother(t *testing.T) {
	other, otherRecord := unhealthy(), recordOf(func(r *mendv1.RemediationRecord) {
		r.Name, r.Spec.Target.Machine.Name, r.Spec.Target.Machine.UID, r.Spec.Target.Host = "v1-record", "v1", "v1", nil
	})
	other.Name, other.UID = "v1", "v1"
	all := append(fleet(), unhealthy(), other, recordOf(), otherRecord)
	all[2].(*clusterv1.MachineDeployment).Spec.Replicas = new(int32(2))
	m := newManagement(t, all...)
	both := func(at time.Duration) (w1, v1 *mendv1.RemediationRecord) {
		for range 2 {
			w1, v1 = m.look(at, recordKey), m.look(at, client.ObjectKeyFromObject(otherRecord))
		}
		return w1, v1
	}
	m.ask(time.Second)
	m.change("v1", func(w *clusterv1.Machine) {
		says(w, clusterv1.MachineOwnerRemediatedCondition, metav1.ConditionFalse, time.Second)
		carried(w)
	})
	both(2 * time.Second)
	m.remove(unhealthy())
	m.remove(other)
	both(time.Minute)
	m.create(machine("w8", time.Minute), machine("w9", time.Minute))
	both(2 * time.Minute)
	m.ready("w8", 3*time.Minute)
	both(4 * time.Minute)
	m.restart()
	w1, v1 := both(5 * time.Minute)
	if w1.Open() == v1.Open() {
		t.Errorf("with one of two machines the records end as %q by %v and %q by %v", w1.Status.Outcome, w1.Status.Replacement, v1.Status.Outcome, v1.Status.Replacement)
	}
	m.ready("w9", 3*time.Minute)
	w1, v1 = both(6 * time.Minute)
	if w1.Status.Outcome != mendv1.RecordReplaced || v1.Status.Outcome != mendv1.RecordReplaced || w1.Status.Replacement.Machine.Name == v1.Status.Replacement.Machine.Name {
		t.Errorf("with both they end as %q by %v and %q by %v", w1.Status.Outcome, w1.Status.Replacement, v1.Status.Outcome, v1.Status.Replacement)
	}
}

// Only the manager that covers a record closes it, and only by known facts about its target.
func TestWhatIsNotKnownOrAnotherManagersEndsNoRecord(t *testing.T) {
	for name, change := range map[string]func(*management){
		"its cluster cannot be reached": func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) {
				mirrors(w, metav1.ConditionUnknown, clusterv1.MachineNodeConnectionDownReason)
			})
		},
		"nothing is said of its node": func(m *management) {
			m.change("w1", func(w *clusterv1.Machine) { w.Status.Conditions = nil })
		},
		"another shard's": func(m *management) { m.WatchFilterValue = "east" },
	} {
		m := newManagement(t, append(fleet(), unhealthy(), recordOf(begun("RequestCreated"), func(r *mendv1.RemediationRecord) {
			r.Spec.Requester.Check = nil // if a user asked, the node decides whether it is healthy
		}))...)
		m.change("w1", func(w *clusterv1.Machine) {
			w.Status.Conditions = nil
			mirrors(w, metav1.ConditionTrue, clusterv1.MachineNodeHealthyReason)
		})
		change(m)
		if got := m.reconcile(10 * time.Minute); !got.Open() {
			t.Errorf("%s: it ends as %q", name, got.Status.Outcome)
		}
	}
}

// Begin writes that a remediation is about to begin again. A decision on the earlier version of the record must not cancel it.
func TestNoRecordIsCancelledWhoseRemediationIsTriedAgain(t *testing.T) {
	m := newManagement(t, append(fleet(), unhealthy(), recordOf())...)
	m.clock.SetTime(noon.Add(10 * time.Minute))
	stale, err := m.observe(t.Context(), recordKey, m.clock.Now(), true)
	must.Do(t, err)
	m.edit(m.record(), func(o client.Object) { o.(*mendv1.RemediationRecord).Status.Attempted = new(after(10 * time.Minute)) })
	plan := Decide(stale.facts)
	if _, err := m.apply(t.Context(), stale, plan); !apierrors.IsConflict(err) {
		t.Errorf("%q is written over it: %v", plan.Status.Outcome, err)
	}
	if is := m.reconcile(10 * time.Minute); is.Status.Outcome != "" {
		t.Errorf("it ends as %q", is.Status.Outcome)
	}
}
