package explain

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// nextOf is the next thing that happens to the machine of d, or what a person has to do.
func nextOf(f *machines.Facts, d *machines.Decision, is *Target) Step {
	switch {
	case (is.State == health.Unhealthy || is.State == health.Unknown) && d.Target.Deleting:
		return Step{Reason: MachineBeingDeleted, Text: "nothing, until it is gone"}
	case is.StartsNow || is.InFlight:
		return remediationNext(f, d.Target, is)
	case is.State == health.Healthy:
		return Step{}
	}
	if at := expires(d); !at.IsZero() {
		return machineExpires(f, d, is, at)
	}
	if actor := actsInstead(f, d.Target); actor != "" && is.State == health.Unhealthy {
		return Step{Reason: OtherControllerActs, Text: actor + " acts on it"}
	}
	for i := range is.Blockers {
		if b := &is.Blockers[i]; b.Fix != "" && (b.Reason != NotActing || !actsInCore(f)) {
			return Step{Reason: b.Reason, Text: b.Fix, Manual: true}
		}
	}
	if len(is.Blockers) == 0 {
		return Step{}
	}
	return Step{Reason: is.Blockers[0].Reason, Text: "nothing, " + until(&is.Blockers[0])}
}

// remediationNext is what happens next to t, whose remediation starts or is in flight.
func remediationNext(f *machines.Facts, t *machines.Target, is *Target) Step {
	ownerAsked := t.Owner != machines.NotAsked
	switch {
	case is.StartsNow && !f.Template.External && t.OwnerKind == "":
		return Ownerless
	case is.StartsNow:
		return Step{At: f.Now, Reason: RemediationStarts, Text: "kubemend " + is.Action}
	case f.Template.Unread && !ownerAsked:
		return Step{Reason: RemediatorActs, Text: fmt.Sprintf("its %s goes on, which could not be read with your rights", f.Template.Kind)}
	case t.RequestFacts == nil || ownerAsked: // if there is a request, the owner was asked after it
		return byOwner(t)
	}
	return Step{Reason: RemediatorActs, Text: fmt.Sprintf("%s goes on; the request is deleted as soon as the machine is healthy", is.Requests[0])}
}

// Ownerless is what there is to do about a machine that its owner is asked to replace and that has none.
var Ownerless = Step{Reason: NoOwner, Text: "it has no owner that could replace it: delete it by hand, or give the check a template", Manual: true}

// byOwner is what the owner of t, which was asked to replace it, does next, by what it has reported so far. (Cluster API: the owners of all kinds
// have the same reasons.)
func byOwner(t *machines.Target) Step {
	if t.OwnerKind == "" {
		return Ownerless
	}
	asked, owner := t.OwnerReport, t.OwnerKind+" "+t.OwnerName
	if asked == nil || asked.Status != "False" || asked.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		return Step{Reason: OwnerActs, Text: "its owner replaces it, or says in OwnerRemediated why it does not"}
	}
	reports := asked.Reason
	if message := strings.Join(strings.Fields(strings.TrimPrefix(asked.Message, "* ")), " "); message != "" {
		reports = strings.TrimSuffix(message, ".")
	}
	switch {
	case putOff(t):
		return Step{Reason: asked.Reason, Text: fmt.Sprintf("its owner, %s, has put it off and tries again: %s", owner, reports)}
	case refused(t):
		return Step{Reason: asked.Reason, Manual: true,
			Text: fmt.Sprintf("its owner, %s, cannot replace it (%s): end that, or replace the machine by hand", owner, reports)}
	}
	return Step{Reason: OwnerActs, Text: fmt.Sprintf("its owner, %s, goes on: %s", owner, reports)}
}

// putOff reports whether the owner of t, which was asked to replace it, tries that again later. (Cluster API: the owners of all kinds have the same reason.)
func putOff(t *machines.Target) bool {
	return answered(t, clusterv1.MachineSetMachineRemediationDeferredReason)
}

// refused reports whether the owner of t, which was asked to replace it, cannot.
func refused(t *machines.Target) bool {
	return answered(t, clusterv1.MachineSetMachineCannotBeRemediatedReason)
}

// answered reports whether the owner of t, which was asked to replace it, has not for a reason.
func answered(t *machines.Target, reason string) bool {
	asked := t.OwnerReport
	return t.Owner != machines.NotAsked && asked != nil && asked.Status == "False" && asked.Reason == reason
}

// actsInstead names the other controller that acts on t when it is unhealthy; empty if none does.
func actsInstead(f *machines.Facts, t *machines.Target) string {
	switch {
	case t.OlderCheck != "":
		return "MachineHealthCheck " + t.OlderCheck
	case actsInCore(f):
		return "Cluster API core"
	}
	return ""
}

// expires is when the timeout of a machine expires; zero if none is running.
func expires(d *machines.Decision) time.Time {
	for _, b := range d.Blockers {
		if b.Reason == machines.WithinTimeout {
			return b.Until
		}
	}
	return time.Time{}
}

// machineExpires is what happens when the timeout of a machine expires. It does whether its node can be seen by then or not.
func machineExpires(f *machines.Facts, d *machines.Decision, is *Target, at time.Time) Step {
	next := Step{At: at, Reason: TimeoutExpires, Text: "it counts as unhealthy if nothing changes"}
	if actor := actsInstead(f, d.Target); actor != "" {
		next.Text += ", and " + actor + " acts on it"
		return next
	}
	for i, b := range d.Blockers {
		switch {
		case b.Reason == machines.WithinTimeout, d.Verdict.State == health.Unknown && b.Reason.Unjudged():
		case is.Blockers[i].Reason == MissingPermission:
			next.Text += ActionNotReadable
			return next
		default:
			next.Text += "; as things stand nothing is done about it then, " + until(&is.Blockers[i])
			return next
		}
	}
	next.Text += ", and kubemend " + is.Action
	return next
}

// until is how long b lasts, as far as that can be said, else what it is.
func until(b *Blocker) string {
	if b.EndsWhen != "" {
		return "until " + b.EndsWhen
	}
	return "since " + Clause(b.Text)
}
