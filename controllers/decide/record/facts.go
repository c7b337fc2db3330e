// Package record decides how the record of a remediation goes on: when the remediation was begun, what has happened since, what its capacity waits for, and
// how it has ended.
//
// It decides nothing that kubemend does, and it has no sentences. What could not be read changes nothing.
package record

import (
	"time"
)

// Outcome is how a remediation has ended.
type Outcome string

// The outcomes, as the API has them.
const (
	Healed    Outcome = "Healed"
	Replaced  Outcome = "Replaced"
	Gone      Outcome = "Gone"
	GivenUp   Outcome = "GivenUp"
	Cancelled Outcome = "Cancelled"
)

// Reason is what has happened, what is waited for, or by what a remediation has ended, in a word. Those of package capacity are passed on as they are.
type Reason string

// The reasons of steps.
const (
	// OwnerRequested: the owner of the Machine was asked to replace it.
	OwnerRequested Reason = "OwnerRequested"
	// RequestCreated: a remediation request was created.
	RequestCreated Reason = "RequestCreated"
	// RemediatorActs: a remediator has begun to act on a request.
	RemediatorActs Reason = "RemediatorActs"
	// RequestsEnded: every request there is has ended, and the target is unhealthy.
	RequestsEnded Reason = "RequestsEnded"
	// Withdrawn: nothing asks for the remediation any more, and the target is unhealthy.
	Withdrawn Reason = "Withdrawn"
	// TargetDeleting and TargetGone: it is being deleted, and it does not exist any more.
	TargetDeleting Reason = "TargetDeleting"
	TargetGone     Reason = "TargetGone"
	// ReplacementFound: the Machine that comes in place of the target exists.
	ReplacementFound Reason = "ReplacementFound"
)

// The reasons of ends that are not the remediation's own.
const (
	// NotBegun: it was about to begin, and did not in time.
	NotBegun Reason = "NotBegun"
	// Recovered: the target was healthy before anything was done to it.
	Recovered Reason = "Recovered"
	// Deleted: the node was deleted, and no owner has another one made that is known.
	Deleted Reason = "Deleted"
)

const (
	// PausedReason is what is waited for while the Cluster is paused.
	PausedReason Reason = "Paused"
	// RemediationInProgress is what is waited for while a remediator acts that does not say more.
	RemediationInProgress Reason = "RemediationInProgress"
	// AwaitingHealth is what is waited for while a remediator says that it has succeeded, and the target is unhealthy: its node may boot.
	AwaitingHealth Reason = "AwaitingHealth"
	// AwaitingNextStep is what is waited for while nothing acts on the target, and its check has a step left that is held up: by a limit, a storm, a pause.
	AwaitingNextStep Reason = "AwaitingNextStep"
	// Unread is what stands for what is waited for while nothing is known of it.
	Unread Reason = "Unread"
	// OtherReason stands for all causes of a wait beyond those that a record holds.
	OtherReason Reason = "Other"
)

// The bounds of a record.
const (
	// MaxSteps, MaxRequests and MaxWaits are those of the API.
	MaxSteps    = 64
	MaxRequests = 16
	MaxWaits    = 32
)

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
	// State is what the record says.
	State  State
	Target Target
	// Requests are those that name the record, or that it names, as far as they exist; RequestsUnread reports that some could not be read.
	Requests       []Request
	RequestsUnread bool
	// Next is the check that has a step left for the target, and begins it as soon as nothing holds it up; without a name none has.
	Next     Ref
	Capacity Capacity
}

// Ref names an object.
type Ref struct {
	APIVersion, Kind, Namespace, Name, UID string
}

// Is reports whether r and o are the same object: by their UIDs unless these are of before a move.
func (r Ref) Is(o Ref, moved bool) bool {
	if r.Kind != o.Kind || r.Namespace != o.Namespace || r.Name != o.Name {
		return false
	}
	return moved || r.UID == "" || o.UID == "" || r.UID == o.UID
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
	Ref
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
	Ref
	Created time.Time
	// By is what created it, if it is not kubemend.
	By string
	// Acts reports that a remediator has begun to act on it, State how far it is, in a word, where the kind has one.
	Acts  bool
	State Reason
	// Succeeded and Failed report how it has ended.
	Succeeded, Failed bool
}

func (r *Request) ended() bool { return r.Succeeded || r.Failed }

// Capacity is what the capacity of a Machine waits for. (package capacity)
type Capacity struct {
	// Known reports that it was read.
	Known bool
	// Reason is what is waited for, or why nothing is; Object that for which, and Since since when.
	Reason Reason
	Object Ref
	Since  time.Time
	// Back reports that another machine has come, Over that none will come, Overdue that the moment has passed at which what is waited for ends by itself, or
	// at which a check counts the new machine as unhealthy.
	Back, Over, Overdue bool
	// Replacement is the other machine; without a name there is none.
	Replacement Replacement
	// Healthy reports that the other machine is: its node is Ready or a check says so, no check says otherwise, and it is not being deleted.
	Healthy bool
	// Others is how many machines of the owner have a Ready node, of an owner that has replaced them all.
	Others int
}

// Replacement is the Machine in place of the target.
type Replacement struct {
	Machine, Node, Host Ref
	Guessed             bool
}

// State is what a record says of how the remediation goes.
type State struct {
	Attempted, Begun time.Time
	BegunBy          string
	Back, Ended      time.Time
	Outcome          Outcome
	EndedBy          string
	Requests         []Ref
	Replacement      Replacement
	Steps            []Step
	Waits            []Wait
}

// Step is one thing that has happened.
type Step struct {
	Time    time.Time
	Reason  Reason
	Object  Ref
	Message string
}

// Wait is how long a cause has held it up: Seconds before the wait that goes on, which began at Since.
type Wait struct {
	Reason  Reason
	Seconds int64
	Since   time.Time
}

// Waiting is the cause that is waited for now; empty if there is none.
func (s *State) Waiting() Reason {
	for _, w := range s.Waits {
		if !w.Since.IsZero() {
			return w.Reason
		}
	}
	return ""
}

// has reports whether a step of a reason has happened.
func (s *State) has(reason Reason) bool { return s.last(reason) != nil }

// last is the last step of one of the reasons; nil if there is none.
func (s *State) last(reasons ...Reason) *Step {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		for _, reason := range reasons {
			if s.Steps[i].Reason == reason {
				return &s.Steps[i]
			}
		}
	}
	return nil
}
