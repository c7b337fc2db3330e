package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/nodes"
)

// escalationSentences say what the escalation decides, and why. {step} is the template concerned, {before} the one before it, {until} when its time
// is over, {timeout} how long that is.
var escalationSentences = map[string]string{
	escalation.FirstStep:        "{step} is the first step",
	escalation.NextStep:         "{before} was given up, {step} is next",
	escalation.Vanished:         "The request of {step} was deleted, it is made again",
	escalation.InProgress:       "{step} is waited for{until}",
	escalation.AwaitingNode:     "{step} says that it has succeeded, the node is waited for{until}",
	escalation.AwaitingDeletion: "The request of {step} is being deleted, it is made again when it is gone",
	escalation.ToldToStop:       "{step} was notified to stop, though not by this check; delete its request to have it tried again",
	escalation.Failed:           "{step} says that it has failed",
	escalation.Stopped:          fmt.Sprintf("{step} stopped %s ago or longer and does not say whether it succeeded", escalation.StoppedFor),
	escalation.TimedOut:         "{step} did not bring the node back within {timeout}",
	escalation.NotNotified:      "{step} was given up, and does not know of it",
	escalation.NoTemplateLeft:   "{step} was given up, and no template is left to try",
}

// nothingFollows says what a remediator came to where the check names no other template.
var nothingFollows = map[string]string{
	escalation.Failed:     "{step} says that it has failed, and the check names no other template",
	escalation.Stopped:    "{step} has stopped, and the check names no other template",
	escalation.InProgress: "{step} is waited for, without end",
}

// EscalationText says what the escalation decides, and why; nothing if it was not asked.
func EscalationText(f *nodes.Facts, d escalation.Decision) string {
	sentence, decided := escalationSentences[d.Reason]
	switch {
	case !decided:
		return ""
	case len(f.Templates) == 0:
		return "The check names no template"
	}
	if alone, is := nothingFollows[d.Reason]; is && d.Do == escalation.Wait && f.Single {
		sentence = alone
	}
	template, until := f.Templates[d.Step], ""
	if !d.Expires.IsZero() {
		until = " until " + d.Expires.UTC().Format(time.RFC3339)
	}
	return strings.NewReplacer("{step}", template.String(), "{before}", f.Templates[max(d.Step-1, 0)].String(), "{until}", until,
		"{timeout}", template.Timeout.String()).Replace(sentence)
}

// answerText says the same of an answer, which may have passed over a step that cannot be about the node.
func answerText(f *nodes.Facts, a nodes.Answer) string {
	switch {
	case !a.PassedOver:
		return EscalationText(f, a.Decision)
	case a.Do == escalation.Exhausted:
		return f.Templates[a.From-1].String() + " was given up, and none of the templates that are left can be about the node"
	}
	return fmt.Sprintf("%s cannot be about the node, %s is next", f.Templates[a.From], f.Templates[a.Step])
}
