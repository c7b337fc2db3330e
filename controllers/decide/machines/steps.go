package machines

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Step is what is done about a machine, besides setting its conditions.
type Step string

const (
	// NoStep does nothing.
	NoStep Step = ""
	// RequestOwnerRemediation asks the owner of the machine to remediate it, which is a condition.
	RequestOwnerRemediation Step = "request owner remediation"
	// CreateRequest creates a remediation request.
	CreateRequest Step = "create request"
	// AdoptRequest makes a request that exists one of this check.
	AdoptRequest Step = "adopt request"
	// DeleteRequest deletes the request of a machine that is healthy again.
	DeleteRequest Step = "delete request"
	// Release removes what checks have set on a machine that is not to be judged any more.
	Release Step = "release"
)

// The conditions of a Machine that a check sets.
const (
	HealthCheckSucceeded = clusterv1.MachineHealthCheckSucceededCondition
	OwnerRemediated      = clusterv1.MachineOwnerRemediatedCondition
	ExternallyRemediated = clusterv1.MachineExternallyRemediatedCondition

	waitingForRemediation       = clusterv1.MachineExternallyRemediatedWaitingForRemediationReason // and OwnerRemediated has the same
	remediationTemplateNotFound = clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason
	requestCreationFailed       = clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason
)

// reasons are those of HealthCheckSucceeded for what was found.
var reasons = map[health.Reason]string{
	health.MarkedByHand:     clusterv1.MachineHealthCheckHasRemediateAnnotationReason,
	health.MachineFailed:    clusterv1.MachineHealthCheckUnhealthyMachineReason,
	health.MachineCondition: clusterv1.MachineHealthCheckUnhealthyMachineReason,
	health.NodeDeleted:      clusterv1.MachineHealthCheckNodeDeletedReason,
	health.NodeStartup:      clusterv1.MachineHealthCheckNodeStartupTimeoutReason,
	health.NodeCondition:    clusterv1.MachineHealthCheckUnhealthyNodeReason,
}

// step decides what to do about the machine of d, and which conditions to set.
//
// Nothing is set on a machine that an older check acts on. A pending or unknown machine keeps its request and the conditions of Cluster
// API: a node on its way from Unknown to False must not lose its remediation halfway.
func step(facts *Facts, plan *Plan, d *Decision) {
	switch d.Verdict.State {
	case health.Healthy:
		healthyStep(facts, d)
	case health.Unhealthy:
		unhealthyStep(facts, plan, d)
	case health.Starting, health.Pending, health.Unknown:
	}
	if d.Target.OlderCheck != "" || Deleting(d.Target.Machine) {
		return
	}
	if d.Verdict.State == health.Healthy || d.Verdict.State == health.Unhealthy {
		spareCondition(facts, d)
	}
	remediationCondition(facts, d)
}

func healthyStep(facts *Facts, d *Decision) {
	t := d.Target
	if Deleting(t.Machine) {
		return
	}
	switch {
	case t.RequestDeleting():
	case t.Ownership == OwnRequest:
		d.Step = DeleteRequest
	case t.Ownership == AdoptableRequest && t.OlderCheck == "": // only what is ours is deleted, so what is adopted is deleted by the next reconcile
		d.Step = AdoptRequest
	}
	if t.OlderCheck != "" || MarkedHealthy(t.Machine) && d.Step != DeleteRequest {
		return
	}
	d.set(HealthCheckSucceeded, metav1.ConditionTrue, clusterv1.MachineHealthCheckSucceededReason, "")
	if !providerReports(t.Machine) || t.Ownership != ForeignRequest && facts.Template.Known {
		d.remove(ExternallyRemediated) // the report on a request of somebody else is not ours
	}
}

func unhealthyStep(facts *Facts, plan *Plan, d *Decision) {
	t := d.Target
	if t.OlderCheck != "" || Deleting(t.Machine) || awaits(facts, d) {
		return // the conditions of a machine that is being deleted say why; that its node goes is no news
	}
	due := d.Verdict.Due(facts.Now)
	if len(due) > 0 {
		d.set(HealthCheckSucceeded, metav1.ConditionFalse, reasons[due[0].Reason], "") // the rules are in order of precedence
	}
	if outdated(facts, d) {
		d.remove(OwnerRemediated)
	}
	if facts.Template.External {
		externalStep(facts, d)
		return
	}
	if d.Starts() {
		d.Step = RequestOwnerRemediation
	}
	if d.Starts() || d.InFlight && !plan.Grant.ShortCircuited() {
		d.set(OwnerRemediated, metav1.ConditionFalse, waitingForRemediation, "Waiting for remediation")
	}
	d.remove(ExternallyRemediated) // of a template that the check does not name any more
}

// awaits reports whether an unhealthy machine is not marked yet, as more is known in a moment.
func awaits(facts *Facts, d *Decision) bool {
	if facts.Template.Syncing && Failed(d.Target.Machine) == nil {
		// A manager that crashed may have created a request and set no condition. Marked unhealthy before that request is observed, the machine
		// would look as if the provider had removed its report.
		return true
	}
	// Until it is known whether its owner is to remediate it, the owner must neither act on what it was asked before nor forget it.
	return askedWhileHealthy(d.Target.Machine) && !facts.Template.External && (d.Blocked(JustSeen) || d.Blocked(PowerCyclesUnread))
}

// outdated reports whether it is outdated that the owner of the machine was asked.
func outdated(facts *Facts, d *Decision) bool {
	t := d.Target
	if d.InFlight { // a provider whose request came to nothing asks the owner too
		return false
	}
	created := d.Tried && t.Unusable == nil
	return askedWhileHealthy(t.Machine) && (facts.Template.External || !d.Starts()) || created && OwnerOf(t.Machine) != NotAsked
}

// externalStep decides what becomes of the request of an unhealthy machine. While there is a request the condition is the provider's to update
// or to delete.
func externalStep(facts *Facts, d *Decision) {
	t := d.Target
	switch {
	case t.Ownership == ForeignRequest:
		d.set(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, facts.foreignRequest(t))
	case t.Ownership != NoRequest:
		existingStep(d)
	case facts.Template.Refused:
		d.set(ExternallyRemediated, metav1.ConditionFalse, remediationTemplateNotFound, facts.noTemplate())
	case facts.Template.Missing != "": // a request that exists needs its template no more
		d.set(ExternallyRemediated, metav1.ConditionFalse, remediationTemplateNotFound,
			fmt.Sprintf("Error retrieving remediation template %s %s/%s", facts.Template.TemplateKind, facts.Check.Namespace, facts.Template.Name))
	case d.Tried && t.Unusable != nil:
		d.set(ExternallyRemediated, metav1.ConditionFalse, requestCreationFailed, t.Unusable.Error())
	case d.Starts(), d.Begun: // what this process created the caches may not show yet
		if d.Starts() {
			d.Step = CreateRequest
		}
		if !providerReports(t.Machine) {
			d.set(ExternallyRemediated, metav1.ConditionFalse, waitingForRemediation, "")
		}
	case facts.Template.Known && !d.Blocked(JustSeen) && templateNotFound(t): // it is not its turn yet, and what blocked it is over
		d.remove(ExternallyRemediated)
	}
}

// templateNotFound reports whether the conditions of t say that no request could be made since there was no template.
func templateNotFound(t *Target) bool {
	cond := ConditionOf(t, ExternallyRemediated)
	return cond != nil && cond.Reason == remediationTemplateNotFound
}

// existingStep is about a machine whose request exists and is this check's, or will be.
func existingStep(d *Decision) {
	t := d.Target
	if t.Ownership == AdoptableRequest && !t.RequestDeleting() {
		d.Step = AdoptRequest
	}
	if RequestFailed(t.Machine) || !providerReports(t.Machine) && (d.Step == AdoptRequest || Failed(t.Machine) == nil) { // created by a reconcile that ended before it set the condition
		d.set(ExternallyRemediated, metav1.ConditionFalse, waitingForRemediation, "")
	}
}

func (d *Decision) set(kind string, status metav1.ConditionStatus, reason, message string) {
	d.Conditions = append(d.Conditions, condition(kind, status, reason, message))
}

func (d *Decision) remove(kind string) {
	d.Conditions = append(d.Conditions, metav1.Condition{Type: kind})
}

// Sets reports whether d sets a condition to a status.
func (d *Decision) Sets(kind string, status metav1.ConditionStatus) bool {
	for _, c := range d.Conditions {
		if c.Type == kind && c.Status == status {
			return true
		}
	}
	return false
}

// Idle reports whether d does nothing. Whether a condition is there already is found out when it is written.
func (d *Decision) Idle() bool { return d.Step == NoStep && len(d.Conditions) == 0 }

// releases are the decisions about the machines that their users want left alone, and that have conditions of a check that are not good.
func releases(facts *Facts) []*Decision {
	var all []*Decision
	for _, t := range facts.Skipped {
		if Marked(t.Machine) && t.OlderCheck == "" && !Deleting(t.Machine) {
			all = append(all, &Decision{Target: t, Step: Release})
		}
	}
	return all
}

// NotCreated are the conditions of a machine whose request could not be created, and why.
func NotCreated(why error) []metav1.Condition {
	return []metav1.Condition{
		{Type: ExternallyRemediated, Status: metav1.ConditionFalse, Reason: requestCreationFailed, Message: why.Error()},
		{Type: mendv1.Remediation, Status: metav1.ConditionFalse, Reason: requestCreationFailed, Message: why.Error()},
	}
}

// WithRequest is the decision about the machine of d, as t states it with a request that was not observed when d was decided on these
// facts. Marked unhealthy without it, the machine would look as if the provider had removed its report.
func WithRequest(facts *Facts, d *Decision, t *Target) *Decision {
	next := &Decision{Target: t, Verdict: d.Verdict, InFlight: t.Ownership != ForeignRequest}
	unhealthyStep(&Facts{Now: facts.Now, Check: facts.Check, Template: facts.Template}, &Plan{}, next)
	return next
}
