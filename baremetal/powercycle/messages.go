package powercycle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cycle has what the messages of a power cycle need: what the step was decided on.
type Cycle struct {
	Facts  Facts
	Policy Policy
	// After is what the remediation remembers after the step.
	After Memory
}

// endReasons has, for each final state, the reason whose message says how the remediation has ended.
var endReasons = map[State]Reason{
	Succeeded: MachineHealthyReason, OwnerRequested: OwnerRequestedReason, Failed: FailedReason, Ended: EndedReason,
	Stopped: TimedOutByCheckReason,
}

// Message says what the step does or waits for. In a final state it first says how the remediation has ended.
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

// maxMessage is the longest message. The field of the API holds more, because an error may be appended.
const maxMessage = 4096

// Message returns the text of a condition or event about step: the attempt, what led to the step (before), and the sentence.
func (c *Cycle) Message(before string, step Step) string {
	return cut(c.attempt(c.After.State) + JoinSentences(before, c.Sentence(step)))
}

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

// JoinSentences joins two sentences, of which either may be empty.
func JoinSentences(first, second string) string {
	if first == "" || second == "" {
		return first + second
	}
	return first + "; " + lowered(second)
}

func lowered(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// Sentence returns the message of step with the known details in brackets, and without the attempt.
func (c *Cycle) Sentence(step Step) string {
	text, detail, cause, trouble := step.Message(), c.detail(step.Reason), "", c.Facts.Trouble
	if c.After.State.Final() {
		cause = c.cause(text)
	}
	if step.Reason == FencingImpossibleReason { // its detail has the error already
		trouble = ""
	}
	return inBrackets(text, joined(detail, cause, trouble))
}

// CauseDetails returns what is known of a cause besides the message of its step. The record stores it.
func (c *Cycle) CauseDetails(step Step) string {
	return cut(joined(c.detail(step.Reason), c.Facts.Trouble))
}

func (c *Cycle) detail(reason Reason) string {
	if rule := RuleOf(reason); rule.detail != nil {
		return rule.detail(c)
	}
	return ""
}

// cause returns the sentence of what led to the end; empty if message already says that.
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

func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(text string) bool { return text == "" }), "; ")
}

// unproven returns what is missing to prove that the host is off.
func (c *Cycle) unproven() string {
	switch {
	case c.Facts.Mismatch != "":
		return c.Facts.Mismatch
	case !c.Facts.Provable:
		return "the host has no condition Manageable, which the Bare Metal Operator writes since v0.13: " +
			"without it, only a host that is seen on before it goes off counts as off"
	case c.Facts.Doubt != "":
		return c.Facts.Doubt
	}
	return "its annotation reboot.metal3.io is still there"
}

// LeftOnNode returns what is left on the node.
func (c *Cycle) LeftOnNode() string {
	text := strings.Join(c.Facts.Left, ", ")
	if more := c.Facts.LeftCount - len(c.Facts.Left); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (c *Cycle) queue() string {
	texts := make([]string, 0, len(c.Facts.Ahead))
	for _, ahead := range c.Facts.Ahead {
		texts = append(texts, ahead.Text)
	}
	return strings.Join(texts, "; ")
}

// loop returns how often the host has failed again after a power cycle, and when the next one may begin; empty if that is not known.
func (c *Cycle) loop() string {
	if c.Facts.Loop.Times == 0 {
		return ""
	}
	return fmt.Sprintf("%d times since %s, the next power cycle at %s", c.Facts.Loop.Times, c.Facts.Loop.Since.UTC().Format(time.RFC3339),
		c.Facts.LoopUntil.UTC().Format(time.RFC3339))
}

// Reason is the reason of a step, and of its conditions and events. docs/reference/conditions.md explains each.
type Reason string

// Detail tells steps apart that have the same reason but not the same meaning. Most steps have none.
type Detail string

// The details of steps. They select variants of the messages.
const (
	// AsksPerson means that the remediation waits until a person does something.
	AsksPerson          Detail = "AsksPerson"
	FenceUnseen         Detail = "FenceUnseen" // the node may be fenced, and cannot be read
	FencedBefore        Detail = "FencedBefore"
	HostRegistered      Detail = "HostRegistered" // a new host has the name of the host that was asked
	KeptOffAlready      Detail = "KeptOffAlready"
	NoReceipts          Detail = "NoReceipts"
	NodeBooted          Detail = "NodeBooted"
	NodeIsGone          Detail = "NodeIsGone"
	NodeTwins           Detail = "NodeTwins"
	ProofWrong          Detail = "ProofWrong"
	ReceiptContradicted Detail = "ReceiptContradicted"
	ReceiptLate         Detail = "ReceiptLate"
	RecordsUnread       Detail = "RecordsUnread" // the manager has just started
	StatusOutdated      Detail = "StatusOutdated"
	VolumesIdle         Detail = "VolumesIdle"
	WorkloadLeaving     Detail = "WorkloadLeaving" // the node stays fenced until the workload has left
)

// Rule is everything that is said and done about one reason. Conditions, events, records and `kubectl mend` take their texts from here.
type Rule struct {
	Reason Reason
	// Message says what a step does or waits for. The first of variants that fits the step replaces it.
	Message  string
	variants []variant
	// detail returns what else is known about the cause, for the brackets after the message; nil if there is nothing.
	detail func(*Cycle) string
	// Fix is what a person has to do; empty if there is nothing to do. It also holds after the remediation has ended for this reason.
	Fix string
	// Blocks says that the step waits for something other than the effect of what kubemend asked of the host, workload or node.
	Blocks bool
	// Passes says that a waiting remediation does not count against the limits of its check: the wait may take days, and is nobody's fault.
	Passes bool
	// OnHost and OnMachine say that the event is sent about these objects too. Warns says that the event is always a warning.
	OnHost, OnMachine, Warns bool
}

// Cause is the step that led to the end of a remediation, or to the request for owner remediation, to be explained later.
type Cause struct {
	Step `json:",inline"`
	// Said is what else was known at that time, and cannot be read later; empty if nothing was.
	Said string `json:"said,omitempty"`
}

// variant is the message for steps that have this detail, this action and one of these states; an empty field fits all.
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

// RuleOf returns the rule of a reason. For an unknown reason the message is the reason itself.
func RuleOf(reason Reason) Rule {
	i := slices.IndexFunc(rules, func(rule Rule) bool { return rule.Reason == reason })
	if i < 0 {
		return Rule{Reason: reason, Message: string(reason)}
	}
	return rules[i]
}
