package nodehealthcheck

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
)

func TestAStormThatCoolsSaysSo(t *testing.T) {
	for turn, want := range map[budget.StormTurn]string{
		budget.StormCooling:   "Storm cooldown delay started - waiting before resuming normal remediation",
		budget.StormUnchanged: "Cooldown cleared - storm threshold triggered",
	} {
		var p Plan
		p.Storm.CoolingSince, p.Storm.Turn = epoch, turn
		var got string
		for _, c := range Conditions(new(of()), &p) {
			if c.Type == nhcv1.StormCooldownActiveCondition {
				got = c.Message
			}
		}
		if got != want {
			t.Errorf("turn %d: it says %q, want %q", turn, got, want)
		}
	}
}

// ladder are templates named A, B and so on, with a timeout of five minutes each.
func ladderOf(names ...string) *Facts {
	f := of()
	var templates []Template
	for _, name := range names {
		templates = append(templates, templateOf("", "x", "t", schema.GroupVersionKind{Kind: name}, 0))
	}
	steps(templates...)(&f)
	return &f
}

func TestTheAnswerOfAnEscalation(t *testing.T) {
	two, single := ladderOf("A", "B"), ladderOf("A")
	single.Check.Spec.RemediationTemplate = &corev1.ObjectReference{}
	expires := time.Date(2026, 1, 1, 12, 4, 0, 0, time.UTC)
	const a, b = "A from template x/t", "B from template x/t"
	cases := map[string]struct {
		facts  *Facts
		answer Answer
		want   string
	}{
		"not asked":         {two, Answer{}, ""},
		"the first":         {two, answerOf(escalation.Decision{Do: escalation.Start, Reason: escalation.FirstStep}), a + " is the first step"},
		"none":              {ladderOf(), answerOf(escalation.Decision{Do: escalation.Exhausted, Reason: escalation.NoTemplateLeft}), "The check names no template"},
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
			two, Answer{Decision: escalation.Decision{Do: escalation.Start, Step: 1, Reason: escalation.FirstStep}, PassedOver: true},
			a + " cannot be about the node, " + b + " is next",
		},
		"none that is left can": {
			two, Answer{Decision: escalation.Decision{Do: escalation.Exhausted, Step: 1, Reason: escalation.NoTemplateLeft}, PassedOver: true, From: 1},
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

func answerOf(d escalation.Decision) Answer { return Answer{Decision: d} }
