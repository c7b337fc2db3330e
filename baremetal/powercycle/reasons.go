package powercycle

import "slices"

// Reason is why a step is taken, in one word. It is the reason of conditions and events; docs/reference/conditions.md explains each.
type Reason string

// The reasons of steps. NoOwnerReason is that of a remediation that names no machine, NoStrategyReason that of one that asks for
// nothing: nothing is decided on these.
const (
	AttemptBeganReason         Reason = "AttemptBegan"
	AwaitingReceiptReason      Reason = "AwaitingReceipt"
	BootingReason              Reason = "Booting"
	CancelledReason            Reason = "Cancelled"
	ClusterUnreachableReason   Reason = "ClusterUnreachable"
	EndedReason                Reason = "Ended"
	FailedReason               Reason = "Failed"
	FencedReason               Reason = "Fenced"
	FencingImpossibleReason    Reason = "FencingImpossible"
	OwnerRequestedReason       Reason = "OwnerRequested"
	RequestingOwnerReason      Reason = "RequestingOwner"
	HostExternalReason         Reason = "HostExternallyProvisioned"
	HoldRemovedReason          Reason = "HoldRemoved"
	HostGoneReason             Reason = "HostGone"
	HostKeptOffReason          Reason = "HostKeptOff"
	HostReleasedByOthersReason Reason = "HostReleasedByOthers"
	HostMismatchReason         Reason = "HostMismatch"
	HostNotReadyReason         Reason = "HostNotReady"
	HostServicedReason         Reason = "HostServiced"
	HostSwitchedOffReason      Reason = "HostSwitchedOff"
	TeardownReason             Reason = "Teardown"
	MachineDeletingReason      Reason = "MachineDeleting"
	MachineGoneReason          Reason = "MachineGone"
	MachineHealthyReason       Reason = "MachineHealthy"
	ManagerRunsHereReason      Reason = "ManagerRunsHere"
	NoLongerNeededReason       Reason = "NoLongerNeeded"
	NoOwnerReason              Reason = "NoOwner"
	NoStrategyReason           Reason = "NoStrategy"
	NodeGoneReason             Reason = "NodeGone"
	NodeMismatchReason         Reason = "NodeMismatch"
	NodeStillUnhealthyReason   Reason = "NodeStillUnhealthy"
	OperatorSilentReason       Reason = "OperatorSilent"
	OwnerlessReason            Reason = "MachineWithoutOwner"
	PausedReason               Reason = "Paused"
	PowerOffDisabledReason     Reason = "PowerOffDisabled"
	PowerOffFailedReason       Reason = "PowerOffFailed"
	PowerOffDisprovedReason    Reason = "PowerOffDisproved"
	PowerOffRequestedReason    Reason = "PowerOffRequested"
	PowerOffTimedOutReason     Reason = "PowerOffTimedOut"
	PowerOnFailedReason        Reason = "PowerOnFailed"
	PowerOnRequestedReason     Reason = "PowerOnRequested"
	PowerOnTimedOutReason      Reason = "PowerOnTimedOut"
	PowerSettlingReason        Reason = "PowerSettling"
	PoweredOffReason           Reason = "PoweredOff"
	PoweredOnReason            Reason = "PoweredOn"
	PoweredOnAgainReason       Reason = "PoweredOnAgain"
	PoweringOffReason          Reason = "PoweringOff"
	PoweringOnReason           Reason = "PoweringOn"
	RemediationLoopReason      Reason = "RemediationLoop"
	RebootAcceptedReason       Reason = "RebootAccepted"
	RebootRequestedReason      Reason = "RebootRequested"
	RebootTimedOutReason       Reason = "RebootTimedOut"
	RebootingReason            Reason = "Rebooting"
	ReceiptGivenReason         Reason = "ReceiptGiven"
	ReceiptRequestedReason     Reason = "ReceiptRequested"
	RecoveredReason            Reason = "Recovered"
	ReleasingReason            Reason = "Releasing"
	ServicedReason             Reason = "Serviced"
	SignOfLifeReason           Reason = "SignOfLife"
	StepUndoneReason           Reason = "StepUndone"
	StateUnknownReason         Reason = "StateUnknown"
	TimedOutByCheckReason      Reason = "TimedOutByCheck"
	QueueTimedOutReason        Reason = "QueueTimedOut"
	UnfenceTimedOutReason      Reason = "UnfenceTimedOut"
	UnfencedReason             Reason = "Unfenced"
	WaitingInQueueReason       Reason = "WaitingInQueue"
	WatchingForLifeReason      Reason = "WatchingForLife"
	WorkloadMovedReason        Reason = "WorkloadMoved"
	WorkloadMovingReason       Reason = "WorkloadMoving"
	WorkloadStuckReason        Reason = "WorkloadStuck"
)

// Detail tells steps of one reason apart that mean something else. Most have none.
type Detail string

// The details of steps, which select the variants of the messages of rules.
const (
	// AsksPerson means that a person has to do something before the remediation goes on.
	AsksPerson          Detail = "AsksPerson"
	FenceUnseen         Detail = "FenceUnseen" // the node, which may be fenced, cannot be seen
	FencedBefore        Detail = "FencedBefore"
	HostRegistered      Detail = "HostRegistered" // anew, under the name of the host that was asked
	KeptOffAlready      Detail = "KeptOffAlready"
	NoReceipts          Detail = "NoReceipts"
	NodeBooted          Detail = "NodeBooted"
	NodeIsGone          Detail = "NodeIsGone"
	NodeTwins           Detail = "NodeTwins"
	ProofWrong          Detail = "ProofWrong"
	ReceiptContradicted Detail = "ReceiptContradicted"
	ReceiptLate         Detail = "ReceiptLate"
	RecordsUnread       Detail = "RecordsUnread" // of the host, since the manager has just started
	StatusOutdated      Detail = "StatusOutdated"
	VolumesIdle         Detail = "VolumesIdle"
	WorkloadLeaving     Detail = "WorkloadLeaving" // the node is fenced until then
)

// Cause is the step that led to the end of a remediation, or to the request for owner remediation, as far as it has to be explained later.
type Cause struct {
	Step `json:",inline"`
	// Said is what was known about it then besides, which nothing tells later; empty if that is nothing.
	Said string `json:"said,omitempty"`
}

// variant is a message for the steps of a reason that have this detail, this action, or are taken in one of these states.
type variant struct {
	detail  Detail
	do      Action
	from    []State
	message string
}

func (v variant) fits(step Step) bool {
	return (v.detail == "" || v.detail == step.Detail) && (v.do == "" || v.do == step.Do) &&
		(v.from == nil || slices.Contains(v.from, step.From))
}

// RuleOf returns the rule of a reason. A reason that is not known has no words of its own.
func RuleOf(reason Reason) Rule {
	i := slices.IndexFunc(rules, func(rule Rule) bool { return rule.Reason == reason })
	if i < 0 {
		return Rule{Reason: reason, Message: string(reason)}
	}
	return rules[i]
}
