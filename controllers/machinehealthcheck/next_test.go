package machinehealthcheck

import (
	"errors"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

func TestOneMachineThatCannotBeWrittenHoldsUpNoDeadline(t *testing.T) {
	w := aCheck(a("broken", health.Unhealthy), a("pending", health.Pending))
	of(&w.targets[1]).verdict.Recheck = noon.Add(3 * time.Second)
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon)}
	failing := []outcome{{step: step{target: &w.targets[0]}, err: errors.New("refused by a webhook")}}
	for range 20 {
		r.memory.pass(w, decide(w))
		result, err := r.next(t.Context(), w, decide(w), applied{outcomes: failing})
		if err != nil || result.RequeueAfter > 3*time.Second {
			t.Fatalf("next() = %v, %v; want a look at the deadline in 3s", result, err)
		}
	}
}

func TestTriesGetRarerAndAreForgottenAfterOneThatGotThrough(t *testing.T) {
	w := aCheck()
	r := &Reconciler{Clock: testingclock.NewFakePassiveClock(noon)}
	r.memory.pass(w, plan{})
	var last time.Duration
	for range 20 {
		result, _ := r.next(t.Context(), w, plan{}, applied{outcomes: []outcome{{again: true}}})
		if result.RequeueAfter < last || result.RequeueAfter > enqueue.RetryAtMost {
			t.Fatalf("a try after %s follows one after %s", result.RequeueAfter, last)
		}
		last = result.RequeueAfter
	}
	if last != enqueue.RetryAtMost {
		t.Errorf("after 20 tries the next is after %s, want %s", last, enqueue.RetryAtMost)
	}
	if result, _ := r.next(t.Context(), w, plan{}, applied{outcomes: nil}); result.RequeueAfter != 0 {
		t.Errorf("a steady check is looked at after %s", result.RequeueAfter)
	}
	if result, _ := r.next(t.Context(), w, plan{}, applied{outcomes: []outcome{{again: true}}}); result.RequeueAfter != enqueue.Conflicted {
		t.Errorf("the first try after that is after %s, want %s", result.RequeueAfter, enqueue.Conflicted)
	}
}
