// Package escalation decides which remediation template of a NodeHealthCheck an unhealthy node gets next.
//
// The templates are the steps of an escalation, and a node goes from one to the next, never back. Whether a step may be taken now (pauses,
// limits, the queue, leases), and whether the node is unhealthy at all, is for the caller to decide.
package escalation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// StoppedFor is how long a remediator that never speaks of success has to have been not processing before it counts as failed.
	// (NodeHealthCheck v0.4; later remediators set Succeeded, which counts at once.)
	StoppedFor = 30 * time.Second
	// BootsFor is how long a node is waited for whose only remediator has succeeded and deleted its request: another one would end the
	// boot.
	BootsFor = 30 * time.Minute
	// NotifiedAgainFor is how long after the last step was given up its remediator is notified again if it does not know: long enough to
	// make good a crash between two writes, too short for a quarrel with a remediator that takes our annotation off.
	NotifiedAgainFor = time.Minute
)

// Step is one template. Timeout is how long it has to bring the node back, from the creation of its request; zero or less waits for ever.
type Step struct{ Timeout time.Duration }

// Status is that of a condition of the remediators' contract. Unsaid means that there is no such condition, Unsure that it is Unknown.
type Status int

// The statuses.
const (
	Unsaid Status = iota
	Yes
	No
	Unsure
)

// Condition is the condition of that type of a request, shared with obj: read only; nil if there is none that can be read.
func Condition(obj *unstructured.Unstructured, kind string) map[string]any {
	list, _, err := unstructured.NestedFieldNoCopy(obj.Object, "status", "conditions")
	conditions, isList := list.([]any)
	if err != nil || !isList {
		return nil
	}
	for _, c := range conditions {
		if fields, _ := c.(map[string]any); fields["type"] == kind {
			return fields
		}
	}
	return nil
}

// Says is the status of that condition, and since when it is so.
func Says(obj *unstructured.Unstructured, kind string) (Status, time.Time) {
	fields := Condition(obj, kind)
	text, _ := fields["lastTransitionTime"].(string)
	at, _ := time.Parse(time.RFC3339, text)
	switch {
	case fields == nil:
		return Unsaid, at
	case fields["status"] == string(metav1.ConditionTrue):
		return Yes, at
	case fields["status"] == string(metav1.ConditionFalse):
		return No, at
	}
	return Unsure, at
}

// Request is what a remediator was asked on a step, as it was found.
type Request struct {
	// Step is an index. Requests of templates that the check no longer names are ignored.
	Step int
	// Started is the creation of the request. It has to be set: since the zero moment every timeout has passed.
	Started time.Time
	// GivenUp is when the request was given up, by its annotation or by the check's status, whichever of them knows; zero if neither does.
	GivenUp time.Time
	// Notified says that the annotation remediation.medik8s.io/nhc-timed-out is on it, whatever its value.
	Notified bool

	Succeeded, Processing Status
	ProcessingSince       time.Time // the last transition of Processing

	// Gone says that only the check's status remembers it, Refused that it was asked for since Started and could not be made; it is Gone
	// too.
	Deleting, Gone, Refused bool
}

// Action is what a step comes down to.
type Action int

// The actions.
const (
	// Wait means that nothing is to be done before Recheck, or before something else changes.
	Wait Action = iota
	// Start means that a request is to be made on the step.
	Start
	// GiveUp means that the requests of the step have had their chance. The caller writes, in this order, the annotation onto each of
	// them that is there, does not carry it and has not succeeded, if Notify says so, then the time into the check's status; and decides
	// again at once.
	GiveUp
	// Exhausted means that the last step was given up and none is left.
	Exhausted
)

// The reasons of decisions.
const (
	InProgress       = "RemediationInProgress" // at work, or has not said that it is not
	AwaitingNode     = "WaitingForNode"        // it says that it has succeeded
	AwaitingDeletion = "RequestBeingDeleted"
	ToldToStop       = "RemediatorToldToStop" // by another operator, of a check without an escalation

	FirstStep = "FirstRemediation"
	NextStep  = "NextRemediation"
	Vanished  = "RequestDeleted" // before its time was over: it is made again
	NotMade   = "RequestNotMade"

	Failed      = "RemediationFailed"  // Succeeded=False
	Stopped     = "RemediationStopped" // no longer processing, and never spoke of success or failure
	TimedOut    = "RemediationTimedOut"
	NeverMade   = "RequestNeverMade"      // the timeout has passed and no request could be made
	NotNotified = "RemediatorNotNotified" // it was given up before, and its remediator does not know

	NoTemplateLeft = "NoTemplateLeft"
)

// Decision is what to do on which step, and why.
type Decision struct {
	Do Action
	// Step is the step concerned: the one to start, to give up or to wait for; the last one when the escalation is exhausted.
	Step int
	// Notify says that a remediator is to be notified of GiveUp by the annotation. One that has succeeded is not: nothing has to stop.
	Notify bool
	// Reason is the same while nothing but time changes.
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
