package remediationrecord

import (
	"slices"
	"strings"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

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
