package remediationrecord

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// Facts are what is known about an open record. A zero time means that it is not known.
type Facts struct {
	Now time.Time
	// Decided is when the controller decided to begin the remediation.
	Decided time.Time
	// Moved reports that clusterctl has moved the record, so that all objects have new UIDs. Paused reports that the Cluster is paused.
	Moved, Paused bool
	// Status is the stored status of the record.
	Status mendv1.RemediationRecordStatus
	Target Target
	// Requests are the existing requests that carry the record, the oldest first. RequestsUnread reports that some could not be read.
	Requests       []Request
	RequestsUnread bool
	// Next is the check that has a step left for the target and begins it as soon as no rule blocks it; without a name there is none.
	Next mendv1.RecordRef
	// IdleSince is since when Next is set and nothing acts on the target; zero if that has just begun.
	IdleSince time.Time
	Capacity  Capacity
}

// Same reports whether two references name the same object. It ignores the UIDs if the object was moved, since clusterctl creates it anew.
func Same(a, b mendv1.RecordRef, moved bool) bool {
	if a.Kind != b.Kind || a.Namespace != b.Namespace || a.Name != b.Name {
		return false
	}
	return moved || a.UID == "" || b.UID == "" || a.UID == b.UID
}

// Truth is whether something is so. Unknown does not mean No.
type Truth = metav1.ConditionStatus

// The values of Truth.
const (
	Unknown Truth = ""
	No            = metav1.ConditionFalse
	Yes           = metav1.ConditionTrue
)

// Target is the Machine or Node that is remediated, as it is now.
type Target struct {
	mendv1.RecordRef

	// Known reports that the target was read. If it was and Exists is false, the target is gone; another object may have its name.
	Known, Exists bool
	// GoneAt is when a target that is gone was deleted, or was last known to exist. Deleting is since when it is being deleted. Went
	// reports that the cache had the target and showed its deletion.
	GoneAt, Deleting time.Time
	Went             bool
	// Machine reports that the target is a Machine. Only the capacity of Machines is followed.
	Machine bool
	// Checked is the verdict of a check on the target; Unknown without one. Yes can only come from the MachineHealthCheck that asked for
	// the remediation. No can come from any MachineHealthCheck, and from the NodeHealthCheck that lists the node.
	Checked Truth
	// CheckedSince is since when a check reports that.
	CheckedSince time.Time
	// CheckGone reports that the MachineHealthCheck that asked for the remediation was deleted.
	CheckGone bool
	// Asked is since when the owner of the Machine is asked to replace it (OwnerRemediated=False).
	Asked time.Time
	// ByHand reports that a user has annotated the Machine for remediation.
	ByHand bool
	// Superseded reports that the Machine carries another record: its owner was asked again, as after a release or after clusterctl move.
	Superseded bool
	// NodeHealthy is Yes if the node is Ready and no condition that made it unhealthy holds any more.
	NodeHealthy Truth
	// NodeReadySince is when the node became Ready.
	NodeReadySince time.Time
}

// gone reports that the target does not exist any more. leaving reports that it is gone or being deleted.
func (t *Target) gone() bool    { return t.Known && !t.Exists }
func (t *Target) leaving() bool { return t.gone() || t.Known && !t.Deleting.IsZero() }

// Request is a remediation request that exists.
type Request struct {
	mendv1.RecordRef

	Created time.Time
	// Acts reports that a remediator has begun to act on the request.
	Acts bool
	// State is the state of a power cycle; empty for other requests.
	State string
	// Succeeded and Failed report how the request has ended.
	Succeeded, Failed bool
}

func (r *Request) ended() bool { return r.Succeeded || r.Failed }

// Capacity is what the capacity of a Machine waits for, in the terms of a record (see package capacity).
type Capacity struct {
	// Known reports that it could be read.
	Known bool
	// Reason is what the capacity waits for, or why it waits no more. Object is the object that it waits for, Since when the wait began.
	Reason string
	Object mendv1.RecordRef
	Since  time.Time
	// Back reports that another machine has come. Over reports that none will come.
	Back, Over bool
	// Replacement is the other machine; nil if there is none. Healthy reports that its node is Ready, no check finds it unhealthy, and it
	// is not being deleted.
	Replacement *mendv1.RecordReplacement
	Healthy     bool
	// Others is how many machines of the owner have a Ready node, once the owner has all its machines again; else 0.
	Others int
}

// ownerActs reports whether the owner of the target may replace it. OwnerRemediated may stay False after the check was deleted, but no
// owner of Cluster API replaces the Machine then unless another check finds it unhealthy.
func (t *Target) ownerActs() bool { return !t.Asked.IsZero() && (!t.CheckGone || t.Checked != Unknown) }

// Health returns whether the target is healthy. If the asking check finds it healthy again, OwnerRemediated=False does not count, because
// no owner of Cluster API replaces such a Machine.
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

// succeeded returns the newest request if its remediator reports success, else nil. The target may need any time to become healthy after
// that, so the record waits until the creator of the request deletes it.
func (f *Facts) succeeded() *Request {
	if n := len(f.Requests); n > 0 && f.Requests[n-1].Succeeded {
		return &f.Requests[n-1]
	}
	return nil
}

// The reasons of steps, waits and ends. stepTexts says what they mean.
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
	// PausedReason is the wait while the Cluster is paused. Unread is the wait while nothing is known about it.
	PausedReason = "Paused"
	Unread       = "Unread"

	// These ends are not the remediation's own. NotBegun: it did not begin in time. Recovered: the target was healthy before anything was
	// done to it. Deleted: the node was deleted, and kubemend knows no owner that makes another one.
	NotBegun  = "NotBegun"
	Recovered = "Recovered"
	Deleted   = "Deleted"
)

// deeds are the reasons of actions. All other reasons, except the outcome at the end, are waits.
var deeds = map[string]bool{
	OwnerRequested: true, RequestCreated: true, RemediatorActs: true, TargetDeleting: true, TargetGone: true, ReplacementFound: true,
}

// stepTexts has a sentence for each reason that package capacity does not define. Those of power cycles say what the request waits for.
var stepTexts = map[string]string{
	OwnerRequested:   "The owner of {target} was asked to replace it",
	RequestCreated:   "{object} was created for {target}",
	RemediatorActs:   "A remediator has begun to act on {object}",
	RequestsEnded:    "Every remediation request of {target} has ended, and {target} is still unhealthy",
	Withdrawn:        "Nothing requests the remediation of {target} any more, and {target} is still unhealthy",
	TargetDeleting:   "{target} is being deleted",
	TargetGone:       "{target} does not exist any more",
	ReplacementFound: "{object} comes in place of {target}",

	RemediationInProgress: "{object} has not ended",
	AwaitingHealth:        "The remediator of {object} reports success, but {target} is not healthy yet",
	AwaitingNextStep:      "No controller acts on {target} now; {object} will remediate it again as soon as nothing blocks that",

	string(powercycle.Pending):         "{object} has not begun to power-cycle the host",
	string(powercycle.Preparing):       "{object} waits until it may power-cycle the host",
	string(powercycle.PoweringOff):     "{object} waits for the host to be off",
	string(powercycle.MovingWorkload):  "{object} waits for the workload to leave the node of the host, which is off",
	string(powercycle.PoweringOn):      "{object} waits for the host to be on",
	string(powercycle.Rebooting):       "{object} waits for the host to reboot",
	string(powercycle.Servicing):       "{object} waits for the firmware of the host to be updated",
	string(powercycle.Booting):         "{object} waits for the machine to be healthy after its host was powered on",
	string(powercycle.RequestingOwner): "{object} asks the owner of the machine to replace it",

	string(mendv1.RecordHealed):    "{target} is healthy again",
	string(mendv1.RecordReplaced):  "Another Machine is healthy in place of {target}",
	string(mendv1.RecordGone):      "{target} was deleted, and no replacement is expected",
	string(mendv1.RecordGivenUp):   "{target} is unhealthy, and nothing acts on it any more",
	string(mendv1.RecordCancelled): "The remediation of {target} did not begin, or was withdrawn before it had an effect",
}

// stepText returns a step as a sentence without a full stop. The object is what the step happened to, if that is not the target.
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

// waitingFor returns the step with which the current wait began; nil if the record waits for nothing.
func waitingFor(status *mendv1.RemediationRecordStatus) *mendv1.RecordStep {
	for i := len(status.Steps) - 1; i >= 0 && status.Ended.IsZero(); i-- {
		if !deeds[status.Steps[i].Reason] {
			return &status.Steps[i]
		}
	}
	return nil
}

// first returns the first step with one of the reasons, last the last one; nil if there is none.
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
