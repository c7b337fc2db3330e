package explain

import (
	"fmt"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// nextOf is the next thing that happens to the machine of d, or what a person has to do.
func nextOf(f *machines.Facts, d *machines.Decision, is *Target) Step {
	switch {
	case (is.State == health.Unhealthy || is.State == health.Unknown) && d.Target.Deleting:
		return Step{Reason: MachineBeingDeleted, Text: "the Machine controller deletes it"}
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
	if b := firstToFix(f, is); b != nil {
		return Step{Reason: b.Reason, Text: b.Fix, Manual: true}
	}
	switch {
	case len(is.Blockers) == 0:
		return Step{}
	case is.BlockedBy(WithinTimeout): // and no timeout is running
		return Step{Reason: WithinTimeout, Text: "nothing counts before its node appears: spec.checks.nodeStartupTimeoutSeconds is 0"}
	}
	first := &is.Blockers[0]
	switch first.Reason {
	case mendv1.CoolingDownReason:
		return Step{At: first.Until, Reason: first.Reason, Text: first.EndsWhen}
	case mendv1.NoSpareHostReason, mendv1.SpareHostsUnreadReason:
		return Step{At: first.Until, Reason: first.Reason, Text: fmt.Sprintf("kubemend %s, or as soon as a host fits its replacement", is.Action)}
	}
	return Step{Reason: first.Reason, Text: resumes(first)}
}

// firstToFix is the first blocker that a person has to end; nil if there is none.
func firstToFix(f *machines.Facts, is *Target) *Blocker {
	for i := range is.Blockers {
		if b := &is.Blockers[i]; b.Fix != "" && (b.Reason != NotActing || !actsInCore(f)) {
			return b
		}
	}
	return nil
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
		return Step{Reason: OwnerActs, Text: owner + " replaces it, or reports in OwnerRemediated why it does not"}
	}
	switch {
	case putOff(t):
		return Step{Reason: asked.Reason, Text: fmt.Sprintf("%s tries again by itself (%s)", owner, asked.Reason)}
	case refused(t):
		return Step{Reason: asked.Reason, Manual: true, Text: fmt.Sprintf("end what keeps %s from replacing the machine, or replace it by hand", owner)}
	}
	return Step{Reason: OwnerActs, Text: fmt.Sprintf("%s goes on (%s)", owner, asked.Reason)}
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
	next := Step{At: at, Reason: TimeoutExpires, Text: countsThen(is)}
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
			next.Text += stillBlocked(&is.Blockers[i])
			return next
		}
	}
	next.Text += ", and kubemend " + is.Action
	if f.NeedsSpare(d.Target) {
		next.Text += ", as soon as a host fits its replacement"
	}
	return next
}

// countsThen is that a pending target counts as unhealthy when its timeout expires.
func countsThen(is *Target) string {
	if first := firstToExpire(is.Findings); first != nil {
		return "it counts as unhealthy unless " + first.unless()
	}
	return "it counts as unhealthy if nothing changes"
}

// stillBlocked is that b blocks a remediation also when the timeout has expired.
func stillBlocked(b *Blocker) string {
	text := "; its remediation is still blocked then by " + named(b)
	if b.EndsWhen != "" {
		text += ", until " + b.EndsWhen
	}
	return text
}

// resumes is when b ends, as far as that can be said, else what it is.
func resumes(b *Blocker) string {
	if b.EndsWhen != "" {
		return "blocked. Resumes when " + b.EndsWhen
	}
	return "blocked by " + named(b)
}

// named is the reason of b, with its numbers or name.
func named(b *Blocker) string {
	if b.Detail == "" {
		return b.Reason
	}
	return b.Reason + " (" + b.Detail + ")"
}
