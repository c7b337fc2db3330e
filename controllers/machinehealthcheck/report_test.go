package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/test/must"
)

// client-go counts events with the same regarding, related, reason and action as one: the second machine would be reported under the name
// of the first.
func TestEachRemediationHasItsOwnEvent(t *testing.T) {
	related := map[string]string{}
	for _, name := range []string{"first", "second"} {
		w := aCheck(a(name, health.Unhealthy))
		p := w.decide()
		for _, note := range machineNotes(w, []outcome{{Decision: p.Decisions[0], requested: true}}) {
			related[note.Text] = note.Related.GetObjectKind().GroupVersionKind().Kind + " " + note.Related.GetName()
		}
	}
	want := map[string]string{
		"Asked the owner to remediate first": "Machine first", "Asked the owner to remediate second": "Machine second",
	}
	must.Equal(t, want, related, "what the events are about")
}

// failedAndReady has the provider report a final failure while the node is Ready.
func failedAndReady(t *Target) {
	message := "authentication failed"
	was := &clusterv1.MachineV1Beta1DeprecatedStatus{FailureMessage: &message}
	t.Machine.Status.Deprecated = &clusterv1.MachineDeprecatedStatus{V1Beta1: was}
	t.Node, t.Machine.Status.NodeRef.Name = &corev1.Node{}, "node"
	t.Node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	facts := healthOf(clusterv1.MachineHealthCheckChecks{}, t.Machine, health.NodePresent, t.Node)
	t.Health = &facts
}

// After a start the manager has not read the records yet, and without their CRD it never can: nothing then shows that capacity is back. A
// reader goes by the condition of the check.
func TestAContradictedFailureWaitsWhileTheCapacityBeforeIsNotKnown(t *testing.T) {
	manager := &records.Records{Installed: func(context.Context, string) (bool, error) { return false, nil }}
	for name, tc := range map[string]struct {
		records *records.Records
		said    metav1.ConditionStatus
		want    int
	}{
		"a manager that knows no record":         {records: manager},
		"nor if the check says that it was back": {records: manager, said: metav1.ConditionTrue},
		"a reader of a check that says nothing":  {want: 1},
		"of one that says that it is back":       {said: metav1.ConditionTrue, want: 1},
		"of one that says that it is not":        {said: metav1.ConditionFalse},
	} {
		w := aCheck(a("m", health.Unhealthy, failedAndReady))
		if tc.said != "" {
			conditions.Set(w.Check, metav1.Condition{Type: mendv1.CapacityBack, Status: tc.said, Reason: "Test"})
		}
		(&Reconciler{Records: tc.records}).observeCapacity(t.Context(), w)
		p := w.decide()
		if got, asks := starts(p), p.Decisions[0].Blocked(FailureContradicted); got != tc.want || asks == (tc.want == 1) {
			t.Errorf("%s: %d start, want %d; a person is asked: %t", name, got, tc.want, asks)
		}
	}
}

// A provider with a wrong credential fails all its machines; the event is where users look first.
func TestAMachineWhoseFailureIsContradictedWarnsOnce(t *testing.T) {
	of := func(name string) Target { return a(name, health.Unhealthy, failedAndReady) }
	w := aCheck(of("first"), of("second"), of("third"))
	p := w.decide()
	got := map[string]string{}
	for i, d := range p.Decisions {
		saved := w.Targets[i].Machine.DeepCopy()
		conditions.Set(saved, metav1.Condition{
			Type: clusterv1.MachineHealthCheckSucceededCondition, Status: metav1.ConditionFalse, Reason: "UnhealthyMachine",
		})
		for range 2 {
			for _, note := range machineNotes(w, []outcome{{Decision: d, saved: saved}}) {
				got[note.About.GetName()] += note.Kind
			}
			w.Targets[i].Machine = saved // the cache shows it
		}
	}
	must.Equal(t, map[string]string{"first": "Normal", "second": "Warning", "third": "Warning"}, got, "events")
}

func TestACheckThatCanNeverActWarnsOfEachFlawOnce(t *testing.T) {
	var check clusterv1.MachineHealthCheckStatus
	var got []string
	for _, status := range []metav1.ConditionStatus{"True", "NotReady", "NotReady", "Ready", "True", "Ready"} {
		w := aCheck(a("m", health.Healthy))
		met := clusterv1.UnhealthyNodeCondition{Type: "Ready", Status: corev1.ConditionStatus(status)}
		w.Check.Spec.Checks.UnhealthyNodeConditions, w.Check.Status = []clusterv1.UnhealthyNodeCondition{met}, check
		p := decide(w)
		next := statusAfter(w, p, nil)
		for _, note := range turnNotes(w, next) {
			got = append(got, note.Kind+" "+note.Reason+" "+note.Text)
		}
		check = next.Status
	}
	never := "Warning IneffectiveCheck spec.checks.unhealthyNodeConditions[0] is never met: " +
		"no condition has the status %q, but True, False or Unknown"
	want := []string{fmt.Sprintf(never, "NotReady"), fmt.Sprintf(never, "Ready"), fmt.Sprintf(never, "Ready")}
	must.Equal(t, want, got, "events")
}

func TestOneMachineThatCannotBeWrittenHoldsUpNoDeadline(t *testing.T) {
	w := aCheck(a("broken", health.Unhealthy), a("pending", health.Pending))
	of(w.Targets[1]).verdict.Recheck = noon.Add(3 * time.Second)
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(100)}
	failing := []outcome{{Decision: &Decision{Target: w.Targets[0]}, err: errors.New("refused by a webhook")}}
	for range 20 {
		r.memory.recall(w)
		if result := r.tell(t.Context(), w, decide(w), applied{outcomes: failing}); result.RequeueAfter > 3*time.Second {
			t.Fatalf("the next reconcile is after %s, want one at the deadline in 3s", result.RequeueAfter)
		}
	}
}

func TestTriesGetRarerAndAreForgottenAfterOneThatGotThrough(t *testing.T) {
	w := aCheck(a("m", health.Healthy))
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(100)}
	next := func(outcomes ...outcome) time.Duration {
		r.memory.recall(w)
		return r.tell(t.Context(), w, &Plan{}, applied{outcomes: outcomes}).RequeueAfter
	}
	conflict := outcome{Decision: &Decision{Target: w.Targets[0]}, again: true}
	var last time.Duration
	for range 20 {
		after := next(conflict)
		if after < last || after > enqueue.RetryAtMost {
			t.Fatalf("a try after %s follows one after %s", after, last)
		}
		last = after
	}
	must.Is(t, enqueue.RetryAtMost, last, "after 20 tries the next is after")
	must.Is(t, 0, next(), "a steady check is reconciled after")
	must.Is(t, enqueue.Conflicted, next(conflict), "the first try after that is after")
}
