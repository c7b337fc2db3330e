package powercycle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cycle is what the messages of a power cycle are made of: what a step is decided on, and the texts that they quote. A text is empty where
// nothing is known.
type Cycle struct {
	Facts  Facts
	Policy Policy
	// After is what the remediation remembers after the step.
	After Memory

	// Pause is what pauses the remediation, as a clause.
	Pause string
	// Ahead is what is ahead in the queue.
	Ahead []Ahead
	// Undoers are the clients that may have undone what was done.
	Undoers string
	// Mismatch is why the host is not the machine's.
	Mismatch string
	// Unseen is why the node cannot be seen, Twin what is known of another node of the machine's provider ID, IdleVolumes what is attached
	// to the node that nothing waits for.
	Unseen, Twin, IdleVolumes string
	// Left are the first of the objects that are left on the node, LeftCount is how many there are.
	Left      []string
	LeftCount int
}

// endReasons are the reasons whose messages say how a remediation has ended, by its state.
var endReasons = map[State]Reason{
	Succeeded: MachineHealthyReason, OwnerRequested: OwnerRequestedReason, Failed: FailedReason, Ended: EndedReason,
	Stopped: TimedOutByCheckReason,
}

// Message is what the step does, or waits for. Of a remediation that has ended it says how, and then what is still done.
func (s Step) Message() string {
	if !s.From.Final() || s.Reason == UnfenceTimedOutReason || s.Reason == PausedReason {
		return s.ownMessage()
	}
	ended := Step{Reason: endReasons[s.From], From: s.From}.ownMessage()
	switch {
	case s.Do == Withdraw && s.From == Succeeded:
		return "The machine is healthy after all; its host is no longer marked as unhealthy"
	case s.Do == Withdraw:
		return "The machine is healthy after all; its owner is no longer asked to replace it"
	case s.Do == Release:
		return ended + "; the host is released"
	case s.Do == Unfence:
		return ended + "; the fence is removed from the node"
	case s.Detail == FenceUnseen:
		return ended + "; waiting for the node, to remove the fence"
	case s.Detail == WorkloadLeaving:
		return ended + "; waiting for the workload to leave the node, to remove the fence"
	}
	return ended
}

func (s Step) ownMessage() string {
	rule := RuleOf(s.Reason)
	if i := slices.IndexFunc(rule.variants, func(v variant) bool { return v.fits(s) }); i >= 0 {
		return rule.variants[i].message
	}
	return rule.Message
}

// maxMessage is how long a message may be; the field holds more, and an error may be added.
const maxMessage = 4096

// Message is what a condition or event says of a step, after what led to it: the attempt, then the sentence.
func (c *Cycle) Message(before string, step Step) string {
	return cut(c.attempt(c.After.State) + JoinSentences(before, c.Sentence(step)))
}

// cut is text as far as a message may be long.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "..."
}

func (c *Cycle) attempt(state State) string {
	if c.After.Attempt == 0 || state.Final() {
		return ""
	}
	return fmt.Sprintf("Attempt %d of %d: ", c.After.Attempt, c.Policy.Attempts())
}

// JoinSentences is one sentence of two, of which either may be empty.
func JoinSentences(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + lowered(second)
}

// lowered is a sentence as part of another one.
func lowered(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// Sentence is the message of a step with what is known of its cause, whichever attempt it is part of.
func (c *Cycle) Sentence(step Step) string {
	text, detail, cause, trouble := step.Message(), c.detail(step.Reason), "", c.Facts.Trouble
	if c.After.State.Final() {
		cause = c.cause(text)
	}
	if step.Reason == FencingImpossibleReason { // its detail has the error if that is what speaks against a receipt
		trouble = ""
	}
	return inBrackets(text, joined(detail, cause, trouble))
}

// CauseDetails is what is known of a cause besides the message of its step, to be remembered with it.
func (c *Cycle) CauseDetails(step Step) string {
	return cut(joined(c.detail(step.Reason), c.Facts.Trouble))
}

func (c *Cycle) detail(reason Reason) string {
	if rule := RuleOf(reason); rule.detail != nil {
		return rule.detail(c)
	}
	return ""
}

// cause is the sentence of what led to the end; empty if the message says that already.
func (c *Cycle) cause(message string) string {
	cause := c.After.Cause
	if cause.Reason == "" {
		return cause.Said
	}
	text := cause.Message()
	if strings.HasPrefix(message, text) {
		return ""
	}
	return c.attempt(cause.Next) + inBrackets(text, cause.Said)
}

func inBrackets(text, detail string) string {
	if detail == "" {
		return text
	}
	return text + " (" + detail + ")"
}

// joined are those of the texts that are not empty.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// unproven says what is missing to prove that the host is off.
func (c *Cycle) unproven() string {
	switch {
	case c.Mismatch != "":
		return c.Mismatch
	case !c.Facts.Provable:
		return "the host has no condition Manageable, which the Bare Metal Operator writes since v0.13: " +
			"before that, only that it switches the host off is proof"
	case c.Facts.Doubt != "":
		return c.Facts.Doubt
	}
	return "its annotation reboot.metal3.io is still there"
}

// LeftOnNode says what is left on the node.
func (c *Cycle) LeftOnNode() string {
	text := strings.Join(c.Left, ", ")
	if more := c.LeftCount - len(c.Left); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// queue says what the remediation waits for in its queue.
func (c *Cycle) queue() string {
	texts := make([]string, 0, len(c.Ahead))
	for _, ahead := range c.Ahead {
		texts = append(texts, ahead.Text)
	}
	return strings.Join(texts, "; ")
}

// loop is how often the host was power-cycled and failed again, and when the next power cycle may begin; empty before that is known.
func (c *Cycle) loop() string {
	if c.Facts.Loop.Times == 0 {
		return ""
	}
	return fmt.Sprintf("%d since %s, the next one at %s", c.Facts.Loop.Times, c.Facts.Loop.Since.UTC().Format(time.RFC3339),
		c.Facts.LoopUntil.UTC().Format(time.RFC3339))
}

// Reason is why a step is taken, in one word. It is the reason of conditions and events; docs/reference/conditions.md explains each.
type Reason string

// Detail tells steps of one reason apart that mean something else. Most have none.
type Detail string

// The details of steps, which select the variants of the messages of rules.
const (
	// AsksPerson means that a person has to do something before the remediation goes on.
	AsksPerson          Detail = "AsksPerson"
	FenceUnseen         Detail = "FenceUnseen" // the node, which may be fenced, cannot be seen
	FencedBefore        Detail = "FencedBefore"
	HostRegistered      Detail = "HostRegistered" // anew, under the name of the host that was asked
	KeptOffAlready      Detail = "KeptOffAlready"
	NoReceipts          Detail = "NoReceipts"
	NodeBooted          Detail = "NodeBooted"
	NodeIsGone          Detail = "NodeIsGone"
	NodeTwins           Detail = "NodeTwins"
	ProofWrong          Detail = "ProofWrong"
	ReceiptContradicted Detail = "ReceiptContradicted"
	ReceiptLate         Detail = "ReceiptLate"
	RecordsUnread       Detail = "RecordsUnread" // of the host, since the manager has just started
	StatusOutdated      Detail = "StatusOutdated"
	VolumesIdle         Detail = "VolumesIdle"
	WorkloadLeaving     Detail = "WorkloadLeaving" // the node is fenced until then
)

// Rule is what is said and done about one reason: conditions, events, records and `kubectl mend` take their words from here.
type Rule struct {
	Reason Reason
	// Message is what a step with the reason does, or waits for. The first of variants that fits the step is said in its place.
	Message  string
	variants []variant
	// detail is what else is known about the cause, in brackets behind the message; nil if there is nothing.
	detail func(*Cycle) string
	// Fix is what a person has to do about it, or about a remediation that ended for it; empty if there is nothing to do.
	Fix string
	// Blocks says that a step waits for something else than the effect of what was asked of host, workload or node.
	Blocks bool
	// Passes says that a remediation which waits for it has no place under a limit of its check: it may take days, and is nobody's fault.
	Passes bool
	// OnHost and OnMachine say that an event is sent about these as well, Warns that it is a warning whatever the step does.
	OnHost, OnMachine, Warns bool
}

// Cause is the step that led to the end of a remediation, or to the request for owner remediation, as far as it has to be explained later.
type Cause struct {
	Step `json:",inline"`
	// Said is what was known about it then besides, which nothing tells later; empty if that is nothing.
	Said string `json:"said,omitempty"`
}

// variant is a message for the steps of a reason that have this detail, this action, or are taken in one of these states.
type variant struct {
	detail  Detail
	do      Action
	from    []State
	message string
}

func (v variant) fits(step Step) bool {
	return (v.detail == "" || v.detail == step.Detail) && (v.do == "" || v.do == step.Do) &&
		(v.from == nil || slices.Contains(v.from, step.From))
}

// RuleOf returns the rule of a reason. A reason that is not known has no words of its own.
func RuleOf(reason Reason) Rule {
	i := slices.IndexFunc(rules, func(rule Rule) bool { return rule.Reason == reason })
	if i < 0 {
		return Rule{Reason: reason, Message: string(reason)}
	}
	return rules[i]
}
