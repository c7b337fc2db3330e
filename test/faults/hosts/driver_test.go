package hosts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kubemend/kubemend/test/builders"
)

const (
	// manySteps is more than ever happens at one moment; manyMoments are more than there are in any remediation here.
	manySteps   = 200
	manyMoments = 2000
)

// cue is something that happens from outside, once a moment has come.
type cue struct {
	when func(*environment) bool
	do   func(*environment)
}

// in is the moment at which a remediation has come to rest in a state of one of its attempts.
func in(state string, attempt int) func(*environment) bool {
	return func(e *environment) bool {
		m := memoryOf(e.remediation())
		return string(m.State) == state && m.Attempt == attempt
	}
}

// run lets all actors act, until the remediation has ended and all actors are at rest. What is in the script happens in that order, each at a
// moment at which all actors are at rest.
func (e *environment) run(over func(*environment) bool) {
	e.t.Helper()
	for range manyMoments {
		e.settle()
		if len(e.script) > 0 && !e.writes.Crashed() && e.script[0].when(e) {
			if e.first < 0 {
				done, _ := e.writes.Done()
				e.first = len(done)
			}
			now := e.script[0]
			e.script = e.script[1:]
			now.do(e)
			continue
		}
		if len(e.script) == 0 && !e.writes.Crashed() && e.last == nil && !e.box.busy() && over(e) {
			e.lasts()
			return
		}
		if !e.advance() {
			break
		}
	}
	e.t.Fatalf("it does not end (%d cues left)\n%s", len(e.script), e.story())
}

// settle lets all actors act until none does anything more at this moment.
func (e *environment) settle() {
	e.t.Helper()
	for range manySteps {
		if !e.step() {
			e.blocksMove()
			return
		}
	}
	e.t.Fatalf("it does not come to rest\n%s", e.story())
}

func (e *environment) step() bool {
	now := e.clock.Now()
	changed := e.box.step(now)
	changed = e.pods.step(now) || changed
	return e.reconcile(now) || changed
}

// reconcile makes the controller reconcile if an event has enqueued it or a requeue is due. It reports whether it has written.
func (e *environment) reconcile(now time.Time) bool {
	if e.writes.Crashed() {
		if now.Before(e.down) {
			return false
		}
		e.restart()
	}
	heard := e.management.enqueues
	if !e.unreachable() {
		heard += e.work.enqueues
	}
	if heard == e.seen && (e.due.IsZero() || now.Before(e.due)) {
		return false
	}
	e.seen = heard
	before := e.management.all + e.work.all
	result, err := e.controller.Reconcile(e.t.Context(), ctrl.Request{NamespacedName: e.at})
	e.last = err
	switch {
	case e.writes.Crashed():
		e.down = now.Add(e.as.downtime)
	case err != nil:
		e.tries++
		e.due = now.Add(min(time.Second<<e.tries, time.Minute))
	default:
		e.tries, e.due = 0, time.Time{}
		if result.RequeueAfter > 0 {
			e.due = now.Add(result.RequeueAfter).Add(time.Second - 1).Truncate(time.Second)
		}
	}
	return e.management.all+e.work.all != before || e.writes.Crashed()
}

// restart starts the controllers anew, after a crash or after they were killed.
func (e *environment) restart() {
	e.writes.Restart()
	e.restarts++
	e.start()
}

// advance lets time pass until the next moment at which anything is due. It reports false if nothing is.
func (e *environment) advance() bool {
	now := e.clock.Now()
	moments := []time.Time{e.due, e.box.next(), e.pods.next(), e.alarm}
	if e.writes.Crashed() {
		moments[0] = e.down
	}
	next := earliest(slices.DeleteFunc(moments, func(at time.Time) bool { return !at.After(now) })...)
	if next.IsZero() {
		return false
	}
	e.clock.SetTime(next)
	return true
}

// lasts makes sure that what is over stays over: the controllers write nothing more, and the host is not powered off again.
func (e *environment) lasts() {
	e.t.Helper()
	before, _ := e.writes.Done()
	cycles := e.cycles()
	e.until(time.Hour)
	if after, _ := e.writes.Done(); len(after) != len(before) || e.cycles() != cycles && e.host().Spec.Online {
		e.t.Errorf("%d writes were made after the end\n%s", len(after)-len(before), e.story())
	}
}

// story is all that may help to see why a test has failed.
func (e *environment) story() string {
	var text strings.Builder
	done, struck := e.writes.Done()
	fmt.Fprintf(&text, "%s: %s at %q (%s), fault struck %t, %d restarts, last error: %v\n%q\n",
		e.label, e.Kind.Kind, e.memory(), e.clock.Now().Sub(noon), struck, e.restarts, e.last, e.unsafe)
	if rem := e.remediation(); rem != nil {
		fmt.Fprintf(&text, "remediation %v %v\n%+v\n", rem.GetFinalizers(), rem.GetAnnotations(), builders.ReportOf(rem))
	}
	if h := e.host(); h != nil {
		fmt.Fprintf(&text, "host %v on %t %+v, really %t %v\n", h.Annotations, h.Status.PoweredOn, h.Status.ErrorMessage, e.box.model.Powered(), e.box.history)
	}
	if n := e.node(); n != nil {
		fmt.Fprintf(&text, "node %v %v %v\n", n.Annotations, n.Spec.Taints, ready(n))
	}
	for i, w := range done {
		fmt.Fprintf(&text, "write %d: %s\n", i+1, w)
	}
	return text.String()
}

// until lets all actors act for as long.
func (e *environment) until(d time.Duration) {
	e.t.Helper()
	e.alarm = e.clock.Now().Add(d)
	for e.settle(); e.clock.Now().Before(e.alarm) && e.advance(); {
		e.settle()
	}
	e.alarm = time.Time{}
}
