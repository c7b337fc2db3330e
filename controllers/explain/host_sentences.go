package explain

import (
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// wording is one of the sentences of a reason, and the steps that it is said of.
type wording struct {
	of   func(powercycle.Step) bool // nil: of all others
	text string
}

func does(all ...powercycle.Action) func(powercycle.Step) bool {
	return func(s powercycle.Step) bool { return slices.Contains(all, s.Do) }
}

func in(all ...powercycle.State) func(powercycle.Step) bool {
	return func(s powercycle.Step) bool { return slices.Contains(all, s.From) }
}

func told(d powercycle.Detail) func(powercycle.Step) bool {
	return func(s powercycle.Step) bool { return s.Detail == d }
}

func always(text string) []wording { return []wording{{nil, text}} }

const (
	hostNotFound    = "The host of the machine cannot be found; waiting for it to come back"
	healthyAfter    = "The machine is healthy after all; "
	onceMore        = "; one more attempt has begun"
	noFault         = ", without a sign of a fault of the host; waiting for the Bare Metal Operator"
	serviced        = "The firmware of the host is being written, which powers it on; waiting for the end of that"
	timedOutByCheck = "The health check that asked for the remediation has timed it out"
)

// wordings are the sentences of the steps of a power cycle, by their reason. Of several the first that fits is said.
var wordings = map[powercycle.Reason][]wording{
	powercycle.NoOwnerReason:      always("Nothing is done: metadata.ownerReferences names no Machine of " + clusterv1.GroupVersion.Group),
	powercycle.NoStrategyReason:   always("Nothing is done: spec.strategy.type is not Reboot"),
	powercycle.StateUnknownReason: always("The stored state is not known; beginning anew"),
	powercycle.MachineHealthyReason: {
		{in(powercycle.RequestingOwner), "The machine is healthy after all, and its owner is not asked to replace it"},
		{nil, "The machine is healthy"},
	},
	powercycle.NoLongerNeededReason:  always("The remediation is being deleted after its host was power-cycled"),
	powercycle.CancelledReason:       always("The remediation is being deleted"),
	powercycle.MachineGoneReason:     always("The machine does not exist any more"),
	powercycle.MachineDeletingReason: always("The machine is being deleted"),
	powercycle.TimedOutByCheckReason: always(timedOutByCheck),
	powercycle.TeardownReason:        always("kubemend is being removed, or power cycles are switched off"),
	powercycle.HostSwitchedOffReason: always("The host is switched off by its owner"),
	powercycle.QueueTimedOutReason:   always("It has waited in its queue for too long, and goes on waiting"),
	powercycle.ManagerRunsHereReason: always("kubemend itself runs on this host, and would be switched off with it"),
	powercycle.WaitingInQueueReason:  always("Waiting in its queue"),
	powercycle.RecoveredReason:       always("The machine became healthy; its host is not touched"),
	powercycle.PowerOffFailedReason:  always("The host could not be powered off so far"),
	powercycle.PoweringOffReason: {
		{told(powercycle.StatusOutdated), "The status of the host is older than the request to power off, as after a restore from a " +
			"backup; waiting for its operator to read the hardware"},
		{nil, "Waiting for the host to be off"},
	},
	powercycle.PowerSettlingReason:    always("The host was off before it was asked; waiting until it cannot have been about to power on"),
	powercycle.ReceiptRequestedReason: always("The host was off before it was asked; its operator is asked to read the hardware"),
	powercycle.AwaitingReceiptReason:  always("The host was off before it was asked; waiting for its operator to read the hardware"),
	powercycle.PoweredOffReason:       always("The host is off"),
	powercycle.PoweredOnAgainReason:   always("The host came on before the workload had moved"),
	powercycle.SignOfLifeReason: {
		{told(powercycle.ProofWrong), "The node went on to live after it was fenced, although its host showed off: the reported power of " +
			"the host is wrong, and it is not power-cycled again"},
		{nil, "The node shows life although its host showed off: the host is not proven off"},
	},
	powercycle.PowerOffDisprovedReason: always("After an earlier power-off of the host its node went on to live: what reads the power of the host " +
		"cannot be believed, and the host is not power-cycled until a person resets it"),
	powercycle.HoldRemovedReason: always("The host is not kept powered off any more after it was proven off; it is powered on, and not " +
		"off again in this attempt"),
	powercycle.NodeGoneReason:        always("There is no node any more, and nothing is left of its workload"),
	powercycle.NodeMismatchReason:    always("Another node has the name of the machine's node; it is not fenced, and the host is powered on"),
	powercycle.WatchingForLifeReason: always("The node was heard of after its host was proven off; watching whether it is again"),
	powercycle.WorkloadMovedReason: {
		{told(powercycle.VolumesIdle), "The workload has moved; volumes are still attached that no pod has or waits for"},
		{nil, "The workload has moved"},
	},
	powercycle.PowerOnRequestedReason: always("The host is asked to power on"),
	powercycle.PowerOnFailedReason:    always("The host could not be powered on so far"),
	powercycle.PoweringOnReason:       always("Waiting for the host to be on"),
	powercycle.RebootRequestedReason:  always("The host is asked to reboot"),
	powercycle.RebootingReason:        always("Waiting for the reboot to be carried out"),
	powercycle.RebootAcceptedReason:   always("The operator of the host has taken the reboot on; whether it was carried out shows when the node has booted"),
	powercycle.ServicedReason:         always("The firmware of the host was written, and the host boots"),
	powercycle.BootingReason:          always("Waiting for the machine to be healthy"),
	powercycle.UnfenceTimedOutReason: always("The fence could not be removed from the node in time; " +
		"nothing waits for that any longer, and it may have to be done by hand"),
	powercycle.PowerOffTimedOutReason: {
		{does(powercycle.BeginAttempt), "The host was not seen off in time" + onceMore},
		{nil, "The host was not seen off in time"},
	},
	powercycle.PowerOnTimedOutReason: {
		{does(powercycle.BeginAttempt), "The host was not seen on in time" + onceMore},
		{nil, "The host was not seen on in time"},
	},
	powercycle.RebootTimedOutReason: {{does(powercycle.BeginAttempt), "The host did not reboot in time" + onceMore}, {nil, "The host did not reboot in time"}},
	powercycle.PoweredOnReason:      {{told(powercycle.NodeBooted), "The node has booted: the host is on"}, {nil, "The host is on"}},
	powercycle.PausedReason: {
		{does(powercycle.Release), "The remediation is paused; the host is released"},
		{does(powercycle.Unfence), "The remediation is paused; the fence is removed from the node"},
		{nil, "The remediation is paused"},
	},
	powercycle.HostExternalReason: always("The attempts have not helped, and the host is externally provisioned: " +
		"no owner is asked to replace a machine that cannot be provisioned anew"),
	powercycle.OwnerlessReason: always("The attempts have not helped, and the machine has no owner that could replace it"),
	powercycle.HostGoneReason: {
		{told(powercycle.AsksPerson), "The host of the machine has been gone for more than an hour; waiting for it to come back"},
		{does(powercycle.Wait), hostNotFound},
		{in(powercycle.Pending, powercycle.Preparing), "The machine has no host that could be power-cycled"},
		{nil, "The host does not exist any more"},
	},
	powercycle.HostKeptOffReason: {
		{does(powercycle.Wait), "Another client keeps the host powered off"},
		{in(powercycle.PoweringOn, powercycle.Booting), "Another client has kept the host powered off for too long"},
		{nil, "Another client keeps the host powered off"},
	},
	powercycle.HostMismatchReason: {
		{in(powercycle.Pending, powercycle.Preparing), "The host does not belong to the machine"},
		{nil, "The host does not belong to the machine any more"},
	},
	powercycle.AttemptBeganReason: {
		{does(powercycle.Release), "An attempt has begun; the host is released from the last one first"},
		{nil, "An attempt has begun"},
	},
	powercycle.PowerOffRequestedReason: {
		{told(powercycle.KeptOffAlready), "The host is kept powered off already for this remediation; the attempt goes on from there"},
		{in(powercycle.MovingWorkload), "Another client removed the annotation that keeps the host powered off; kubemend asks once more"},
		{nil, "The host is asked to power off"},
	},
	powercycle.UnfencedReason: {
		{in(powercycle.Preparing), "The fence of the last attempt is removed from the node"},
		{in(powercycle.PoweringOff), "The host is on while its node is fenced; the fence is removed until it is off again"},
		{in(powercycle.RequestingOwner), "The fence is removed from the node before the owner of the machine is asked to replace it"},
		{nil, "The fence is removed from the node"},
	},
	powercycle.HostServicedReason: {
		{told(powercycle.AsksPerson), "The firmware of the host has been written for too long"},
		{does(powercycle.Release), serviced + "; the host is released, since it boots after that"},
		{nil, serviced},
	},
	powercycle.HostNotReadyReason: {
		{told(powercycle.AsksPerson), "The power of the host has not been managed for too long"},
		{nil, "Waiting for the host to be in a state in which its power is managed"},
	},
	powercycle.PowerOffDisabledReason: {
		{does(powercycle.Release), "The host cannot be kept powered off any more; it is released, to be rebooted"},
		{in(powercycle.Rebooting), "Waiting to see under which boot the node is, so that it will be known when it has booted"},
		{nil, "The host cannot be kept powered off; it is rebooted, and its node is not fenced"},
	},
	powercycle.FencingImpossibleReason: {
		{told(powercycle.NoReceipts), "The host was off before it was asked, and its operator does not report what would prove that it still is"},
		{told(powercycle.ReceiptLate), "The host was off before it was asked, and its operator has not read the hardware since"},
		{told(powercycle.ReceiptContradicted), "The operator of the host has read the hardware, and reports what speaks against that"},
		{nil, "The host could not be proven off in time; it is powered on, and its node is not fenced"},
	},
	powercycle.OperatorSilentReason: {
		{in(powercycle.PoweringOff), "The host was not seen off in time" + noFault},
		{in(powercycle.Rebooting), "The host was not rebooted in time" + noFault},
		{nil, "The host was not seen on in time" + noFault},
	},
	powercycle.ReceiptGivenReason: {
		{does(powercycle.Wait), "The operator of the host has read the hardware; waiting for what may speak against it"},
		{nil, "The operator of the host has read the hardware"},
	},
	powercycle.WorkloadStuckReason: {
		{does(powercycle.Unfence), "The workload did not move in time; the fence is removed from the node before its host is powered on"},
		{nil, "The workload did not move in time; the host is powered on all the same"},
	},
	powercycle.WorkloadMovingReason: {
		{told(powercycle.NodeIsGone), "The node is gone; waiting for its workload to go as well"},
		{nil, "Waiting for the workload to leave the node"},
	},
	powercycle.ClusterUnreachableReason: {
		{does(powercycle.Advance), "The workload cluster cannot be asked while this control-plane host is off; it is powered on, and its node was not fenced"},
		{in(powercycle.Booting), "The workload cluster cannot be asked whether the machine is healthy"},
		{nil, "Waiting for the workload cluster to be reachable"},
	},
	powercycle.FencedReason: {
		{told(powercycle.FencedBefore), "The node is fenced already, by a remediation that is gone; the fence is taken over"},
		{nil, "The node is fenced, so that its workload can start elsewhere"},
	},
	powercycle.NodeStillUnhealthyReason: {
		{does(powercycle.BeginAttempt), "The machine did not become healthy in time" + onceMore},
		{nil, "The machine did not become healthy after the last attempt"},
	},
	powercycle.RequestingOwnerReason: {
		{does(powercycle.Release), "The host is released before the owner of the machine is asked to replace it"},
		{nil, "The host is marked, so that no machine is put on it"},
	},
	powercycle.OwnerRequestedReason: {
		{does(powercycle.RequestOwner), "The owner of the machine is asked to replace it"},
		{nil, "The owner of the machine was asked to replace it"},
	},
	powercycle.FailedReason:    always("The remediation has failed"),
	powercycle.ReleasingReason: always("The remediation has ended"),
	powercycle.EndedReason:     always("The remediation has ended"),
}

// ends are what is said of a remediation that has ended, before what is left to do.
var ends = map[powercycle.State]powercycle.Reason{
	powercycle.Succeeded: powercycle.MachineHealthyReason, powercycle.OwnerRequested: powercycle.OwnerRequestedReason,
	powercycle.Failed: powercycle.FailedReason, powercycle.Ended: powercycle.EndedReason, powercycle.Stopped: powercycle.TimedOutByCheckReason,
}

// HostStep is the sentence of a step of a power cycle.
func HostStep(s powercycle.Step) string {
	if !s.From.Final() || s.Reason == powercycle.UnfenceTimedOutReason || s.Reason == powercycle.PausedReason {
		return wordingOf(s)
	}
	return afterEnd(s)
}

func wordingOf(s powercycle.Step) string {
	for _, w := range wordings[s.Reason] {
		if w.of == nil || w.of(s) {
			return w.text
		}
	}
	return string(s.Reason)
}

// afterEnd is the sentence of a step of a remediation that has ended.
func afterEnd(s powercycle.Step) string {
	text := wordingOf(powercycle.Step{Reason: ends[s.From], From: s.From})
	switch {
	case s.Do == powercycle.Withdraw && s.From == powercycle.Succeeded:
		return healthyAfter + "its host is no longer marked as unhealthy"
	case s.Do == powercycle.Withdraw:
		return healthyAfter + "its owner is no longer asked to replace it"
	case s.Do == powercycle.Release:
		return text + "; the host is released"
	case s.Do == powercycle.Unfence:
		return text + "; the fence is removed from the node"
	case s.Detail == powercycle.FenceUnseen:
		return text + "; waiting for the node, to remove the fence"
	}
	return text
}

// lowered is a sentence as part of another one.
func lowered(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }
