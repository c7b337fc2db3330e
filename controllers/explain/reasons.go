package explain

import (
	"strings"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// The reasons of blockers of machines on which pages and answers depend.
const (
	NotActing              = "NotActing"
	MachineBeingDeleted    = "MachineBeingDeleted"
	AwaitsClusterAPI       = "AwaitsClusterAPI"
	WithinTimeout          = "WithinTimeout"
	RemediationUnderWay    = "RemediationUnderWay"
	RemediationsInProgress = "RemediationsInProgress"
	OtherCheckRemediates   = "OtherCheckRemediates"
	// NotJudged is that the manager has written nothing on a machine yet.
	NotJudged         = "NotJudged"
	NotRead           = "NotRead"
	MissingPermission = rule.MissingPermission
)

// The reasons of steps that are not reasons of blockers, conditions or power cycles.
const (
	// RemediationStarts is that kubemend begins a remediation.
	RemediationStarts = "RemediationStarts"
	// TimeoutExpires is that the target counts as unhealthy.
	TimeoutExpires = "TimeoutExpires"
	// OwnerActs is that the owner of the machine replaces it.
	OwnerActs = "OwnerActs"
	// NoOwner is that the machine has no owner that could replace it.
	NoOwner = "NoOwner"
	// RemediatorActs is that the controller of the remediation request goes on.
	RemediatorActs = "RemediatorActs"
	// OtherControllerActs is that another controller acts on the target: Cluster API core, or the one of an older check.
	OtherControllerActs = "OtherControllerActs"
	// BeingDeleted is that a check is being deleted.
	BeingDeleted = "BeingDeleted"
	// Skipped is that a user has annotated the target.
	Skipped = "Skipped"
	// NotSelected is that no check selects the object.
	NotSelected = "NotSelected"
	// NoRule is that a node is not Ready, and no check that selects it looks at that.
	NoRule = "NoRuleMatches"
	// HostOutOfService is that a host is marked unhealthy, and no machine is put on it.
	HostOutOfService = "OutOfService"
	// LimitAllowsNone is that the limit of a check allows none of its targets to be unhealthy.
	LimitAllowsNone = "LimitAllowsNone"
	// NothingExpected is that nothing happens until something changes.
	NothingExpected = "NothingExpected"
	// ReadAgain is that what could not be read is read again.
	ReadAgain = "ReadAgain"
	// CooldownEnds is that the cooldown after a storm is over.
	CooldownEnds = "CooldownEnds"
	// ConfirmationAwaited is that a user has to confirm that a node is healthy.
	ConfirmationAwaited = "ConfirmationAwaited"
	// NodeStaysAway is that the request of a node that is gone is deleted.
	NodeStaysAway = "NodeStaysAway"
	// RequestsDeleted is that kubemend deletes the requests of a target.
	RequestsDeleted = "RequestsDeleted"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
	NoConnection               = "no connection: " // and the error
)

// Silent reports whether it was read in vain, why so, since a cluster does not answer: that says nothing about rights.
func Silent(why string) bool { return why == NoAnswer || strings.HasPrefix(why, NoConnection) }
