// Package escalation decides which remediation template of a NodeHealthCheck an unhealthy node gets next.
//
// The templates are the steps of an escalation, and a node goes from one to the next, never back. Whether a step may be taken now (pauses,
// limits, the queue, leases), and whether the node is unhealthy at all, is for the caller to decide.
package escalation

import "time"

// StoppedFor is how long a remediator that never speaks of success has to have been not processing before it counts as failed.
// (NodeHealthCheck v0.4; later remediators set Succeeded, which counts at once.)
const StoppedFor = 30 * time.Second

// BootsFor is how long a node is waited for whose only remediator has succeeded and deleted its request: another one would end the boot.
const BootsFor = 30 * time.Minute

// NotifiedAgainFor is how long after the last step was given up its remediator is notified again if it does not know: long enough to make
// good a crash between two writes, too short for a quarrel with a remediator that takes our annotation off. Nothing follows that it could
// get in the way of.
const NotifiedAgainFor = time.Minute

// Step is one template. Steps are given in the order of their use.
type Step struct {
	// Timeout is how long the template has to bring the node back, from the creation of its request. Zero or less waits without end.
	Timeout time.Duration
}

// Status is that of a condition of the remediators' contract.
type Status int

const (
	// Unsaid means that there is no such condition.
	Unsaid Status = iota
	// Yes means that it is True.
	Yes
	// No means that it is False.
	No
	// Unsure means that it is Unknown.
	Unsure
)

// Request is what a remediator was asked on a step, as it was found.
type Request struct {
	// Step is an index. Requests of templates that the check no longer names are left out by the caller, and ignored here.
	Step int
	// Started is the creation of the request. It has to be set: since the zero moment every timeout has passed.
	Started time.Time
	// GivenUp is when the request was given up, by its annotation or by the check's status, whichever of them knows; zero if neither does.
	GivenUp time.Time
	// Notified says that the annotation remediation.medik8s.io/nhc-timed-out is on it, whatever its value.
	Notified bool

	Succeeded, Processing Status
	// ProcessingSince is the last transition of Processing.
	ProcessingSince time.Time

	Deleting bool
	// Gone says that it exists no more; only the check's status remembers it.
	Gone bool
	// Refused says that it was asked for since Started and could not be made. It is Gone as well.
	Refused bool
}

// Action is what a step comes down to.
type Action int

const (
	// Wait means that nothing is to be done before Recheck, or before something else changes.
	Wait Action = iota
	// Start means that a request is to be made on the step.
	Start
	// GiveUp means that the requests of the step have had their chance. The caller writes, in this order, the annotation onto each of
	// them that is there, does not carry it and has not succeeded, if Notify says so, then the time into the check's status; and decide
	// again at once.
	GiveUp
	// Exhausted means that the last step was given up and none is left.
	Exhausted
)

// The reasons of steps.
const (
	// InProgress waits for a remediator that is at work, or has not said that it is not.
	InProgress = "RemediationInProgress"
	// AwaitingNode waits for the node of a remediator that says it has succeeded.
	AwaitingNode = "WaitingForNode"
	// AwaitingDeletion waits for the end of a request that somebody deleted.
	AwaitingDeletion = "RequestBeingDeleted"
	// ToldToStop waits although the remediator was notified that it was given up: there is no escalation, and another operator notified it.
	ToldToStop = "RemediatorToldToStop"

	FirstStep = "FirstRemediation"
	NextStep  = "NextRemediation"
	// Vanished starts a step again whose request somebody deleted before its time was over.
	Vanished = "RequestDeleted"

	NotMade = "RequestNotMade"

	// Failed gives up, or waits where nothing follows, because the remediator says Succeeded=False.
	Failed = "RemediationFailed"
	// Stopped gives up, or waits where nothing follows, because the remediator stopped processing and never reported success or failure.
	Stopped  = "RemediationStopped"
	TimedOut = "RemediationTimedOut"
	// NeverMade gives up because the step's timeout has passed and no request could be made.
	NeverMade = "RequestNeverMade"
	// NotNotified gives up what was given up before, because the remediator was not notified.
	NotNotified = "RemediatorNotNotified"

	NoTemplateLeft = "NoTemplateLeft"
)

// Decision is what to do on which step, and why.
type Decision struct {
	Do Action
	// Step is the step concerned: the one to start, to give up or to wait for; the last one when the escalation is exhausted.
	Step int
	// Notify says that a remediator is to be notified of GiveUp by the annotation. One that has succeeded is not: nothing has to stop.
	Notify bool
	// Reason is one of the constants above. It is the same while nothing but time changes.
	Reason string
	// Expires is when the time of the step is over that is waited for; zero if it has no timeout.
	Expires time.Time
	// Recheck is the first moment at which time alone changes what to do; zero if none does.
	Recheck time.Time
}

// NothingFollows reports whether the remediator came to an end, and the check has no step that could follow.
func (d Decision) NothingFollows() bool {
	return d.Do == Wait && (d.Reason == Failed || d.Reason == Stopped || d.Reason == ToldToStop)
}
