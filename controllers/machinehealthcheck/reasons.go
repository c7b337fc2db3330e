package machinehealthcheck

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

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
	ClusterNotFound            Reason = mendv1.ClusterNotFoundReason
	InvalidSelector            Reason = mendv1.InvalidSelectorReason
	InvalidLimit               Reason = mendv1.InvalidLimitReason
	TooManyUnhealthy           Reason = clusterv1.MachineHealthCheckTooManyUnhealthyReason
	TooFewUnhealthy            Reason = "TooFewUnhealthy"
	CoolingDown                Reason = mendv1.CoolingDownReason
	NoneAtOnce                 Reason = mendv1.NoneAtOnceReason
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
