package powercycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/test/golden"
)

func TestAMessageIsCutWhereTheFieldEnds(t *testing.T) {
	for length, want := range map[int]int{maxMessage - 1: maxMessage - 1, maxMessage: maxMessage, maxMessage + 1: maxMessage + len("...")} {
		text := (&Cycle{}).Message("", Step{Reason: Reason(strings.Repeat("x", length))})
		if len(text) != want {
			t.Errorf("a sentence of %d characters becomes one of %d, want %d", length, len(text), want)
		}
	}
}

func TestTheMessageNamesTheCause(t *testing.T) {
	cycle := &Cycle{
		Policy: Policy{Retries: 1}, After: Memory{State: PoweringOff, Attempt: 1},
		Facts: Facts{
			Power:    Power{Unmanaged: "the host is detached", Trouble: "power management error: timeout"},
			Mismatch: "BareMetalHost ns/h does not exist", WhyUnseen: "no route", Left: []string{"Pod a/b"}, LeftCount: 3,
			Ahead: []Ahead{{Text: "HostRemediation b is under way"}},
		},
	}
	for reason, want := range map[Reason]string{
		PoweringOffReason:        "(power management error: timeout)",
		WaitingInQueueReason:     "(HostRemediation b is under way; power management error: timeout)",
		HostMismatchReason:       "(BareMetalHost ns/h does not exist; power management error: timeout)",
		HostNotReadyReason:       "(the host is detached; power management error: timeout)",
		ClusterUnreachableReason: "(no route; power management error: timeout)",
		WorkloadStuckReason:      "(Pod a/b and 2 more; power management error: timeout)",
	} {
		step := Step{Do: Wait, Reason: reason}
		if got := cycle.Message("", step); got != "Attempt 1 of 2: "+step.Message()+" "+want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

func TestTheEndNamesWhatLedToIt(t *testing.T) {
	cycle := &Cycle{Policy: Policy{Retries: 1}, After: Memory{State: OwnerRequested, Attempt: 2, Cause: Cause{
		Step: Step{Reason: PowerOffTimedOutReason, Do: Advance, From: PoweringOff, Next: RequestingOwner}, Said: "no route to host",
	}}}
	step := Step{Do: Wait, From: OwnerRequested, Next: OwnerRequested, Reason: OwnerRequestedReason}
	const want = "The owner of the machine was asked to replace it (Attempt 2 of 2: The host was not seen off in time (no route to host))"
	if got := cycle.Message("", step); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	cycle.After.Cause = Cause{Said: "it cannot be read"}
	if got := cycle.Message("", step); got != "The owner of the machine was asked to replace it (it cannot be read)" {
		t.Errorf("of a record that cannot be read it says %q", got)
	}
	cycle.After.State, cycle.After.Cause = Ended, Cause{Step: Step{Reason: EndedReason, From: Ended}}
	if got := cycle.Message("", Step{From: Ended, Reason: EndedReason}); strings.Contains(got, "(") {
		t.Errorf("the end is named twice: %q", got)
	}
}

func TestWhyAMemberOfAControlPlaneWaitsIsSaid(t *testing.T) {
	for objection, want := range map[controlplane.Objection]string{
		{Reason: controlplane.BeingReplaced, Member: "b", By: "r"}: "b is being remediated (r)",
		{Reason: controlplane.MajorityAtRisk, Votes: 1, Total: 3, Needed: 2}: "without it 1 of 3 control-plane nodes are healthy, " +
			"and 2 are needed",
		{Reason: controlplane.NotSeen}: "it is not known yet which members of the control plane are alive",
	} {
		if got := behind(objection); got != want {
			t.Errorf("%+v: %q", objection, got)
		}
	}
}

// Every reason has one rule, and every step has its own message.
func TestEveryStepOfAPowerCycleHasAMessage(t *testing.T) {
	seen := map[Reason]bool{}
	for _, rule := range rules {
		if seen[rule.Reason] {
			t.Errorf("%s has two rules", rule.Reason)
		}
		seen[rule.Reason] = true
	}
	for _, step := range allSteps() {
		text := step.Message()
		if text == "" || text == string(step.Reason) {
			t.Errorf("%+v has no message", step)
		}
		if step.Do == Withdraw && strings.Contains(text, "marked as unhealthy") != (step.From == Succeeded) {
			t.Errorf("%+v says %q", step, text)
		}
	}
}

func TestWhatIsMissingToProveThatAHostIsOffIsSaid(t *testing.T) {
	for want, cycle := range map[string]Cycle{
		"two hosts":                            {Facts: in(PoweringOff, oldBMO, func(f *Facts) { f.Mismatch = "two hosts" })},
		"the host has no condition Manageable": {Facts: in(PoweringOff, oldBMO)},
		"PowerFailure":                         {Facts: in(PoweringOff, contradicted)},
		"its annotation reboot.metal3.io is still there": {Facts: in(PoweringOff)},
	} {
		if got := cycle.unproven(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestARemediationThatIsOverSaysThatItIsPaused(t *testing.T) {
	for do, want := range map[Action]string{
		Release: "The remediation is paused; the host is released (with Cluster c)",
		Unfence: "The remediation is paused; the fence is removed from the node (with Cluster c)",
		Wait:    "The remediation is paused (with Cluster c)",
	} {
		cycle := &Cycle{After: Memory{State: OwnerRequested, Attempt: 1}, Facts: Facts{Pause: "with Cluster c"}}
		step := Step{Do: do, From: OwnerRequested, Next: OwnerRequested, Reason: PausedReason}
		if got := cycle.Message("", step); got != want {
			t.Errorf("%s: %q, want %q", do, got, want)
		}
	}
}

// The cause has to fit into an annotation, and BMO's error may have any length.
func TestWhatIsRememberedOfACauseHasAnEnd(t *testing.T) {
	got := (&Cycle{Facts: Facts{Power: Power{Trouble: strings.Repeat("ü", maxMessage)}}}).CauseDetails(Step{Reason: PowerOffTimedOutReason})
	if len(got) > maxMessage+len("...") || !utf8.ValidString(got) {
		t.Errorf("%d bytes are remembered, valid: %t; want %d at most", len(got), utf8.ValidString(got), maxMessage)
	}
}

// docs/reference/power-cycle-states.md has the transitions of the table.
func TestStatesAreDocumented(t *testing.T) {
	golden.Section(t, "../../docs/reference/power-cycle-states.md", "generated", transitions())
}

// docs/reference/conditions.md has every reason of a power cycle, with all its messages.
func TestReasonsAreDocumented(t *testing.T) {
	var table strings.Builder
	table.WriteString("| reason | message | what to do |\n|---|---|---|\n")
	for _, rule := range rules {
		messages := []string{rule.Message}
		for _, v := range rule.variants {
			messages = append(messages, v.message)
		}
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", rule.Reason, strings.Join(messages, "<br>"), rule.Fix)
	}
	golden.Section(t, "../../docs/reference/conditions.md", "power cycle", table.String())
}

// transitions returns the table in Markdown, with a line for each state and next state. It omits rows that only wait, and has the rows that
// all states share only once.
func transitions() string {
	var b strings.Builder
	b.WriteString("| state | next | when, and what kubemend does |\n|---|---|---|\n")
	for _, s := range order {
		leading := slices.DeleteFunc(pauses(s), func(r row) bool { return r.next == s })
		own := slices.DeleteFunc(slices.Clone(rowsOf[s][len(pauses(s)):]), func(r row) bool {
			return slices.ContainsFunc(endings, func(ending row) bool { return ending.when.name == r.when.name })
		})
		from(&b, s, slices.Concat(leading, own))
	}
	from(&b, "any", slices.Concat(pauses("any"), endings))
	return b.String()
}

// from writes the lines of one state.
func from(b *strings.Builder, state State, rows []row) {
	var nexts []State
	when := map[State][]string{}
	for _, r := range rows {
		if (r.do == Wait || r.do == waitForPerson) && r.next == state {
			continue
		}
		text := r.when.name
		if r.do != Advance {
			text += fmt.Sprintf(" (%s)", r.do)
		}
		if !slices.Contains(nexts, r.next) {
			nexts = append(nexts, r.next)
		}
		when[r.next] = append(when[r.next], text)
	}
	for _, next := range nexts {
		fmt.Fprintf(b, "| %s | %s | %s |\n", state, next, strings.Join(when[next], "; "))
	}
}
