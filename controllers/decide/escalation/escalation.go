// Package escalation decides which remediation template of a NodeHealthCheck is used next for an unhealthy node.
//
// The templates are the steps of an escalation, and a node goes from one step to the next, never back. The caller decides whether the node
// is unhealthy and whether a step may be taken now (pauses, limits, the queue, leases).
package escalation

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// StoppedFor is how long Processing has to be False before a remediator that never sets Succeeded counts as failed.
	// (NodeHealthCheck v0.4; later remediators set Succeeded, which counts at once.)
	StoppedFor = 30 * time.Second
	// BootsFor is how long kubemend waits for a node after its only remediator has succeeded and deleted its request. A new request would
	// interrupt the boot.
	BootsFor = 30 * time.Minute
	// NotifiedAgainFor is how long after the last step was given up its remediator is notified again if the annotation is missing: long
	// enough to recover from a crash between two writes, too short for a conflict with a remediator that removes the annotation.
	NotifiedAgainFor = time.Minute
)

// Step is one template. Timeout begins with the creation of its request; zero or less means that there is no timeout.
type Step struct{ Timeout time.Duration }

// Status is the status of a condition that remediators set by their contract.
type Status int

// The statuses. Unsaid means that the condition is missing, Unsure that its status is Unknown.
const (
	Unsaid Status = iota
	Yes
	No
	Unsure
)

// Condition returns the condition of a type from a request; nil if it is missing or cannot be parsed. It is shared with obj: read only.
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

// Says returns the status of a condition, and its lastTransitionTime.
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

// Request is a remediation request, or what the check's status remembers of it.
type Request struct {
	// Step is the index of the request's template in the escalation; -1 if the check does not name the template any more.
	Step int
	// Started is the creation of the request. It has to be set: counted from the zero time, every timeout has expired.
	Started time.Time
	// GivenUp is when the request was given up, from its annotation or the check's status; zero if it was not.
	GivenUp time.Time
	// Notified says that the request has the annotation remediation.medik8s.io/nhc-timed-out, whatever its value.
	Notified bool

	Succeeded, Processing Status
	ProcessingSince       time.Time // the last transition of Processing

	Deleting bool // the request has a deletionTimestamp
	Gone     bool // the request does not exist; only the check's status or the manager's memory has it
	Refused  bool // creating the request has failed since Started; then Gone is set too
}

// Action is what to do on a step.
type Action int

// The actions.
const (
	// Wait means that there is nothing to do until Recheck, or until something else changes.
	Wait Action = iota
	// Start means that the caller creates a request from the step's template.
	Start
	// GiveUp means that the step has failed. If Notify is set, the caller first sets the annotation on each request of the step that
	// exists, does not have the annotation and has not succeeded. Then the caller writes the time into the check's status and decides again
	// at once.
	GiveUp
	// Exhausted means that the last step was given up and none is left.
	Exhausted
)

// The reasons of decisions.
const (
	InProgress       = "RemediationInProgress" // the remediator works, or has reported nothing
	AwaitingNode     = "WaitingForNode"        // the remediator has reported success
	AwaitingDeletion = "RequestBeingDeleted"
	ToldToStop       = "RemediatorToldToStop" // another operator set the annotation; only without an escalation

	FirstStep = "FirstRemediation"
	NextStep  = "NextRemediation"
	Vanished  = "RequestDeleted" // before the timeout expired: the request is created again
	NotMade   = "RequestNotMade"

	Failed      = "RemediationFailed"  // Succeeded=False
	Stopped     = "RemediationStopped" // Processing=False, and Succeeded was never set
	TimedOut    = "RemediationTimedOut"
	NeverMade   = "RequestNeverMade"      // the timeout has expired and no request could be created
	NotNotified = "RemediatorNotNotified" // the step was given up before, but the annotation is missing

	NoTemplateLeft = "NoTemplateLeft"
)

// Decision is what to do on which step, and why.
type Decision struct {
	Do Action
	// Step is the step to start, to give up or to wait for; the last step if the escalation is exhausted.
	Step int
	// Notify says that GiveUp sets the annotation on a request. A remediator that has succeeded is not notified: it has nothing to stop.
	Notify bool
	// Reason stays the same while only time passes.
	Reason string
	// Expires is when the timeout of the current step expires; zero if it has none.
	Expires time.Time
	// Recheck is the first moment at which the decision changes although no object changes; zero if there is none.
	Recheck time.Time
}

// NothingFollows reports whether the remediator has ended without success, and the check has no further step.
func (d Decision) NothingFollows() bool {
	return d.Do == Wait && (d.Reason == Failed || d.Reason == Stopped || d.Reason == ToldToStop)
}
