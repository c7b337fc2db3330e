package remediationrecord

import (
	"slices"
	"time"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The reasons of steps.
const (
	// OwnerRequested: the owner of the Machine was asked to replace it.
	OwnerRequested = "OwnerRequested"
	// RequestCreated: a remediation request was created.
	RequestCreated = "RequestCreated"
	// RemediatorActs: a remediator has begun to act on a request.
	RemediatorActs = "RemediatorActs"
	// RequestsEnded: every request there is has ended, and the target is unhealthy.
	RequestsEnded = "RequestsEnded"
	// Withdrawn: nothing asks for the remediation any more, and the target is unhealthy.
	Withdrawn = "Withdrawn"
	// TargetDeleting and TargetGone: it is being deleted, and it does not exist any more.
	TargetDeleting = "TargetDeleting"
	TargetGone     = "TargetGone"
	// ReplacementFound: the Machine that comes in place of the target exists.
	ReplacementFound = "ReplacementFound"
)

// The reasons of ends that are not the remediation's own.
const (
	// NotBegun: it was about to begin, and did not in time.
	NotBegun = "NotBegun"
	// Recovered: the target was healthy before anything was done to it.
	Recovered = "Recovered"
	// Deleted: the node was deleted, and no owner has another one made that is known.
	Deleted = "Deleted"
)

const (
	// PausedReason is what is waited for while the Cluster is paused.
	PausedReason = "Paused"
	// RemediationInProgress is what is waited for while a remediator acts that does not say more.
	RemediationInProgress = "RemediationInProgress"
	// AwaitingHealth is what is waited for while a remediator says that it has succeeded, and the target is unhealthy: its node may boot.
	AwaitingHealth = "AwaitingHealth"
	// AwaitingNextStep is what is waited for while nothing acts on the target, and its check has a step left that is held up: by a limit, a storm, a pause.
	AwaitingNextStep = "AwaitingNextStep"
	// Unread is what stands for what is waited for while nothing is known of it.
	Unread = "Unread"
)

// MaxRequests is how many requests a record names, as the API has it.
const MaxRequests = 16

// Unbegun is after how long a record is cancelled whose remediation was about to begin and did not.
const Unbegun = 5 * time.Minute

// Settle is how long nothing may ask for a remediation that was begun until it counts as withdrawn: the next request may be made a moment later.
const Settle = 5 * time.Minute

// Facts are what is known of an open record. A zero moment is one that is not known.
type Facts struct {
	Now time.Time
	// Decided is when it was decided to begin the remediation.
	Decided time.Time
	// Moved reports that clusterctl has moved the record, so that all objects have other UIDs.
	Moved bool
	// Paused reports that the Cluster is paused, as it is while it is moved.
	Paused bool
	// Status is what the record says.
	Status mendv1.RemediationRecordStatus
	Target Target
	// Requests are those that name the record, or that it names, as far as they exist; RequestsUnread reports that some could not be read.
	Requests       []Request
	RequestsUnread bool
	// Next is the check that has a step left for the target, and begins it as soon as nothing holds it up; without a name none has.
	Next     mendv1.RecordRef
	Capacity Capacity
}

// Same reports whether two references name the same object: by their UIDs unless these are of before a move.
func Same(a, b mendv1.RecordRef, moved bool) bool {
	if a.Kind != b.Kind || a.Namespace != b.Namespace || a.Name != b.Name {
		return false
	}
	return moved || a.UID == "" || b.UID == "" || a.UID == b.UID
}

// Truth is whether something is so.
type Truth int

// Unknown is not a No.
const (
	Unknown Truth = iota
	No
	Yes
)

// Target is what is remediated, now.
type Target struct {
	mendv1.RecordRef

	// Known reports that it was read. Without Exists it is gone then: also if another object has its name.
	Known, Exists bool
	// GoneAt is when a target that is gone went, or was last known to be there.
	GoneAt time.Time
	// Deleting is since when it is being deleted.
	Deleting time.Time
	// Machine reports that it is a Machine, whose capacity is followed.
	Machine bool
	// Checked is what a check says of the target, CheckedSince since when; Unknown if none says anything. That it is healthy counts of the
	// MachineHealthCheck alone that asked for the remediation (HealthCheckSucceeded); that it is not, of any, and of the NodeHealthCheck that lists it.
	Checked      Truth
	CheckedSince time.Time
	// Asked is since when its owner is asked to replace it (OwnerRemediated=False). ByHand reports that it is marked for remediation by hand.
	Asked  time.Time
	ByHand bool
	// Superseded reports that the Machine carries another record: its owner was asked anew, as after the check had released it or after
	// clusterctl move.
	Superseded bool
	// Evidence is whether what it was unhealthy by still holds, NodeReady what its node says of itself, and NodeReadySince since when.
	Evidence       Truth
	NodeReady      Truth
	NodeReadySince time.Time
}

// gone and leaving report that the target does not exist any more, or not for much longer.
func (t *Target) gone() bool    { return t.Known && !t.Exists }
func (t *Target) leaving() bool { return t.gone() || t.Known && !t.Deleting.IsZero() }

// Request is a remediation request that exists.
type Request struct {
	mendv1.RecordRef

	Created time.Time
	// By is what created it, if it is not kubemend.
	By string
	// Acts reports that a remediator has begun to act on it, State how far it is, in a word, where the kind has one.
	Acts  bool
	State string
	// Succeeded and Failed report how it has ended.
	Succeeded, Failed bool
}

func (r *Request) ended() bool { return r.Succeeded || r.Failed }

// Capacity is what the capacity of a Machine waits for. (package capacity)
type Capacity struct {
	// Known reports that it was read.
	Known bool
	// Reason is what is waited for, or why nothing is; Object that for which, and Since since when.
	Reason string
	Object mendv1.RecordRef
	Since  time.Time
	// Back reports that another machine has come, Over that none will come.
	Back, Over bool
	// Replacement is the other machine; nil if there is none.
	Replacement *mendv1.RecordReplacement
	// Healthy reports that the other machine is: its node is Ready or a check says so, no check says otherwise, and it is not being deleted.
	Healthy bool
	// Others is how many machines of the owner have a Ready node, of an owner that has replaced them all.
	Others int
}

// deeds are the steps that are no waits.
var deeds = map[string]bool{
	OwnerRequested: true, RequestCreated: true, RemediatorActs: true, TargetDeleting: true, TargetGone: true, ReplacementFound: true,
}

// waitingFor is the step since which what is waited for now is waited for; nil if nothing is.
func waitingFor(status *mendv1.RemediationRecordStatus) *mendv1.RecordStep {
	for i := len(status.Steps) - 1; i >= 0 && status.Ended.IsZero(); i-- {
		if !deeds[status.Steps[i].Reason] {
			return &status.Steps[i]
		}
	}
	return nil
}

// first is the first step of one of the reasons, last the last one; nil if there is none.
func first(status *mendv1.RemediationRecordStatus, reasons ...string) *mendv1.RecordStep {
	for i := range status.Steps {
		if slices.Contains(reasons, status.Steps[i].Reason) {
			return &status.Steps[i]
		}
	}
	return nil
}

func last(status *mendv1.RemediationRecordStatus, reasons ...string) *mendv1.RecordStep {
	for i := len(status.Steps) - 1; i >= 0; i-- {
		if slices.Contains(reasons, status.Steps[i].Reason) {
			return &status.Steps[i]
		}
	}
	return nil
}
