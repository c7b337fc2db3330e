package nodes

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

// someFacts are random facts of a check, of whose nodes some belong to the control plane.
func someFacts(t *rapid.T) Facts {
	yes := func(of int, name string) bool { return rapid.IntRange(1, of).Draw(t, name) == 1 }
	some := func(of int) time.Duration {
		return time.Duration(rapid.IntRange(0, of).Draw(t, "seconds")) * time.Second
	}
	answer := func() escalation.Status {
		return escalation.Status(rapid.IntRange(int(escalation.Unsaid), int(escalation.Unsure)).Draw(t, "answer"))
	}
	f := of()
	if yes(2, "escalates") {
		f = f.with(steps([]Template{reboot(0), reboot(0), hostTemplate()}[:rapid.IntRange(1, 3).Draw(t, "steps")]...))
	}
	f.MaxUnhealthy = rapid.SampledFrom([]string{"100%", "40%", "1", "0", "many"}).Draw(t, "limit")
	if yes(6, "paused") {
		f.PauseRequests = []string{"me"}
	}
	if yes(4, "cooldown") {
		f.Cooldown, f.Storm.Active = ptr(10*time.Minute), yes(2, "storm")
	}
	f.Upgrade.Unread, f.HealthyDelay = yes(8, "upgrade"), some(600)
	if yes(6, "settles") {
		f.Since, f.Grace = epoch, time.Minute
	}
	if yes(8, "no template") {
		f.Templates[0].Usable = false
	}
	plane := &ControlPlane{}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := ready(unknown, -some(900))
		n.Name, n.Selected, n.Machine = string(rune('a'+i)), !yes(8, "left"), &Machine{Unread: yes(8, "unread")}
		n.ID = "uid-" + n.Name
		if yes(3, "healthy") {
			n.Conditions = nil
		}
		n.Exists, n.Excluded, n.ControlPlane = !yes(8, "gone"), yes(8, "excluded"), yes(2, "member")
		for j := range max(0, rapid.IntRange(-2, 2).Draw(t, "requests")) {
			r := Request{ID: n.Name + string(rune('0'+j)), Step: rapid.IntRange(-1, len(f.Templates)-1).Draw(t, "step"), Started: epoch.Add(-some(900))}
			r.Succeeded, r.Processing, r.Kept, r.Listed = answer(), answer(), yes(2, "kept"), yes(2, "listed")
			if yes(3, "deleting") {
				r.Deleting = epoch.Add(-some(60))
			}
			n.Requests = append(n.Requests, r)
		}
		if yes(6, "deleted") {
			n.Gone = []Listed{{Step: rapid.IntRange(-1, len(f.Templates)-1).Draw(t, "step"), Started: epoch.Add(-some(900))}}
		}
		if yes(4, "lease") {
			n.Lease = leaseOf(rapid.SampledFrom([]string{us, "NMO", ""}).Draw(t, "holder"), 10*time.Minute, some(900), some(900))
		}
		if n.ControlPlane && n.Exists {
			plane.Nodes = append(plane.Nodes, Member{Name: n.Name, Ready: len(n.Conditions) == 0})
		}
		if n.ControlPlane && len(n.Requests) > 0 {
			plane.Requests = append(plane.Requests, MemberRequest{Ref: Ref{"Reboot", "remediators", n.Name}, Node: n.Name, There: n.Exists, Gone: epoch})
		}
		f.Nodes = append(f.Nodes, n)
	}
	if NeedsControlPlane(f) {
		f.ControlPlane = plane
	}
	return f
}

// A remediation starts exactly if nothing blocks it.
func TestARemediationStartsExactlyIfThereAreNoBlockers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := someFacts(t)
		p := Decide(f)
		members := 0
		for i := range p.Decisions {
			n, d := &f.Nodes[i], &p.Decisions[i]
			if d.Starts() != (len(d.Blockers) == 0) {
				t.Fatalf("node %s starts: %t, and its blockers are %+v", n.Name, d.Starts(), d.Blockers)
			}
			first := d.Starts() && !(&decider{f: &f, p: &p}).begun(i)
			if first && (len(p.Blockers) > 0 || p.Grant.Reason != budget.Enough) {
				t.Fatalf("node %s is the first of %+v", n.Name, p.Blockers)
			}
			if first && n.ControlPlane {
				members++
			}
			if d.Starts() && (n.Excluded || !n.Exists || n.Lease.held(f.Now)) {
				t.Fatalf("a remediation of %+v starts", n)
			}
			for _, m := range []Moment{d.Next, {At: d.Recheck}} {
				if !m.At.IsZero() && m.At.Before(f.Now) {
					t.Fatalf("node %s is looked at again at %s, which is over", n.Name, m.At)
				}
			}
		}
		if members > 1 {
			t.Fatalf("%d nodes of the control plane start", members)
		}
	})
}

// Decisions are made once: what is decided of the same facts is the same, and the facts stay as they are.
func TestADecisionLeavesItsFactsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := someFacts(t)
		a, b := Decide(f), Decide(f)
		for i := range a.Decisions {
			if len(a.Decisions[i].Blockers) != len(b.Decisions[i].Blockers) || a.Decisions[i].Start != b.Decisions[i].Start {
				t.Fatalf("first %+v, then %+v", a.Decisions[i], b.Decisions[i])
			}
		}
	})
}
