package machinehealthcheck

import (
	"testing"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/health"
	"github.com/kubemend/kubemend/controllers/wake"
)

// Three of five machines turn unhealthy, or healthy, in the same moment, and one of them is seen first.
func TestNothingBeginsBeforeTheChangesThatComeTogetherHaveAllCome(t *testing.T) {
	const well, bad, suspect = health.Healthy, health.Unhealthy, health.Suspect
	type seen struct {
		states []health.State
		begun  int
	}
	for name, tc := range map[string]struct {
		limit  string
		passes []seen
	}{
		"the first of three to fail is not remediated, nor are the others": {"40%", []seen{
			{[]health.State{well, well, well, well, well}, 0}, {[]health.State{bad, well, well, well, well}, 0}, {[]health.State{bad, bad, bad, well, well}, 0},
		}},
		"one that fails alone is, a merge window later": {"40%", []seen{
			{[]health.State{well, well, well, well, well}, 0}, {[]health.State{bad, well, well, well, well}, 0}, {[]health.State{bad, well, well, well, well}, 1},
		}},
		"one whose time runs out is at once, for it is known": {"40%", []seen{
			{[]health.State{suspect, well, well, well, well}, 0}, {[]health.State{bad, well, well, well, well}, 1},
		}},
		"one that was known does not wait for another": {"40%", []seen{
			{[]health.State{suspect, well, well, well, well}, 0}, {[]health.State{bad, bad, well, well, well}, 1}, {[]health.State{bad, bad, well, well, well}, 2},
		}},
		"of three that recover the last is not remediated": {"40%", []seen{
			{[]health.State{bad, bad, bad, well, well}, 0}, {[]health.State{well, bad, bad, well, well}, 0}, {[]health.State{well, well, well, well, well}, 0},
		}},
		"those are that have not recovered a merge window later": {"40%", []seen{
			{[]health.State{bad, bad, bad, well, well}, 0}, {[]health.State{well, bad, bad, well, well}, 0}, {[]health.State{well, bad, bad, well, well}, 2},
		}},
		"without a limit nothing waits": {"100%", []seen{
			{[]health.State{well, well, well, well, well}, 0}, {[]health.State{bad, well, well, well, well}, 1},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory
			check := aWorld().check
			for i, pass := range tc.passes {
				w := aWorld().limited(tc.limit)
				w.check.Status = check.Status
				for j, state := range pass.states {
					w.targets = append(w.targets, a(string(rune('a'+j)), state))
				}
				m.recall(w)
				m.awaitBurst(w)
				s := weigh(w)
				begun := 0
				for _, s := range plan(w, s.grant) {
					if s.start {
						begun++
					}
					if s.target.verdict.State == bad && s.say.health != failed {
						t.Errorf("pass %d: machine %s is not called unhealthy", i, s.target.machine.Name)
					}
				}
				if begun != pass.begun {
					t.Errorf("pass %d begins %d remediations, want %d", i, begun, pass.begun)
				}
				if again := afterBurst(w, s); begun == 0 && w.targets[0].sudden && !s.grant.ShortCircuited() && !again.Equal(noon.Add(wake.MergeWindow)) {
					t.Errorf("pass %d: it is looked at again at %s", i, again.Format(time.StampMilli))
				} else if s.grant.ShortCircuited() && !again.IsZero() {
					t.Errorf("pass %d: it is looked at again and again while too many are unhealthy", i)
				}
				check = statusAfter(w, s)
				m.pass(w)
			}
			if c := conditionOf(check, clusterv1.MachineHealthCheckRemediationAllowedCondition); c == nil {
				t.Error("it is not said whether remediation is allowed")
			}
		})
	}
}
