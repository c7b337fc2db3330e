package nodes

import (
	"slices"
	"testing"
	"time"
)

func TestTheNodesForWhichARemediationStartsComeFirst(t *testing.T) {
	p := Decide(of(healthy(asked()), lost(since(20*time.Minute)), lost(since(30*time.Minute)), lost(func(n *Node) { n.Excluded = true }), healthy()))
	if want := []int{2, 1, 0, 3}; !slices.Equal(p.Order, want) {
		t.Errorf("order %v, want %v", p.Order, want)
	}
}

func TestTheFirstReasonThatDisablesACheckIsKept(t *testing.T) {
	p := Decide(of(lost()).with(func(f *Facts) { f.Disabled, f.MaxUnhealthy = Disabled{"Other", "x"}, "many" }))
	if p.Disabled.Reason != "Other" {
		t.Errorf("got %+v", p.Disabled)
	}
}

func TestTheLeaseOfANodeHasTheTermOfItsStep(t *testing.T) {
	for step, want := range map[int]time.Duration{0: 3 * time.Minute, 1: 20 * time.Minute, -1: defaultTerm} {
		f := of(lost(asked(func(r *Request) { r.Step = step }))).with(steps(reboot(0), reboot(0)))
		f.Templates[0].Timeout, f.Templates[1].Timeout = 3*time.Minute, 20*time.Minute
		p := Decide(f)
		if got := p.Decisions[0].Term.Length; step >= 0 && got != want || step < 0 && got == 0 {
			t.Errorf("of step %d: %s, want %s", step, got, want)
		}
	}
}
