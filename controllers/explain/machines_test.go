package explain

import (
	"slices"
	"strings"
	"testing"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

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

func TestEveryBlockerOfANodeIsSaid(t *testing.T) {
	f, p, of := &nodes.Facts{Check: "nhc"}, &nodes.Plan{}, []string{"x", "y", "z"}
	for _, name := range constantsOf(t, "nodes/plan.go", "Reason") {
		reason := nodes.Reason(name)
		is := NodeBlocker(f, p, "n", nodes.Blocker{Reason: reason, Args: of})
		if said := is.Text != ""; said == (reason.Silent() || reason == nodes.NoneFollows) {
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
		if len(found) != 1 || !strings.Contains(found[0].Text, tc.want) || f.Text() != "Node failed to report startup in 1m0s" {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
