package explain

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
)

func TestTheFenceOfANodeHasAnAuthor(t *testing.T) {
	for name, tc := range map[string]struct {
		node NodeDetails
		want string
	}{
		"this remediation":    {NodeDetails{Ours: true, Fence: "me"}, "of this remediation"},
		"another remediation": {NodeDetails{Fence: "another"}, "of remediation another"},
		"an unknown one":      {NodeDetails{}, "put there by another client"},
	} {
		if got := tc.node.whoseFence(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// A node that cannot be seen may still have pods.
func TestOnlyANodeThatWasSeenIsDrained(t *testing.T) {
	const drained, absent = "nothing is left on node n that would have to move", "node n does not exist"
	for name, tc := range map[string]struct {
		node NodeDetails
		want []string
	}{
		"a node that is gone is drained":        {NodeDetails{Answered: true, Drained: true}, []string{absent, drained}},
		"a node that is there may be":           {NodeDetails{Answered: true, Looked: true, Drained: true}, []string{drained}},
		"a node that was not seen never is":     {NodeDetails{Drained: true, Unseen: "no route"}, nil},
		"a node that still has pods is not yet": {NodeDetails{Answered: true, Looked: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tc.node.Name = "n"
			var e evidence
			e.ofNode(&PowerCycle{Node: tc.node})
			var got []string
			for _, line := range e {
				if line == drained || line == absent {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q, of %q", got, tc.want, e)
			}
		})
	}
}

func TestAMessageIsCutWhereTheFieldEnds(t *testing.T) {
	for length, want := range map[int]int{maxMessage - 1: maxMessage - 1, maxMessage: maxMessage, maxMessage + 1: maxMessage + len("...")} {
		text := (&PowerCycle{}).Message("", powercycle.Step{Reason: powercycle.Reason(strings.Repeat("x", length))})
		if len(text) != want {
			t.Errorf("a sentence of %d characters becomes one of %d, want %d", length, len(text), want)
		}
	}
}

func TestTheMessageNamesTheCause(t *testing.T) {
	p := &PowerCycle{
		Policy: powercycle.Policy{Retries: 1}, After: powercycle.Memory{State: powercycle.PoweringOff, Attempt: 1},
		Host:  HostDetails{Mismatch: "BareMetalHost ns/h does not exist", Unmanaged: "the host is detached", Trouble: "power management error: timeout"},
		Node:  NodeDetails{Unseen: "no route", Left: []string{"Pod a/b"}, Count: 3},
		Ahead: []powercycle.Ahead{{Reason: powercycle.AnotherOfMachine, Name: "HostRemediation b"}},
	}
	for reason, want := range map[powercycle.Reason]string{
		powercycle.PoweringOffReason:        "(power management error: timeout)",
		powercycle.WaitingInQueueReason:     "(HostRemediation b is under way; power management error: timeout)",
		powercycle.HostMismatchReason:       "(BareMetalHost ns/h does not exist; power management error: timeout)",
		powercycle.HostNotReadyReason:       "(the host is detached; power management error: timeout)",
		powercycle.ClusterUnreachableReason: "(no route; power management error: timeout)",
		powercycle.WorkloadStuckReason:      "(Pod a/b and 2 more; power management error: timeout)",
	} {
		step := powercycle.Step{Do: powercycle.Wait, Reason: reason}
		if got := p.Message("", step); got != "Attempt 1 of 2: "+HostStep(step)+" "+want {
			t.Errorf("%s: %q, want %q", reason, got, want)
		}
	}
}

func TestTheEndNamesWhatLedToIt(t *testing.T) {
	p := &PowerCycle{Policy: powercycle.Policy{Retries: 1}, After: powercycle.Memory{State: powercycle.OwnerRequested, Attempt: 2, Cause: powercycle.Cause{
		Reason: powercycle.PowerOffTimedOutReason, Do: powercycle.Advance, From: powercycle.PoweringOff, Next: powercycle.RequestingOwner, Said: "no route to host",
	}}}
	step := powercycle.Step{Do: powercycle.Wait, From: powercycle.OwnerRequested, Next: powercycle.OwnerRequested, Reason: powercycle.OwnerRequestedReason}
	const want = "The owner of the machine was asked to replace it (Attempt 2 of 2: The host was not seen off in time (no route to host))"
	if got := p.Message("", step); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	p.After.Cause = powercycle.Cause{Said: "what an older version stored"}
	if got := p.Message("", step); got != "The owner of the machine was asked to replace it (what an older version stored)" {
		t.Errorf("of a cause that was stored as a sentence it says %q", got)
	}
	p.After.State, p.After.Cause = powercycle.Ended, powercycle.Cause{Reason: powercycle.EndedReason, From: powercycle.Ended}
	if got := p.Message("", powercycle.Step{From: powercycle.Ended, Reason: powercycle.EndedReason}); strings.Contains(got, "(") {
		t.Errorf("the end is named twice: %q", got)
	}
}

func TestWhatIsAheadInTheQueueIsNamed(t *testing.T) {
	forbids := func(o controlplane.Objection) powercycle.Ahead {
		return powercycle.Ahead{Reason: powercycle.PlaneForbids, Objection: o}
	}
	for _, tc := range []struct {
		ahead  powercycle.Ahead
		want   string
		object string
	}{
		{powercycle.Ahead{Reason: powercycle.KeptOffForAnother, Name: "u"}, "the host is kept powered off for remediation u", "BareMetalHost metal/h"},
		{powercycle.Ahead{Reason: powercycle.AnotherOfMachine, Name: "HostRemediation b"}, "HostRemediation b is under way", "HostRemediation ns/b"},
		{forbids(controlplane.Objection{Reason: controlplane.NotFirst, Member: "m1"}), "m1 is ahead in the queue", "Machine ns/m1"},
		{forbids(controlplane.Objection{Reason: controlplane.BeingRemediated, Member: "b", By: "Reboot ns/b"}), "b is being remediated (Reboot ns/b)", "Machine ns/b"},
		{forbids(controlplane.Objection{Reason: controlplane.BeingReplaced, Member: "b", By: "Machine ns/b"}), "b is being remediated (Machine ns/b)", "Machine ns/b"},
		{
			forbids(controlplane.Objection{Reason: controlplane.MajorityAtRisk, Votes: 1, Total: 3, Needed: 2}),
			"without it 1 of 3 control-plane nodes are healthy, and 2 are needed", "",
		},
		{forbids(controlplane.Objection{Reason: controlplane.NotSeen}), "it is not known yet which members of the control plane are alive", ""},
		{powercycle.Ahead{Reason: powercycle.ClaimedByAnother, Name: "b"}, "b is ahead in the queue", ""},
		{powercycle.Ahead{Reason: powercycle.ManagerOnHost}, "no other replica is ready elsewhere, or it is about to take over", "BareMetalHost metal/h"},
		{powercycle.Ahead{Reason: powercycle.QueueUnknown, Name: "no answer in time"}, "no answer in time", ""},
	} {
		p := PowerCycle{Namespace: "ns", Host: HostDetails{Known: true, Namespace: "metal", Name: "h"}, Ahead: []powercycle.Ahead{tc.ahead}}
		if got := p.object(powercycle.WaitingInQueueReason); got != (Ref{}) && got.String() != tc.object || got == (Ref{}) && tc.object != "" {
			t.Errorf("%s: the object is %q, want %q", tc.ahead.Reason, got, tc.object)
		}
		if got := Queue([]powercycle.Ahead{tc.ahead}); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.ahead.Reason, got, tc.want)
		}
	}
}

func TestEveryStepOfAPowerCycleHasASentence(t *testing.T) {
	for _, step := range powercycle.Steps() {
		if text := HostStep(step); text == "" || text == string(step.Reason) {
			t.Errorf("%+v has no sentence", step)
		}
	}
}

func TestARemediationThatIsOverSaysThatItIsPaused(t *testing.T) {
	ended := powercycle.Memory{State: powercycle.OwnerRequested, Attempt: 1}
	for do, want := range map[powercycle.Action]string{
		powercycle.Release: "The remediation is paused; the host is released (with Cluster c)",
		powercycle.Unfence: "The remediation is paused; the fence is removed from the node (with Cluster c)",
		powercycle.Wait:    "The remediation is paused (with Cluster c)",
	} {
		p := &PowerCycle{After: ended, Pause: PausedWithCluster, Cluster: "c"}
		step := powercycle.Step{Do: do, From: powercycle.OwnerRequested, Next: powercycle.OwnerRequested, Reason: powercycle.PausedReason}
		if got := p.Message("", step); got != want {
			t.Errorf("%s: %q, want %q", do, got, want)
		}
	}
}

// What is remembered has to fit into an annotation, and the error of a host is as long as its operator likes.
func TestWhatIsRememberedOfACauseHasAnEnd(t *testing.T) {
	p := &PowerCycle{Host: HostDetails{Trouble: strings.Repeat("ü", maxMessage)}}
	got := p.CauseDetails(powercycle.Step{Reason: powercycle.PowerOffTimedOutReason})
	if len(got) > maxMessage+len("...") || !utf8.ValidString(got) {
		t.Errorf("%d bytes are remembered, valid: %t; want %d at most", len(got), utf8.ValidString(got), maxMessage)
	}
}

var (
	advice = regexp.MustCompile("^- ((?:`[A-Za-z]+`(?:, )?)+): (.*)$")
	quoted = regexp.MustCompile("`([A-Za-z]+)`")
)

// documented is what docs/conditions.md says is to be done about the reasons of remediations of hosts: items of a list, which may go on
// in the next lines.
func documented(t *testing.T) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "### What to do about a reason\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := map[string]string{}
	for line := range strings.Lines(strings.ReplaceAll(section, "\n  ", " ")) {
		item := advice.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if item == nil {
			continue
		}
		for _, reason := range quoted.FindAllStringSubmatch(item[1], -1) {
			all[reason[1]] = strings.ReplaceAll(item[2], "`", "")
		}
	}
	return all
}

func TestWhatAPersonHasToDoIsDocumented(t *testing.T) {
	is := map[string]string{}
	for reason, text := range persons {
		is[string(reason)] = text
	}
	if diff := cmp.Diff(documented(t), is); diff != "" {
		t.Errorf("docs/conditions.md (-) and the program (+) tell people to do other things:\n%s", diff)
	}
}

func TestAPersonLearnsWhatIsLeftToDoAfterTheEnd(t *testing.T) {
	unfenced := powercycle.Facts{
		Memory: powercycle.Memory{State: powercycle.Failed, Fencing: true}, Node: powercycle.NodeUnseen, Machine: powercycle.MachinePresent,
	}
	with := func(change func(*powercycle.Facts)) powercycle.Facts {
		f := unfenced
		change(&f)
		return f
	}
	const h, none = true, false
	switchedOff := powercycle.Cause{Reason: powercycle.HostSwitchedOffReason}
	for name, tc := range map[string]struct {
		facts powercycle.Facts
		host  bool
		want  string
	}{
		"nothing before the end":                  {with(func(f *powercycle.Facts) { f.State = powercycle.Booting }), h, ""},
		"a node that may be fenced and is unseen": {unfenced, h, persons[powercycle.UnfenceTimedOutReason]},
		"not one that can be seen":                {with(func(f *powercycle.Facts) { f.Node = powercycle.NodePresent }), h, ""},
		"not that of a machine that is gone":      {with(func(f *powercycle.Facts) { f.Machine = powercycle.MachineGone }), h, ""},
		"a host of a machine to be replaced": {
			powercycle.Facts{Memory: powercycle.Memory{State: powercycle.OwnerRequested}}, h, persons[powercycle.OwnerRequestedReason]},
		"nothing if that has no host": {powercycle.Facts{Memory: powercycle.Memory{State: powercycle.OwnerRequested}}, none, ""},
		"the cause of a failure, with a host or without": {
			powercycle.Facts{Memory: powercycle.Memory{State: powercycle.Failed, Cause: switchedOff}}, none,
			persons[powercycle.HostSwitchedOffReason]},
	} {
		p := &PowerCycle{Facts: tc.facts, Host: HostDetails{Known: tc.host}}
		if got := p.afterwards(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if persons[powercycle.HostSwitchedOffReason] == "" {
		t.Error("a person has nothing to do about a host that is switched off")
	}
}
