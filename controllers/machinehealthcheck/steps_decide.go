package machinehealthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Step is the action on a machine, besides setting its conditions.
type Step string

const (
	// NoStep does nothing.
	NoStep Step = ""
	// RequestOwnerRemediation sets the condition that asks the owner to remediate the machine.
	RequestOwnerRemediation Step = "request owner remediation"
	// CreateRequest creates a remediation request.
	CreateRequest Step = "create request"
	// AdoptRequest makes an existing request this check's own.
	AdoptRequest Step = "adopt request"
	// DeleteRequest deletes the request of a machine that is healthy again.
	DeleteRequest Step = "delete request"
)

// The conditions of a Machine that a check sets.
const (
	HealthCheckSucceeded = clusterv1.MachineHealthCheckSucceededCondition
	OwnerRemediated      = clusterv1.MachineOwnerRemediatedCondition
	ExternallyRemediated = clusterv1.MachineExternallyRemediatedCondition

	waitingForRemediation       = clusterv1.MachineExternallyRemediatedWaitingForRemediationReason // OwnerRemediated has the same reason
	remediationTemplateNotFound = clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason
	requestCreationFailed       = clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason
)

// reasons are the reasons of HealthCheckSucceeded, in both API versions, with the precedence of the findings.
var reasons = map[health.Reason]struct {
	order           int
	reason, v1beta1 string
}{
	health.MarkedByHand: {
		0, clusterv1.MachineHealthCheckHasRemediateAnnotationReason, clusterv1.HasRemediateMachineAnnotationV1Beta1Reason,
	},
	health.MachineFailed:    {1, clusterv1.MachineHealthCheckUnhealthyMachineReason, clusterv1.MachineHasFailureV1Beta1Reason},
	health.MachineCondition: {2, clusterv1.MachineHealthCheckUnhealthyMachineReason, clusterv1.UnhealthyMachineConditionV1Beta1Reason},
	health.NodeDeleted:      {3, clusterv1.MachineHealthCheckNodeDeletedReason, clusterv1.NodeNotFoundV1Beta1Reason},
	health.NodeStartup:      {4, clusterv1.MachineHealthCheckNodeStartupTimeoutReason, clusterv1.NodeStartupTimeoutV1Beta1Reason},
	health.NodeCondition:    {5, clusterv1.MachineHealthCheckUnhealthyNodeReason, clusterv1.UnhealthyNodeConditionV1Beta1Reason},
}

// stepFor decides on the step for a machine and on its conditions.
//
// It sets nothing on a machine that an older check acts on. A pending or unknown machine keeps its request and the conditions of Cluster
// API, so that a node whose Ready turns from Unknown to False does not lose its remediation halfway.
func stepFor(facts *Facts, plan *Plan, decision *Decision) {
	if Deleting(decision.Target.Machine) { // deletion removes the node: that is no new failure
		return
	}
	switch decision.Verdict.State {
	case health.Healthy:
		healthyStep(facts, decision)
	case health.Unhealthy:
		unhealthyStep(facts, plan, decision)
	case health.Starting, health.Pending, health.Unknown:
	}
	if decision.Target.OlderCheck != "" || decision.outranked(facts.Now) {
		return
	}
	if decision.Verdict.State == health.Healthy || decision.Verdict.State == health.Unhealthy {
		spareCondition(facts, decision)
	}
	remediationCondition(facts, decision)
}

func healthyStep(facts *Facts, decision *Decision) {
	target := decision.Target
	switch {
	case target.RequestDeleting():
	case target.Ownership == OwnRequest:
		decision.Step = DeleteRequest
	case target.Ownership == AdoptableRequest && target.OlderCheck == "":
		decision.Step = AdoptRequest // the next reconcile deletes it, as only own requests are deleted
	}
	if target.OlderCheck != "" || MarkedHealthy(target.Machine) && decision.Step != DeleteRequest {
		return
	}
	if slices.ContainsFunc(target.Others, func(other Opinion) bool { return !other.Healthy || other.InFlight }) {
		healthyByThisAlone(facts, decision)
		return
	}
	decision.set(HealthCheckSucceeded, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason, "")
	if !providerReports(target.Machine) || target.Ownership != ForeignRequest && facts.Template.Known {
		decision.remove(ExternallyRemediated) // if the request is another maker's, the report of its provider stays
	}
}

// healthyByThisAlone handles a machine that this check finds healthy and another check does not. An owner acts on any failed health check.
// If only this check asked the owner, the request to the owner is withdrawn.
func healthyByThisAlone(facts *Facts, decision *Decision) {
	target := decision.Target
	if held := decision.Held(facts.Now); len(held) > 0 && MarkedUnhealthy(target.Machine) {
		decision.set(HealthCheckSucceeded, metav1.ConditionFalse, reasons[held[0].Reason].reason, "")
	}
	if OwnerOf(target.Machine) != NotAsked && target.unheard() == nil && target.remediatedBy() == nil {
		decision.remove(OwnerRemediated)
	}
}

func unhealthyStep(facts *Facts, plan *Plan, decision *Decision) {
	target := decision.Target
	if target.OlderCheck != "" || awaits(facts, decision) {
		return
	}
	if held := decision.Held(facts.Now); len(held) > 0 {
		decision.set(HealthCheckSucceeded, metav1.ConditionFalse, reasons[held[0].Reason].reason, "")
	}
	if outdated(facts, decision) {
		decision.remove(OwnerRemediated)
	}
	if decision.outranked(facts.Now) {
		return
	}
	if facts.Template.External {
		externalStep(facts, decision)
		return
	}
	if decision.Starts() {
		decision.Step = RequestOwnerRemediation
	}
	if decision.Starts() || decision.InFlight && !plan.Grant.ShortCircuited() {
		decision.set(OwnerRemediated, metav1.ConditionFalse, waitingForRemediation, "Waiting for remediation")
	}
	decision.remove(ExternallyRemediated) // from a template that the check named before
}

// awaits reports whether an unhealthy machine is not marked yet, because more is known in a moment.
func awaits(facts *Facts, decision *Decision) bool {
	if facts.Template.Syncing && Failed(decision.Target.Machine) == nil {
		// A manager that crashed may have created a request without setting a condition. Marked unhealthy before that request is read, the
		// machine would look as if the provider had removed its report.
		return true
	}
	// Until it is known whether the owner is to remediate the machine, the owner must neither act on an old request nor drop it.
	unknown := decision.PutOff.Reason != "" || decision.Blocked(PowerCyclesUnread)
	return unknown && askedWhileHealthy(decision.Target.Machine) && !facts.Template.External
}

// outdated reports whether the owner was asked for a remediation that is not wanted any more.
func outdated(facts *Facts, decision *Decision) bool {
	target := decision.Target
	if decision.InFlight { // a provider whose request has failed asks the owner too
		return false
	}
	created := decision.Tried && target.Unusable == nil
	return askedWhileHealthy(target.Machine) && (facts.Template.External || !decision.Starts()) ||
		created && OwnerOf(target.Machine) != NotAsked
}

// externalStep decides on the request of an unhealthy machine. While a request exists, its provider updates or deletes the condition.
func externalStep(facts *Facts, decision *Decision) {
	target := decision.Target
	switch {
	case target.Ownership == ForeignRequest:
		decision.set(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, facts.foreignRequest(target))
	case target.Ownership != NoRequest:
		existingStep(decision)
	case facts.Template.Refused:
		decision.set(ExternallyRemediated, metav1.ConditionFalse, remediationTemplateNotFound, facts.noTemplate())
	case facts.Template.Missing != "": // an existing request needs no template
		decision.set(ExternallyRemediated, metav1.ConditionFalse, remediationTemplateNotFound,
			fmt.Sprintf("Error retrieving remediation template %s %s/%s",
				facts.Template.TemplateKind, facts.Check.Namespace, facts.Template.Name))
	case decision.Tried && target.Unusable != nil:
		decision.set(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, target.Unusable.Error())
	case decision.Starts():
		decision.Step = CreateRequest
		if !providerReports(target.Machine) {
			decision.set(ExternallyRemediated, metav1.ConditionFalse, waitingForRemediation, "")
		}
	case facts.Template.Known && decision.PutOff.Reason == "":
		// The machine waits, but no longer for a template.
		if cond := ConditionOf(target, ExternallyRemediated); cond != nil && cond.Reason == remediationTemplateNotFound {
			decision.remove(ExternallyRemediated)
		}
	}
}

// existingStep handles a machine whose request is this check's or will be adopted.
func existingStep(decision *Decision) {
	target := decision.Target
	if target.Ownership == AdoptableRequest && !target.RequestDeleting() {
		decision.Step = AdoptRequest
	}
	// The reconcile that created the request may have ended before it set the condition.
	if unannounced := decision.Step == AdoptRequest || Failed(target.Machine) == nil; RequestFailed(target.Machine) ||
		!providerReports(target.Machine) && unannounced {
		decision.set(ExternallyRemediated, metav1.ConditionFalse, waitingForRemediation, "")
	}
}

func (decision *Decision) set(kind string, status metav1.ConditionStatus, reason, message string) {
	decision.Conditions = append(decision.Conditions, condition(kind, status, reason, message))
}

func (decision *Decision) remove(kind string) {
	decision.Conditions = append(decision.Conditions, metav1.Condition{Type: kind})
}

// Sets reports whether decision sets a condition to a status.
func (decision *Decision) Sets(kind string, status metav1.ConditionStatus) bool {
	for _, cond := range decision.Conditions {
		if cond.Type == kind && cond.Status == status {
			return true
		}
	}
	return false
}

// Idle reports whether decision does nothing. Conditions that are already stored are compared only when they are written.
func (decision *Decision) Idle() bool {
	return decision.Step == NoStep && len(decision.Conditions) == 0
}

// remediationCondition sets the condition kubemend.io/Remediation of a machine that is not healthy, and removes it from a healthy one.
// While the verdict is unknown the stored condition stays, so that an outage writes no Machine. An equal condition is not written.
func remediationCondition(facts *Facts, decision *Decision) {
	stored := ConditionOf(decision.Target, mendv1.Remediation)
	switch decision.Verdict.State {
	case health.Unknown:
		return
	case health.Healthy, health.Starting:
		if stored != nil {
			decision.remove(mendv1.Remediation)
		}
		return
	case health.Pending, health.Unhealthy:
	}
	cond := inProgress(facts, decision)
	if cond.Status == "" {
		cond = blockedCondition(decision)
	}
	switch {
	case cond.Status == "", facts.Mode != Active, facts.Template.Syncing:
		return
	case stored == nil:
	case stored.Status == cond.Status && stored.Reason == cond.Reason && said(stored.Message, cond.Message) && !decision.Starts():
		return
	case stored.Status == metav1.ConditionTrue && (decision.Blocked(PowerCyclesUnread) || decision.Blocked(RequestsUnread)):
		return // it cannot be read whether it is still in progress
	}
	decision.Conditions = append(decision.Conditions, cond)
}

// said reports whether stored is message, perhaps followed by the mention of a record.
func said(stored, message string) bool {
	return stored == message || strings.HasPrefix(stored, message+mendv1.RecordMention)
}

// inProgress returns the condition of a machine whose remediation is in progress or begins now, or whose owner cannot do it; else zero.
func inProgress(facts *Facts, decision *Decision) metav1.Condition {
	if !decision.InFlight && !decision.Starts() {
		if cycle := decision.BlockedBy(PowerCycleInProgress); cycle != nil {
			return condition(mendv1.Remediation, metav1.ConditionTrue, cycle.Reason, cycle.Text)
		}
		return metav1.Condition{}
	}
	target := decision.Target
	progress, owner := OwnerOf(target.Machine), metav1.GetControllerOfNoCopy(target.Machine)
	switch byOwner := progress != NotAsked && decision.InFlight || !facts.Template.External; {
	case byOwner && progress == CannotRemediate:
		return condition(mendv1.Remediation, metav1.ConditionFalse, OwnerAnswer(target.Machine),
			"Its owner, "+owner.Kind+" "+owner.Name+", cannot remediate it: the condition "+OwnerRemediated+" says why")
	case byOwner:
		text := "Its owner, " + owner.Kind + " " + owner.Name + ", was asked to remediate it"
		if answer := olderAnswer(target.Machine); answer != nil && OwnerAnswer(target.Machine) == "" {
			text += ". The owner says: " + cmp.Or(answer.Message, answer.Reason)
		}
		if silent := target.silentFrom(); decision.InFlight && !silent.IsZero() && !facts.Now.Before(silent) {
			return condition(mendv1.Remediation, metav1.ConditionFalse, mendv1.OwnerSilentReason,
				text+". The owner has not acted for an hour; the machine blocks no other: repair or delete it by hand, or give the "+
					"check a template")
		}
		return condition(mendv1.Remediation, metav1.ConditionTrue, mendv1.OwnerAskedReason, text)
	}
	return condition(mendv1.Remediation, metav1.ConditionTrue, mendv1.RequestedReason, // the request has the Machine's name
		facts.Template.Kind+" "+target.Name+" is in progress for the machine")
}

// blockedCondition returns the condition that lists the blockers; zero if they end in a moment. A pending machine reports only its timeout:
// the limits change with other machines and do not matter before it expires.
func blockedCondition(decision *Decision) metav1.Condition {
	cond := metav1.Condition{Type: mendv1.Remediation, Status: metav1.ConditionFalse}
	lines, off := make([]string, 0, len(decision.Blockers)), decision.PutOff
	brief := off.Reason != OtherCheckUnheard || off.Recheck.Before(off.Until) // over in a moment
	for i := range decision.Blockers {
		blocker := &decision.Blockers[i]
		switch {
		case blocker.Rule == NotUnhealthy, blocker.Rule == off.Reason && brief:
			continue
		case decision.Verdict.State == health.Pending && blocker.Rule != WithinTimeout:
			continue
		}
		cond.Reason = cmp.Or(cond.Reason, blocker.Reason)
		lines = append(lines, line(&blocker.Blocker))
	}
	if len(lines) == 0 {
		return metav1.Condition{}
	}
	cond.Message = bulleted(lines)
	return cond
}
