package machinehealthcheck

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/enqueue"
)

// Three of five machines turn unhealthy, or healthy, in the same moment, and one of them is seen first.
func TestNothingBeginsBeforeTheChangesThatComeTogetherHaveAllCome(t *testing.T) {
	const well, bad, pending = health.Healthy, health.Unhealthy, health.Pending
	type seen struct {
		states []health.State
		begun  int
		at     int // in milliseconds; zero for a merge window after the reconcile before
	}
	for name, tc := range map[string]struct {
		limit      string
		reconciles []seen
	}{
		"the first of three to fail is not remediated, nor are the others": {"40%", []seen{
			{[]health.State{well, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 0, 0}, {[]health.State{bad, bad, bad, well, well}, 0, 0},
		}},
		"one that fails alone is, a merge window later": {"40%", []seen{
			{[]health.State{well, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 1, 0},
		}},
		"one whose time runs out is at once, for it is known": {"40%", []seen{
			{[]health.State{pending, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 1, 0},
		}},
		"one that was known does not wait for another": {"40%", []seen{
			{[]health.State{pending, well, well, well, well}, 0, 0}, {[]health.State{bad, bad, well, well, well}, 1, 0}, {[]health.State{bad, bad, well, well, well}, 2, 0},
		}},
		"of three that recover the last is not remediated": {"40%", []seen{
			{[]health.State{bad, bad, bad, well, well}, 0, 0}, {[]health.State{well, bad, bad, well, well}, 0, 0}, {[]health.State{well, well, well, well, well}, 0, 0},
		}},
		"those are that have not recovered a merge window later": {"40%", []seen{
			{[]health.State{bad, bad, bad, well, well}, 0, 0}, {[]health.State{well, bad, bad, well, well}, 0, 0}, {[]health.State{well, bad, bad, well, well}, 2, 0},
		}},
		"a timer that ends a moment after the first does not end the wait": {"40%", []seen{
			{[]health.State{well, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 0, 500},
			{[]health.State{bad, well, well, well, well}, 0, 501}, {[]health.State{bad, well, well, well, well}, 0, 599}, {[]health.State{bad, well, well, well, well}, 1, 600},
		}},
		"nor does one that ends a moment after few enough are": {"40%", []seen{
			{[]health.State{bad, bad, bad, well, well}, 0, 0}, {[]health.State{well, bad, bad, well, well}, 0, 500}, {[]health.State{well, bad, bad, well, well}, 0, 501},
			{[]health.State{well, bad, bad, well, well}, 2, 600},
		}},
		"without a limit nothing waits": {"100%", []seen{
			{[]health.State{well, well, well, well, well}, 0, 0}, {[]health.State{bad, well, well, well, well}, 1, 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory
			check, now := aCheck().check, noon
			for i, pass := range tc.reconciles {
				w := aCheck().limited(tc.limit)
				w.check.Status = check.Status
				if now = now.Add(enqueue.MergeWindow); pass.at > 0 {
					now = noon.Add(time.Duration(pass.at) * time.Millisecond)
				}
				w.now = now
				for j, state := range pass.states {
					w.also(a(string(rune('a'+j)), state))
				}
				m.recall(w)
				s := decide(w)
				begun := 0
				for _, s := range stepsOf(w, s) {
					if s.Starts() {
						begun++
					}
					if s.Verdict.State == bad && !s.Sets(machines.HealthCheckSucceeded, "False") {
						t.Errorf("reconcile %d: machine %s is not called unhealthy", i, s.target.machine.Name)
					}
				}
				if begun != pass.begun {
					t.Errorf("reconcile %d begins %d remediations, want %d", i, begun, pass.begun)
				}
				again, waits := s.Recheck, s.JustSeen
				if waits && !s.Grant.ShortCircuited() && (!again.After(now) || again.After(now.Add(enqueue.MergeWindow))) {
					t.Errorf("reconcile %d: it is looked at again at %s", i, again.Format(time.StampMilli))
				} else if s.Grant.ShortCircuited() && !again.IsZero() {
					t.Errorf("reconcile %d: it is looked at again and again while too many are unhealthy", i)
				}
				check = statusAfter(w, s, result{})
				m.leave(w, s)
			}
			if c := conditionOf(check, clusterv1.MachineHealthCheckRemediationAllowedCondition); c == nil {
				t.Error("it is not said whether remediation is allowed")
			}
		})
	}
}

// A webhook may refuse the owner of the check, which is written before its status. What the check said before that stands there for ever.
func TestAStatusThatCannotBeWrittenHoldsUpNoRemediation(t *testing.T) {
	var m memory
	stored := aCheck(a("a", health.Unhealthy), a("b", health.Unhealthy), a("c", health.Unhealthy)).limited("1")
	check, now := statusAfter(stored, decide(stored), result{}), noon
	for reconciles := 1; ; reconciles++ {
		w := aCheck(a("a", health.Unhealthy), a("b", health.Healthy), a("c", health.Healthy)).limited("1")
		w.check.Status, w.now = check.Status, now
		m.recall(w)
		s := decide(w)
		if steps := stepsOf(w, s); len(steps) > 0 && steps[0].Starts() {
			break
		}
		if now = s.Recheck; reconciles > 2 || now.IsZero() {
			t.Fatalf("after %d reconciles nothing has begun, the next is at %s", reconciles, now)
		}
		m.leave(w, s)
	}
}
