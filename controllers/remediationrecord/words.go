package remediationrecord

import (
	"fmt"
	"strings"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// stepText is what has happened to the target of a record, as a sentence without a full stop; the object is what it happened to, if it is not the target.
func stepText(reason, target string, object mendv1.RecordRef) string {
	if text := recordTexts[reason]; text != "" {
		return strings.NewReplacer("{target}", target, "{object}", object.Kind+" "+object.Name).Replace(text)
	}
	if waits := cycleTexts[powercycle.State(reason)]; waits != "" && object.Name != "" {
		return fmt.Sprintf("%s %s %s", object.Kind, object.Name, waits)
	}
	if object.Name != "" {
		return fmt.Sprintf("%s: %s %s", reason, object.Kind, object.Name)
	}
	return reason
}

// cycleTexts say, of a request for a power cycle, what it waits for in each state that is not its end.
var cycleTexts = map[powercycle.State]string{
	powercycle.Pending:         "has not begun to power-cycle the host",
	powercycle.Preparing:       "waits until it may power-cycle the host",
	powercycle.PoweringOff:     "waits for the host to be off",
	powercycle.MovingWorkload:  "waits for the workload to leave the node of the host, which is off",
	powercycle.PoweringOn:      "waits for the host to be on",
	powercycle.Rebooting:       "waits for the host to reboot",
	powercycle.Servicing:       "waits for the firmware of the host to be written",
	powercycle.Booting:         "waits for the machine to be healthy after its host was powered on",
	powercycle.RequestingOwner: "asks the owner of the machine to replace it",
}

// recordTexts has one sentence for each reason that is not one of capacity.
var recordTexts = map[string]string{
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

	string(mendv1.RecordHealed):    "{target} is healthy again",
	string(mendv1.RecordReplaced):  "Another Machine is healthy in place of {target}",
	string(mendv1.RecordGone):      "{target} was deleted, and no other one is to come",
	string(mendv1.RecordGivenUp):   "{target} is unhealthy, and nothing acts on it any more",
	string(mendv1.RecordCancelled): "The remediation of {target} did not begin, or was withdrawn before it had an effect",
}
