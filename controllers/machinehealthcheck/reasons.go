package machinehealthcheck

import (
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/explain"
)

// Reason names a rule. Where a condition or an event says the same, it has the same reason.
type Reason string

// The rules, which say below what they mean.
const (
	MachineDeleting            Reason = explain.MachineBeingDeleted
	OlderCheckActs             Reason = "OverlappingCheck"
	OtherCheckRemediates       Reason = explain.OtherCheckRemediates
	NotActing                  Reason = explain.NotActing
	ControlPlaneNotInitialized Reason = "ControlPlaneNotInitialized"
	InfrastructureNotReady     Reason = "InfrastructureNotReady"
	ManagerClockWrong          Reason = "ManagerClockWrong"
	ClusterUnreachable         Reason = "WorkloadClusterUnreachable"
	AwaitsClusterAPI           Reason = explain.AwaitsClusterAPI
	NodeNotSeen                Reason = "NodeNotSeen"
	WithinTimeout              Reason = explain.WithinTimeout
	MachineUpdating            Reason = "MachineBeingUpdated"
	NoOwner                    Reason = mendv1.NoOwnerReason
	HostExternal               Reason = "HostExternallyProvisioned"
	HostPaused                 Reason = "HostPaused"
	PowerCycleInProgress       Reason = explain.RemediationUnderWay
	PowerCyclesUnread          Reason = "PowerCyclesUnread"
	RemediationLoop            Reason = "RemediationLoop"
	FailureContradicted        Reason = "FailureContradicted"
	JustSeen                   Reason = "JustSeen"
	OtherCheckUnheard          Reason = "OtherCheckUnheard"
	OtherCheckGoesFirst        Reason = "OtherCheckGoesFirst"
	InvalidLimit               Reason = "InvalidLimit"
	TooManyUnhealthy           Reason = "TooManyUnhealthy"
	TooFewUnhealthy            Reason = "TooFewUnhealthy"
	CoolingDown                Reason = "CoolingDown"
	NoneAtOnce                 Reason = "NoneAtOnce"
	RemediationsInProgress     Reason = explain.RemediationsInProgress
	RequestInTheWay            Reason = "RequestInTheWay"
	TemplateRefused            Reason = "TemplateRefused"
	TemplateMissing            Reason = "TemplateMissing"
	RequestsUnread             Reason = "RequestsUnread"
	TemplateUnusable           Reason = "TemplateUnusable"
	NoSpareHost                Reason = "NoSpareHost"
	SpareHostsUnread           Reason = "SpareHostsUnread"
	NotUnhealthy               Reason = "NotUnhealthy"
)

// NotRead is the reason that users see where requests, or power cycles, cannot be read.
const NotRead = explain.NotRead

// Unjudged reports whether r says why a machine could not be judged.
func (r Reason) Unjudged() bool {
	switch r {
	case ControlPlaneNotInitialized, InfrastructureNotReady, ManagerClockWrong, ClusterUnreachable, AwaitsClusterAPI, NodeNotSeen:
		return true
	}
	return false
}
