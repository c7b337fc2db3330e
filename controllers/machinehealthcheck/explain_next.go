package machinehealthcheck

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

func machineNext(facts *Facts, d *Decision, target *explain.Target) explain.Step {
	switch {
	case (target.State == cliv1.StateUnhealthy || target.State == cliv1.StateUnknown) && Deleting(d.Target.Machine):
		return explain.Step{Reason: explain.MachineBeingDeleted, Text: "the Machine controller deletes it"}
	case target.StartsNow || target.InFlight:
		return remediationNext(facts, d.Target, target)
	case target.State == cliv1.StateHealthy:
		return explain.Step{}
	}
	within := target.Blocker(explain.WithinTimeout)
	if within != nil && !within.Until.IsZero() {
		return machineExpires(facts, d, target, within.Until)
	}
	if actor := actsInstead(facts, d.Target); actor != "" && target.State == cliv1.StateUnhealthy {
		return explain.Step{Reason: explain.OtherControllerActs, Text: actor + " acts on it"}
	}
	return blockedNext(facts, target, within)
}

// blockedNext is what ends the blockers of a machine, or what a person has to do. Within says that no timeout counts yet; nil if one has
// expired.
func blockedNext(facts *Facts, target *explain.Target, within *explain.Blocker) explain.Step {
	for i := range target.Blockers {
		if blocker := &target.Blockers[i]; blocker.Fix != "" && (blocker.Reason != explain.NotActing || !facts.ActsInCore()) {
			return explain.Step{Reason: blocker.Reason, Text: blocker.Fix, Manual: true}
		}
	}
	switch {
	case len(target.Blockers) == 0:
		return explain.Step{}
	case within != nil: // and no timeout is running
		return explain.Step{Reason: explain.WithinTimeout, Text: "nothing counts before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0"}
	}
	first := &target.Blockers[0]
	if first.Next != "" {
		return explain.Step{At: first.Until, Reason: first.Reason, Text: first.Next}
	}
	return explain.Ended(first)
}

func remediationNext(facts *Facts, machine *Target, target *explain.Target) explain.Step {
	ownerAsked := OwnerOf(machine.Machine) != NotAsked
	switch {
	case target.StartsNow:
		return explain.Step{At: facts.Now, Reason: explain.RemediationStarts, Text: "kubemend " + target.Action.Message}
	case machine.Request == nil || ownerAsked: // if there is a request, the owner was asked after it
		return ownerNext(machine)
	}
	return explain.Step{
		Reason: explain.RemediatorActs,
		Text:   fmt.Sprintf("%s goes on; the request is deleted as soon as the machine is healthy", target.Requests[0]),
	}
}

// ownerNext is what the owner of a machine, which was asked to replace it, does next, by what it has reported so far.
func ownerNext(machine *Target) explain.Step {
	ref := metav1.GetControllerOf(machine)
	owner := ref.Kind + " " + ref.Name
	switch reason := OwnerAnswer(machine.Machine); {
	case reason == "" && machine.OwnerKindSilent:
		return explain.Step{Reason: explain.OwnerActs, Text: owner + " was asked to replace it; whether its controller does that is not known to kubemend"}
	case reason == "":
		return explain.Step{Reason: explain.OwnerActs, Text: owner + " replaces it, or reports in OwnerRemediated why it does not"}
	case reason == clusterv1.MachineSetMachineRemediationDeferredReason:
		return explain.Step{Reason: reason, Text: fmt.Sprintf("%s tries again by itself (%s)", owner, reason)}
	case reason == clusterv1.MachineSetMachineCannotBeRemediatedReason:
		return explain.Step{Reason: reason, Manual: true, Text: fmt.Sprintf("end what keeps %s from replacing the machine, or replace it by hand", owner)}
	default:
		return explain.Step{Reason: explain.OwnerActs, Text: fmt.Sprintf("%s goes on (%s)", owner, reason)}
	}
}

// actsInstead names the other controller that acts on a machine when it is unhealthy; empty if none does.
func actsInstead(facts *Facts, machine *Target) string {
	switch {
	case machine.OlderCheck != "":
		return "MachineHealthCheck " + machine.OlderCheck
	case facts.ActsInCore():
		return "Cluster API core"
	}
	return ""
}

// machineExpires is what happens when the timeout of a machine expires. It does whether its node can be seen by then or not.
func machineExpires(facts *Facts, d *Decision, target *explain.Target, at time.Time) explain.Step {
	next := explain.Step{At: at, Reason: explain.TimeoutExpires, Text: explain.CountsThen(target)}
	if actor := actsInstead(facts, d.Target); actor != "" {
		next.Text += ", and " + actor + " acts on it"
		return next
	}
	left := slices.IndexFunc(d.Blockers, func(blocker Blocker) bool {
		return blocker.Rule != WithinTimeout && !(d.Verdict.State == health.Unknown && blocker.Rule.Unjudged())
	})
	switch {
	case left >= 0:
		next.Text += explain.StillBlocked(&d.Blockers[left].Blocker)
	case facts.NeedsSpare(d.Target):
		next.Text += ", and kubemend " + target.Action.Message + ", as soon as a host fits its replacement"
	default:
		next.Text += ", and kubemend " + target.Action.Message
	}
	return next
}
