package remediationrecord

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Facts are what is known of an open record. A zero moment is one that is not known.
type Facts struct {
	Now time.Time
	// Decided is when it was decided to begin the remediation.
	Decided time.Time
	// Moved reports that clusterctl has moved the record, so that all objects have other UIDs; Paused, that the Cluster is paused, as it is
	// meanwhile.
	Moved, Paused bool
	// Status is what the record says.
	Status mendv1.RemediationRecordStatus
	Target Target
	// Requests are those that carry the record, as far as they exist, the oldest first; RequestsUnread reports that some could not be read.
	Requests       []Request
	RequestsUnread bool
	// Next is the check that has a step left for the target, and begins it as soon as nothing holds it up; without a name none has.
	Next mendv1.RecordRef
	// IdleSince is since when nothing acts on the target while it has one; zero if that is new.
	IdleSince time.Time
	Capacity  Capacity
}

// Same reports whether two references name the same object: by their UIDs unless these are of before a move.
func Same(a, b mendv1.RecordRef, moved bool) bool {
	if a.Kind != b.Kind || a.Namespace != b.Namespace || a.Name != b.Name {
		return false
	}
	return moved || a.UID == "" || b.UID == "" || a.UID == b.UID
}

// Truth is whether something is so. Unknown is not a No.
type Truth = metav1.ConditionStatus

// The truths.
const (
	Unknown Truth = ""
	No            = metav1.ConditionFalse
	Yes           = metav1.ConditionTrue
)

// Target is what is remediated, now.
type Target struct {
	mendv1.RecordRef

	// Known reports that it was read. Without Exists it is gone then: also if another object has its name.
	Known, Exists bool
	// GoneAt is when a target that is gone went, or was last known to be there, Deleting since when it is being deleted. Went reports that
	// the cache has had it, and shown that it went.
	GoneAt, Deleting time.Time
	Went             bool
	// Machine reports that it is a Machine, whose capacity is followed.
	Machine bool
	// Checked is what a check says of the target, CheckedSince since when; Unknown if none says anything. That it is healthy counts of the
	// MachineHealthCheck alone that asked for the remediation; that it is not, of any, and of the NodeHealthCheck that lists it.
	Checked      Truth
	CheckedSince time.Time
	// CheckGone reports that the MachineHealthCheck that asked for the remediation does not exist.
	CheckGone bool
	// Asked is since when its owner is asked to replace it (OwnerRemediated=False). ByHand reports that it is marked for remediation by
	// hand.
	Asked  time.Time
	ByHand bool
	// Superseded reports that the Machine carries another record: its owner was asked anew, as after the check had released it or after
	// clusterctl move.
	Superseded bool
	// NodeHealthy is whether its node is Ready, and what it was unhealthy by is over; NodeReadySince since when it is Ready.
	NodeHealthy    Truth
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

// Capacity is what the capacity of a Machine waits for, as far as a record says it. (package capacity)
type Capacity struct {
	// Known reports that it was read.
	Known bool
	// Reason is what is waited for, or why nothing is; Object that for which, and Since since when.
	Reason string
	Object mendv1.RecordRef
	Since  time.Time
	// Back reports that another machine has come, Over that none will come.
	Back, Over bool
	// Replacement is the other machine, nil if there is none; Healthy reports that its node is Ready, no check calls it unhealthy, and it
	// is not being deleted.
	Replacement *mendv1.RecordReplacement
	Healthy     bool
	// Others is how many machines of the owner have a Ready node, of an owner that has replaced them all.
	Others int
}

// ownerActs reports whether the owner of the target may replace it. No owner of Cluster API does that once its check is gone, and no other
// one calls the machine unhealthy, whatever it has left in OwnerRemediated.
func (t *Target) ownerActs() bool { return !t.Asked.IsZero() && (!t.CheckGone || t.Checked != Unknown) }

// Health is what is known of the health of the target of f. An owner that leaves OwnerRemediated False does not make a machine unhealthy
// that the check which asked calls healthy again: no owner of Cluster API replaces it then.
func (f *Facts) Health() Truth {
	t := &f.Target
	switch {
	case !t.Known:
		return Unknown
	case t.leaving() || t.ByHand || t.Checked == No:
		return No
	case t.Checked == Yes:
		return Yes
	case t.ownerActs():
		return No
	}
	return t.NodeHealthy
}

func (f *Facts) inProgress() *Request {
	for i := range f.Requests {
		if !f.Requests[i].ended() {
			return &f.Requests[i]
		}
	}
	return nil
}

// succeeded is the newest request, if its remediator says that it has succeeded: what it has begun may take longer than any time that is
// known here. It is deleted by who has made it.
func (f *Facts) succeeded() *Request {
	if n := len(f.Requests); n > 0 && f.Requests[n-1].Succeeded {
		return &f.Requests[n-1]
	}
	return nil
}

// The reasons of steps, of what is waited for and of ends; stepTexts says what they mean.
const (
	OwnerRequested   = "OwnerRequested"
	RequestCreated   = "RequestCreated"
	RemediatorActs   = "RemediatorActs"
	RequestsEnded    = "RequestsEnded"
	Withdrawn        = "Withdrawn"
	TargetDeleting   = "TargetDeleting"
	TargetGone       = "TargetGone"
	ReplacementFound = "ReplacementFound"

	RemediationInProgress = "RemediationInProgress"
	AwaitingHealth        = "AwaitingHealth"
	AwaitingNextStep      = "AwaitingNextStep"
	// PausedReason is what is waited for while the Cluster is paused, Unread stands for that of which nothing is known.
	PausedReason = "Paused"
	Unread       = "Unread"

	// NotBegun, Recovered and Deleted are ends that are not the remediation's own: it did not begin in time; the target was healthy before
	// anything was done to it; the node was deleted, and no owner makes another one that is known.
	NotBegun  = "NotBegun"
	Recovered = "Recovered"
	Deleted   = "Deleted"
)

// deeds are the steps that are no waits.
var deeds = map[string]bool{
	OwnerRequested: true, RequestCreated: true, RemediatorActs: true, TargetDeleting: true, TargetGone: true, ReplacementFound: true,
}

// stepTexts has a sentence for each reason that is not one of capacity. The states of a power cycle say what its request waits for.
var stepTexts = map[string]string{
	OwnerRequested:   "The owner of {target} was asked to replace it",
	RequestCreated:   "{object} was created for {target}",
	RemediatorActs:   "A remediator has begun to act on {object}",
	RequestsEnded:    "Every remediation request of {target} has ended, and it is unhealthy",
	Withdrawn:        "Nothing asks for the remediation of {target} any more, and it is unhealthy",
	TargetDeleting:   "{target} is being deleted",
	TargetGone:       "{target} does not exist any more",
	ReplacementFound: "{object} comes in place of {target}",

	RemediationInProgress: "{object} has not ended",
	AwaitingHealth:        "{object} has succeeded, as its remediator says, and {target} is unhealthy",
	AwaitingNextStep:      "Nothing acts on {target} now, and {object} has a step left that is held up",

	string(powercycle.Pending):         "{object} has not begun to power-cycle the host",
	string(powercycle.Preparing):       "{object} waits until it may power-cycle the host",
	string(powercycle.PoweringOff):     "{object} waits for the host to be off",
	string(powercycle.MovingWorkload):  "{object} waits for the workload to leave the node of the host, which is off",
	string(powercycle.PoweringOn):      "{object} waits for the host to be on",
	string(powercycle.Rebooting):       "{object} waits for the host to reboot",
	string(powercycle.Servicing):       "{object} waits for the firmware of the host to be written",
	string(powercycle.Booting):         "{object} waits for the machine to be healthy after its host was powered on",
	string(powercycle.RequestingOwner): "{object} asks the owner of the machine to replace it",

	string(mendv1.RecordHealed):    "{target} is healthy again",
	string(mendv1.RecordReplaced):  "Another Machine is healthy in place of {target}",
	string(mendv1.RecordGone):      "{target} was deleted, and no other one is to come",
	string(mendv1.RecordGivenUp):   "{target} is unhealthy, and nothing acts on it any more",
	string(mendv1.RecordCancelled): "The remediation of {target} did not begin, or was withdrawn before it had an effect",
}

// stepText is what has happened to the target of a record, as a sentence without a full stop; the object is what it happened to, if it is
// not the target.
func stepText(reason, target string, object mendv1.RecordRef) string {
	text := stepTexts[reason]
	switch named := object.Name != ""; {
	case text == "" && named:
		text = reason + ": {object}"
	case text == "", strings.Contains(text, "{object}") && !named:
		text = reason
	}
	return strings.NewReplacer("{target}", target, "{object}", object.Kind+" "+object.Name).Replace(text)
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
