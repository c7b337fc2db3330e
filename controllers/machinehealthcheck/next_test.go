package machinehealthcheck

import (
	"errors"
	"testing"
	"time"

	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

func TestOneMachineThatCannotBeWrittenHoldsUpNoDeadline(t *testing.T) {
	w := aCheck(a("broken", health.Unhealthy), a("pending", health.Pending))
	of(w.Targets[1]).verdict.Recheck = noon.Add(3 * time.Second)
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(100)}
	failing := []outcome{{step: step{Decision: &Decision{Target: w.Targets[0]}}, err: errors.New("refused by a webhook")}}
	for range 20 {
		r.memory.recall(w)
		if result := r.tell(t.Context(), w, decide(w), applied{outcomes: failing}); result.RequeueAfter > 3*time.Second {
			t.Fatalf("the next reconcile is after %s, want one at the deadline in 3s", result.RequeueAfter)
		}
	}
}

func TestTriesGetRarerAndAreForgottenAfterOneThatGotThrough(t *testing.T) {
	w := aCheck()
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(100)}
	next := func(outcomes ...outcome) time.Duration {
		r.memory.recall(w)
		return r.tell(t.Context(), w, &Plan{}, applied{outcomes: outcomes}).RequeueAfter
	}
	conflict := outcome{released: &remediationrequest.Metadata{}, again: true}
	var last time.Duration
	for range 20 {
		after := next(conflict)
		if after < last || after > enqueue.RetryAtMost {
			t.Fatalf("a try after %s follows one after %s", after, last)
		}
		last = after
	}
	if last != enqueue.RetryAtMost {
		t.Errorf("after 20 tries the next is after %s, want %s", last, enqueue.RetryAtMost)
	}
	if after := next(); after != 0 {
		t.Errorf("a steady check is reconciled after %s", after)
	}
	if after := next(conflict); after != enqueue.Conflicted {
		t.Errorf("the first try after that is after %s, want %s", after, enqueue.Conflicted)
	}
}
