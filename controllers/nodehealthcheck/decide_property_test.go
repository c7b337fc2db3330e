package nodehealthcheck

import (
	"cmp"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/kubemend/kubemend/test/must"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// someFacts returns random facts. Some of the nodes belong to the control plane.
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
	limit(rapid.SampledFrom([]string{"100%", "40%", "1", "0", "many"}).Draw(t, "limit"))(&f)
	if yes(6, "paused") {
		f.Check.Spec.PauseRequests = []string{"me"}
	}
	if yes(4, "cooldown") {
		cooldown(10 * time.Minute)(&f)
		f.Storm.Active = yes(2, "storm")
	}
	f.Upgrade.Unread = yes(8, "upgrade")
	healthyDelay(some(600))(&f)
	if yes(6, "settles") {
		f.Since, f.Grace = epoch, time.Minute
	}
	if yes(4, "outage") {
		f.Outages = []Outage{{epoch.Add(-time.Hour), epoch.Add(-some(3600))}}
	}
	f.TerminatingLeft, f.Resync = yes(2, "left"), some(600)
	if yes(2, "known") {
		f.Memory.Decided = epoch.Add(-some(600))
	}
	if yes(8, "no template") {
		f.Templates[0].Object = nil
	}
	plane := &ControlPlane{}
	for i := range rapid.IntRange(1, 8).Draw(t, "nodes") {
		n := ready(unknown, -some(900))
		n.Name, n.Selected, n.Machine = string(rune('a'+i)), !yes(8, "left"), &Machine{Unread: yes(8, "unread")}
		n.Object.UID = types.UID("uid-" + n.Name)
		if yes(3, "healthy") {
			n.Object.Status.Conditions[0].Status = good
		}
		controlPlane := yes(2, "member")
		for _, change := range []struct {
			made   bool
			change func(*Node)
		}{{yes(8, "excluded"), excluded}, {controlPlane, ofPlane}, {yes(12, "terminating"), terminating}, {yes(12, "confirmed"), confirmed}} {
			if change.made {
				change.change(&n)
			}
		}
		if yes(8, "gone") {
			n.Object = nil
		}
		if yes(8, "unread") {
			unseen(&n)
		}
		if yes(12, "orphaned") {
			orphaned(&n)
		}
		if yes(3, "listed") {
			n.Listed = &nhcv1.UnhealthyNode{HealthyDelayed: new(yes(2, "delayed"))}
			n.Listed.Remediations = make([]nhcv1.Remediation, rapid.IntRange(0, 1).Draw(t, "listed requests"))
			if yes(2, "recovered") {
				n.Listed.ConditionsHealthyTimestamp = &metav1.Time{Time: epoch.Add(-some(3600))}
			}
		}
		for j := range max(0, rapid.IntRange(-2, 2).Draw(t, "requests")) {
			r := Request{Object: requestOf("Reboot", n.Name, n.Name+string(rune('0'+j))), Step: rapid.IntRange(-1, len(f.Templates)-1).Draw(t, "step")}
			startedBefore(some(900))(&r)
			succeeded(answer())(&r)
			says(nhcv1.ProcessingCondition, answer(), some(60))(&r)
			if yes(2, "kept") {
				kept(&r)
			}
			if yes(2, "listed") {
				inStatus(24 * time.Hour)(&r)
			}
			if yes(3, "deleting") {
				deleting(some(60))(&r)
			}
			n.Requests = append(n.Requests, r)
		}
		if yes(6, "deleted") {
			n.Gone = []Listed{was(rapid.IntRange(-1, len(f.Templates)-1).Draw(t, "step"), some(900))}
		}
		if yes(4, "lease") {
			n.Lease = leaseFor(rapid.SampledFrom([]string{us, "NMO", ""}).Draw(t, "holder"), 10*time.Minute, some(900), some(900))
		}
		if n.controlPlane() {
			plane.Members = append(plane.Members, seen(n.Name, n.Object.Status.Conditions[0].Status == good))
		}
		if controlPlane && len(n.Requests) > 0 {
			plane.addRequest(&Request{Object: requestOf("Reboot", n.Name, n.Name)}, n.Name, n.Object, epoch, epoch)
		}
		f.Nodes = append(f.Nodes, n)
	}
	if slices.ContainsFunc(f.Nodes, func(n Node) bool { return n.controlPlane() && f.Concerns(&n) }) {
		f.ControlPlane = plane
	}
	return f
}

func holds(t *testing.T, rule func(*rapid.T, *Facts, *Plan)) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		f := someFacts(t)
		p := Decide(f)
		rule(t, &f, &p)
	})
}

// begins reports whether a remediation of the node begins: a step starts, and all existing requests are being deleted.
func begins(n *Node, d *Decision) bool {
	for i := range n.Requests {
		if !d.Requests[i].Over {
			return false
		}
	}
	return d.starts() && len(n.Unseen) == 0
}

func TestARemediationStartsExactlyIfThereAreNoBlockers(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		for i := range p.Decisions {
			n, d := &f.Nodes[i], p.Decisions[i]
			if d.starts() != (len(d.Blockers) == 0) {
				t.Fatalf("node %s starts: %t, and its blockers are %+v", n.Name, d.starts(), d.Blockers)
			}
			if begins(n, d) && len(p.Blockers) > 0 {
				t.Fatalf("node %s is the first of %+v", n.Name, p.Blockers)
			}
			if d.starts() && (d.Would != d.Start || !slices.Contains(p.Order, i)) {
				t.Fatalf("node %s starts with %d, would with %d, in %v", n.Name, d.Start, d.Would, p.Order)
			}
		}
	})
}

// Nothing starts for a node that is or may be healthy, or that is left to another controller.
func TestNothingStartsThatMustNot(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		for i := range p.Decisions {
			n, d := &f.Nodes[i], p.Decisions[i]
			if !d.starts() {
				continue
			}
			paused := len(f.Check.Spec.PauseRequests) > 0 || f.Upgrade.Unread || !f.Since.IsZero()
			ended := f.TerminatingLeft && n.terminating()
			signals, _ := f.Signals(n)
			due := len(signals) > 0 && !f.Now.Before(signals[0].Since.Add(5*time.Minute))
			userExcludes, _ := n.Excluded()
			switch {
			case !due, userExcludes, n.Lease.held(), len(n.Unseen) > 0, len(n.Orphaned) > 0, n.Machine.Unread, ended, paused:
				t.Fatalf("a remediation of %+v starts", n)
			case begins(n, d) && !n.Selected:
				t.Fatalf("a remediation of %+v, which is not selected, begins", n)
			}
		}
	})
}

// A remediation begins only while no more nodes are unhealthy than the limit allows.
func TestNothingBeginsAboveTheLimit(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		total, unhealthy := 0, 0
		for i := range f.Nodes {
			n := &f.Nodes[i]
			if !n.Selected {
				continue
			}
			total++
			if !n.exists() || f.Concerns(n) || len(n.Requests)+len(n.Unseen)+len(n.Orphaned) > 0 || f.TerminatingLeft && n.terminating() {
				unhealthy++
			}
		}
		atMost := map[string]int{"100%": total, "40%": total * 40 / 100, "1": 1}[f.Check.Spec.MaxUnhealthy.String()]
		for i := range p.Decisions {
			if begins(&f.Nodes[i], p.Decisions[i]) && p.Population.Total() == total && unhealthy > atMost {
				t.Fatalf("node %s begins, as %d of %d are unhealthy, of at most %d", f.Nodes[i].Name, unhealthy, total, atMost)
			}
		}
	})
}

func TestNeverTwoNodesOfTheControlPlane(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		beginning, busy := 0, 0
		for i := range f.Nodes {
			n := &f.Nodes[i]
			switch {
			case !n.controlPlane():
			case begins(n, p.Decisions[i]):
				beginning++
			case len(n.Requests) > 0:
				busy++
			}
		}
		if beginning > 1 || beginning == 1 && busy > 0 {
			t.Fatalf("%d nodes of the control plane begin, while %d are being remediated", beginning, busy)
		}
	})
}

// Requests of a healthy node end, whatever blocks new remediations.
func TestWhatHasBegunEndsWhenTheNodeIsHealthy(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		for i := range f.Nodes {
			n, d := &f.Nodes[i], p.Decisions[i]
			if !n.exists() || f.Concerns(n) || len(n.Unseen) > 0 || f.TerminatingLeft && n.terminating() {
				continue
			}
			for j := range n.Requests {
				waits := f.healthyDelay() > 0 && !n.confirmed() && d.Delayed
				if n.Requests[j].Deleting().IsZero() && !d.Requests[j].End && !waits {
					t.Fatalf("the request %d of %+v stays", j, n)
				}
			}
			if len(n.Requests)+len(n.Orphaned) == 0 && n.Lease.own() && d.Leasing != DropLease {
				t.Fatalf("the lease of %+v stays", n)
			}
		}
	})
}

// If time changes the plan, Recheck is not later than this change, and is in the future.
func TestWhatIsWaitedForIsLookedAtAgain(t *testing.T) {
	holds(t, func(t *rapid.T, f *Facts, p *Plan) {
		by := func(what string, n *Node, at time.Time) {
			if at.After(f.Now) && (p.Recheck.IsZero() || p.Recheck.After(at)) {
				t.Fatalf("%s of %+v is at %s, and it is looked at again at %s", what, n, at, p.Recheck)
			}
		}
		if !p.Recheck.IsZero() && !p.Recheck.After(f.Now) {
			t.Fatalf("it is looked at again at %s", p.Recheck)
		}
		for i := range f.Nodes {
			n, d := &f.Nodes[i], p.Decisions[i]
			if !d.Next.At.IsZero() && !d.Next.At.After(f.Now) {
				t.Fatalf("%+v comes next, which is over", d.Next)
			}
			by("what comes next", n, d.Next.At)
			by("the verdict", n, d.Verdict.Recheck)
			if b := d.Blocker(); d.Verdict.State == health.Unhealthy {
				by("the end of what blocks", n, cmp.Or(b.Again, b.Until))
			}
			if n.Lease.own() && d.Leasing == KeepLease && len(n.Requests) > 0 && n.exists() {
				by("the lease", n, n.Lease.expiry())
			}
		}
	})
}

// Decide returns the same plan for the same facts, and does not change the facts.
func TestADecisionLeavesItsFactsAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := someFacts(t)
		facts := encoded(t, f)
		a, b := Decide(f), Decide(f)
		if diff := gocmp.Diff(encoded(t, a), encoded(t, b)); diff != "" {
			t.Fatalf("first, then (-first +then):\n%s", diff)
		}
		if diff := gocmp.Diff(facts, encoded(t, f)); diff != "" {
			t.Fatalf("the facts (-before +after):\n%s", diff)
		}
	})
}

// A second reconcile with the memory of the first one decides the same: the number of reconciles does not matter.
func TestWhatIsRememberedChangesNoDecisionOfTheSameFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := someFacts(t)
		a := Decide(f)
		f.Memory, f.Storm = a.Memory, a.Storm.Storm
		b := Decide(f)
		for i := range a.Decisions {
			if diff := gocmp.Diff(reasons(a.Decisions[i].Blockers), reasons(b.Decisions[i].Blockers)); diff != "" || a.Decisions[i].Start != b.Decisions[i].Start {
				t.Fatalf("of %+v (-first +then):\n%s", f.Nodes[i], diff)
			}
		}
	})
}

func encoded(t must.T, v any) string {
	text, err := json.Marshal(v)
	must.Do(t, err)
	return string(text)
}
