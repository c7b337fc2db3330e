package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

func checkIn(mode machines.Mode) *machines.Facts {
	return &machines.Facts{Mode: mode, About: machines.About{Namespace: "ns", Name: "check", Cluster: "c1"}}
}

// One without its sentence would be a panic of kubectl mend explain.
func TestEveryBlockerOfAMachineHasItsSentence(t *testing.T) {
	for _, reason := range constantsOf(t, "machines/plan.go", "Reason") {
		is := machines.Reason(reason)
		if said := rendered[is] != nil; said == (is == machines.NotUnhealthy) {
			t.Errorf("the blocker %s has a sentence: %t", reason, said)
		}
	}
}

func TestAPersonLearnsHowACheckComesToBeActedOn(t *testing.T) {
	annotated := func(f *machines.Facts) { f.About.PausedBy = ptr.To("maintenance") }
	clusterPaused := func(f *machines.Facts) { f.About.ClusterPaused = true }
	for name, tc := range map[string]struct {
		mode  machines.Mode
		given []func(*machines.Facts)
		want  string
	}{
		"an active check needs nothing, whatever its annotation was": {machines.Active, []func(*machines.Facts){annotated, clusterPaused}, ""},
		"the annotation of a paused check must go": {machines.Paused, []func(*machines.Facts){annotated},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check"},
		"a paused Cluster must go on": {machines.Paused, []func(*machines.Facts){clusterPaused}, "When it is to go on, set spec.paused of Cluster c1 to false"},
		"of two pauses both must end": {machines.Paused, []func(*machines.Facts){annotated, clusterPaused},
			"When it is to go on, remove the annotation cluster.x-k8s.io/paused from the check, and set spec.paused of Cluster c1 to false"},
		"an unclaimed check can be claimed": {machines.Observed, nil, "If kubemend is to act on it, claim the check: kubectl mend claim mhc/check -n ns"},
	} {
		t.Run(name, func(t *testing.T) {
			f := checkIn(tc.mode)
			for _, change := range tc.given {
				change(f)
			}
			if got := Enable(f); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestAClaimedCheckWithoutTheLabelOfTheManagerHasNoController(t *testing.T) {
	f := checkIn(machines.Ignored)
	f.About.WatchFilter = "blue"
	if got, because := MachineMode(f); got != Core || because != "The label cluster.x-k8s.io/watch-filter of the check, or of "+
		"its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for" {
		t.Errorf("unclaimed, got %s, because %q", got, because)
	}
	f.Claimed = true
	want := "The check is claimed for kubemend, so Cluster API core leaves it alone, and the label cluster.x-k8s.io/watch-filter of the check, " +
		"or of its Cluster if the check has none, is not blue, which the manager's flag --watch-filter asks for"
	if got, because := MachineMode(f); got != None || because != want {
		t.Errorf("claimed, got %s, because %q", got, because)
	}
}

func TestTheModeNamesTheControllerThatActs(t *testing.T) {
	for name, tc := range map[string]struct {
		mode    machines.Mode
		want    Mode
		because string
	}{
		"kubemend acts on a check that it acts on": {machines.Active, Acting, ""},
		"Cluster API acts on an ignored check": {machines.Ignored, Core,
			"The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: Cluster API core acts on it"},
		"Cluster API acts on an observed check": {machines.Observed, Observing,
			"The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges"},
		"without a Cluster no controller acts":      {machines.NoCluster, None, "There is no Cluster c1 in namespace ns"},
		"nor with a selector that cannot be parsed": {machines.BadSelector, None, "The spec.selector of the check cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, because := MachineMode(checkIn(tc.mode)); got != tc.want || because != tc.because {
				t.Errorf("got %s, because %q; want %s, because %q", got, because, tc.want, tc.because)
			}
		})
	}
}

// Users and other tools read these texts in conditions; they are Cluster API's to the letter.
func TestTheMessageOfAFailedHealthCheck(t *testing.T) {
	type findings []health.Finding
	condition := func(r health.Reason, source health.Source, is string) health.Finding {
		return health.Finding{Reason: r, Limit: time.Minute, Signal: health.Signal{Source: source, Type: is, Status: "False", Reason: "Bad"}}
	}
	m, mText := condition(health.MachineCondition, health.OnMachine, "M"), "Condition M on Machine is reporting status False with reason Bad for more than 1m0s"
	n, nText := condition(health.NodeCondition, health.OnNode, "N"), "Condition N on Node is reporting status False with reason Bad for more than 1m0s"
	gone := health.Finding{Reason: health.NodeDeleted, Node: "a"}
	for name, tc := range map[string]struct {
		due              findings
		message, v1beta1 string
	}{
		"a mark by hand is named alone": {
			findings{{Reason: health.MarkedByHand}, n},
			"Health check failed: marked for remediation via cluster.x-k8s.io/remediate-machine annotation", "Marked for remediation via remediate-machine annotation",
		},
		"machine conditions come before those of the node": {
			findings{m, n}, "Health check failed:\n  * " + mText + "\n  * " + nText, mText + "; " + nText,
		},
		"a deleted node has no message in v1beta1": {
			findings{gone}, "Health check failed:\n  * Node a has been deleted", "",
		},
		"unless there is a machine condition too": {
			findings{m, gone},
			"Health check failed:\n  * " + mText + "\n  * Node a has been deleted", mText + "; Node a has been deleted",
		},
		"a late node": {
			findings{{Reason: health.NodeStartup, Limit: 10 * time.Minute}},
			"Health check failed:\n  * Node failed to report startup in 10m0s", "Node failed to report startup in 10m0s",
		},
		"an unhealthy node": {findings{n, n}, "Health check failed:\n  * " + nText + "\n  * " + nText, nText + "; " + nText},
		"a final failure": {
			findings{{Reason: health.MachineFailed, Failure: "FailureReason: CreateError"}},
			"Health check failed:\n  * FailureReason: CreateError", "FailureReason: CreateError",
		},
		"nothing was found": {},
	} {
		if message, v1beta1 := HealthCheckFailed(tc.due); message != tc.message || v1beta1 != tc.v1beta1 {
			t.Errorf("%s: got %q and %q, want %q and %q", name, message, v1beta1, tc.message, tc.v1beta1)
		}
	}
}

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestAStormThatCoolsSaysSo(t *testing.T) {
	for turn, want := range map[budget.StormTurn]string{
		budget.StormCooling:   "Storm cooldown delay started - waiting before resuming normal remediation",
		budget.StormUnchanged: "Cooldown cleared - storm threshold triggered",
	} {
		var p nodes.Plan
		p.Storm.CoolingSince, p.Storm.Turn = noon, turn
		var got string
		for _, c := range NodeConditions(&nodes.Facts{Now: noon}, &p) {
			if c.Type == nhcv1.StormCooldownActiveCondition {
				got = c.Message
			}
		}
		if got != want {
			t.Errorf("turn %d: it says %q, want %q", turn, got, want)
		}
	}
}

// Every blocker has a sentence, if it does not go without saying.
func TestEveryBlockerOfANodeIsSaid(t *testing.T) {
	of := []string{"x", "y", "z"}
	f, p := &nodes.Facts{Check: "nhc"}, &nodes.Plan{}
	for _, reason := range nodes.Reasons() {
		is := NodeBlocker(f, p, "n", nodes.Blocker{Reason: reason, Args: of})
		if said := is.Text != ""; said == reason.Silent() {
			t.Errorf("%s says %q, and it is silent: %t", reason, is.Text, reason.Silent())
		}
		if slices.ContainsFunc([]string{is.Text, is.Fix, is.EndsWhen}, func(text string) bool { return text != "" && text[len(text)-1] == '.' }) {
			t.Errorf("%s ends with a full stop: %+v", reason, is)
		}
	}
}

// steps are templates named A, B and so on, with a timeout of five minutes each.
func steps(names ...string) *nodes.Facts {
	f := &nodes.Facts{}
	for _, name := range names {
		f.Templates = append(f.Templates, nodes.Template{Ref: nodes.Ref{Namespace: "x", Name: "t"}, RequestKind: name, Timeout: 5 * time.Minute})
	}
	return f
}

func TestTheAnswerOfAnEscalation(t *testing.T) {
	two, single := steps("A", "B"), steps("A")
	single.Single = true
	expires := time.Date(2026, 1, 1, 12, 4, 0, 0, time.UTC)
	const a, b = "A from template x/t", "B from template x/t"
	cases := map[string]struct {
		facts  *nodes.Facts
		answer nodes.Answer
		want   string
	}{
		"not asked":         {two, nodes.Answer{}, ""},
		"the first":         {two, answerOf(escalation.Decision{Do: escalation.Start, Reason: escalation.FirstStep}), a + " is the first step"},
		"none":              {steps(), answerOf(escalation.Decision{Do: escalation.Exhausted, Reason: escalation.NoTemplateLeft}), "The check names no template"},
		"at work":           {two, answerOf(escalation.Decision{Reason: escalation.InProgress, Expires: expires}), a + " is waited for until 2026-01-01T12:04:00Z"},
		"at work, no end":   {two, answerOf(escalation.Decision{Reason: escalation.InProgress}), a + " is waited for"},
		"succeeded":         {two, answerOf(escalation.Decision{Reason: escalation.AwaitingNode, Expires: expires}), a + " says that it has succeeded, the node is waited for until 2026-01-01T12:04:00Z"},
		"too late":          {two, answerOf(escalation.Decision{Do: escalation.GiveUp, Reason: escalation.TimedOut}), a + " did not bring the node back within 5m0s"},
		"failed":            {two, answerOf(escalation.Decision{Do: escalation.GiveUp, Reason: escalation.Failed}), a + " says that it has failed"},
		"stopped":           {two, answerOf(escalation.Decision{Do: escalation.GiveUp, Reason: escalation.Stopped}), a + " stopped 30s ago or longer and does not say whether it succeeded"},
		"not notified":      {two, answerOf(escalation.Decision{Do: escalation.GiveUp, Reason: escalation.NotNotified}), a + " was given up, and does not know of it"},
		"the next":          {two, answerOf(escalation.Decision{Do: escalation.Start, Step: 1, Reason: escalation.NextStep}), a + " was given up, " + b + " is next"},
		"none left":         {two, answerOf(escalation.Decision{Do: escalation.Exhausted, Step: 1, Reason: escalation.NoTemplateLeft}), b + " was given up, and no template is left to try"},
		"being deleted":     {two, answerOf(escalation.Decision{Reason: escalation.AwaitingDeletion}), "The request of " + a + " is being deleted, it is made again when it is gone"},
		"deleted":           {two, answerOf(escalation.Decision{Do: escalation.Start, Reason: escalation.Vanished}), "The request of " + a + " was deleted, it is made again"},
		"alone":             {single, answerOf(escalation.Decision{Reason: escalation.InProgress}), a + " is waited for, without end"},
		"alone, succeeded":  {single, answerOf(escalation.Decision{Reason: escalation.AwaitingNode}), a + " says that it has succeeded, the node is waited for"},
		"alone and failed":  {single, answerOf(escalation.Decision{Reason: escalation.Failed}), a + " says that it has failed, and the check names no other template"},
		"alone and stopped": {single, answerOf(escalation.Decision{Reason: escalation.Stopped}), a + " has stopped, and the check names no other template"},
		"alone and told to stop, as by weakness 13": {
			single, answerOf(escalation.Decision{Reason: escalation.ToldToStop}),
			a + " was notified to stop, though not by this check; delete its request to have it tried again",
		},
		"a step that cannot be about the node": {
			two, nodes.Answer{Decision: escalation.Decision{Do: escalation.Start, Step: 1, Reason: escalation.FirstStep}, PassedOver: true},
			a + " cannot be about the node, " + b + " is next",
		},
		"none that is left can": {
			two, nodes.Answer{Decision: escalation.Decision{Do: escalation.Exhausted, Step: 1, Reason: escalation.NoTemplateLeft}, PassedOver: true, From: 1},
			a + " was given up, and none of the templates that are left can be about the node",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := answerText(tc.facts, tc.answer); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func answerOf(d escalation.Decision) nodes.Answer { return nodes.Answer{Decision: d} }

// The page of a machine whose node does not appear names the one that is likely its own.
func TestANodeThatIsNotTheMachinesIsNamedAsTheCause(t *testing.T) {
	for name, tc := range map[string]struct {
		given health.Other
		want  string
	}{
		"another provider ID": {health.Other{Name: "n", Wanted: "p://a"}, `Node n has the provider ID "", and Cluster API looks for "p://a"`},
		"several of it":       {health.Other{Name: "n", ProviderID: "P://a", Wanted: "p://a"}, `Node n is one of several of provider ID "p://a"`},
	} {
		f := health.Finding{Reason: health.NodeStartup, Limit: time.Minute, Other: tc.given}
		found := Findings(health.Verdict{Findings: []health.Finding{f}}, time.Time{}.Add(time.Hour))
		if len(found) != 1 || !strings.Contains(found[0].Text, tc.want) || findingText(f) != "Node failed to report startup in 1m0s" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
