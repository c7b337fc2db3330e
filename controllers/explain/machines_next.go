package explain

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// machineNext is the next thing that happens to the machine of d, or what a person has to do.
func machineNext(facts *machines.Facts, d *machines.Decision, target *Target) Step {
	switch {
	case (target.State == cliv1.StateUnhealthy || target.State == cliv1.StateUnknown) && machines.Deleting(d.Target.Machine):
		return Step{Reason: MachineBeingDeleted, Text: "the Machine controller deletes it"}
	case target.StartsNow || target.InFlight:
		return remediationNext(facts, d.Target, target)
	case target.State == cliv1.StateHealthy:
		return Step{}
	}
	within := target.blocker(WithinTimeout)
	if within != nil && !within.Until.IsZero() {
		return machineExpires(facts, d, target, within.Until)
	}
	if actor := actsInstead(facts, d.Target); actor != "" && target.State == cliv1.StateUnhealthy {
		return Step{Reason: OtherControllerActs, Text: actor + " acts on it"}
	}
	return blockedNext(facts, target, within)
}

// blockedNext is what ends the blockers of a machine, or what a person has to do. Within says that no timeout counts yet; nil if one has expired.
func blockedNext(facts *machines.Facts, target *Target, within *Blocker) Step {
	for i := range target.Blockers {
		if blocker := &target.Blockers[i]; blocker.Fix != "" && (blocker.Reason != NotActing || !facts.ActsInCore()) {
			return Step{Reason: blocker.Reason, Text: blocker.Fix, Manual: true}
		}
	}
	switch {
	case len(target.Blockers) == 0:
		return Step{}
	case within != nil: // and no timeout is running
		return Step{Reason: WithinTimeout, Text: "nothing counts before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0"}
	}
	first := &target.Blockers[0]
	if first.Next != "" {
		return Step{At: first.Until, Reason: first.Reason, Text: first.Next}
	}
	return Ended(first)
}

// remediationNext is what happens next to a machine whose remediation starts or is in flight.
func remediationNext(facts *machines.Facts, machine *machines.Target, target *Target) Step {
	ownerAsked := machines.OwnerOf(machine.Machine) != machines.NotAsked
	switch {
	case target.StartsNow:
		return Step{At: facts.Now, Reason: RemediationStarts, Text: "kubemend " + target.Action.Message}
	case facts.Template.Unread && !ownerAsked:
		return Step{Reason: RemediatorActs, Text: fmt.Sprintf("its %s goes on, which could not be read with your rights", facts.Template.Kind)}
	case machine.Request == nil || ownerAsked: // if there is a request, the owner was asked after it
		return ownerNext(machine)
	}
	return Step{Reason: RemediatorActs, Text: fmt.Sprintf("%s goes on; the request is deleted as soon as the machine is healthy", target.Requests[0])}
}

// ownerNext is what the owner of a machine, which was asked to replace it, does next, by what it has reported so far.
func ownerNext(machine *machines.Target) Step {
	ref := metav1.GetControllerOf(machine)
	owner := ref.Kind + " " + ref.Name
	familiar := machines.Answers[ref.Kind]
	switch reason := machines.OwnerAnswer(machine.Machine); {
	case reason == "" && !familiar:
		return Step{Reason: OwnerActs, Text: owner + " was asked to replace it; whether its controller does that is not known to kubemend"}
	case reason == "":
		return Step{Reason: OwnerActs, Text: owner + " replaces it, or reports in OwnerRemediated why it does not"}
	case reason == clusterv1.MachineSetMachineRemediationDeferredReason:
		return Step{Reason: reason, Text: fmt.Sprintf("%s tries again by itself (%s)", owner, reason)}
	case reason == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		return Step{Reason: reason, Manual: true, Text: fmt.Sprintf("end what keeps %s from replacing the machine, or replace it by hand", owner)}
	default:
		return Step{Reason: OwnerActs, Text: fmt.Sprintf("%s goes on (%s)", owner, reason)}
	}
}

// actsInstead names the other controller that acts on a machine when it is unhealthy; empty if none does.
func actsInstead(facts *machines.Facts, machine *machines.Target) string {
	switch {
	case machine.OlderCheck != "":
		return "MachineHealthCheck " + machine.OlderCheck
	case facts.ActsInCore():
		return "Cluster API core"
	}
	return ""
}

// machineExpires is what happens when the timeout of a machine expires. It does whether its node can be seen by then or not.
func machineExpires(facts *machines.Facts, d *machines.Decision, target *Target, at time.Time) Step {
	next := Step{At: at, Reason: TimeoutExpires, Text: CountsThen(target)}
	if actor := actsInstead(facts, d.Target); actor != "" {
		next.Text += ", and " + actor + " acts on it"
		return next
	}
	left := slices.IndexFunc(d.Blockers, func(blocker machines.Blocker) bool {
		return blocker.Rule != machines.WithinTimeout && !(d.Verdict.State == health.Unknown && blocker.Rule.Unjudged())
	})
	switch {
	case left >= 0:
		next.Text += StillBlocked(&d.Blockers[left].Blocker)
	case facts.NeedsSpare(d.Target):
		next.Text += ", and kubemend " + target.Action.Message + ", as soon as a host fits its replacement"
	default:
		next.Text += ", and kubemend " + target.Action.Message
	}
	return next
}

// CountsThen is that a pending target counts as unhealthy when its timeout expires.
func CountsThen(target *Target) string {
	if first := firstToExpire(target.Findings); first != nil {
		return "it counts as unhealthy unless " + first.unless()
	}
	return "it counts as unhealthy if nothing changes"
}

// StillBlocked is that a rule blocks a remediation also when the timeout has expired, or that it is not known what happens then.
func StillBlocked(blocker *Blocker) string {
	if blocker.Reason == MissingPermission {
		return "; the action then is not known with your rights"
	}
	text := "; its remediation is still blocked then by " + named(blocker)
	if blocker.EndsWhen != "" {
		text += ", until " + blocker.EndsWhen
	}
	return text
}

// Ended is the step that ends a blocker which time does not end. That fewer targets are unhealthy, nobody sees to but a person.
func Ended(blocker *Blocker) Step {
	if blocker.Reason == string(budget.TooMany) && blocker.Cause != string(budget.TooFew) { // of both kinds of checks
		text := "repair what the unhealthy ones have in common"
		if blocker.EndsWhen != "" { // what a manager wrote on a Machine does not have it
			text += "; remediation resumes when " + blocker.EndsWhen
		}
		return Step{Reason: blocker.Reason, Manual: true, Text: text}
	}
	return Step{Reason: blocker.Reason, Text: Resumes(blocker)}
}

// Resumes is when a blocker ends, as far as that can be said, else what it is.
func Resumes(blocker *Blocker) string {
	if blocker.EndsWhen != "" {
		return "blocked. Resumes when " + blocker.EndsWhen
	}
	return "blocked by " + named(blocker)
}

// named is the reason of a blocker, with its numbers or name.
func named(blocker *Blocker) string {
	if blocker.Detail == "" {
		return blocker.Name()
	}
	return blocker.Reason + " (" + blocker.Detail + ")"
}
