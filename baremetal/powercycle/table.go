package powercycle

import "slices"

// row is one line of the table: when its guard holds, do that, and be in that state afterwards.
type row struct {
	when   guard
	do     Action
	next   State
	reason string
	why    string
}

// action is what r does: a person is asked once.
func (r row) action(f Facts) Action {
	switch {
	case r.do != waitForPerson:
		return r.do
	case f.Person == r.reason:
		return Wait
	}
	return AskPerson
}

// rowsOf are the rows that apply in a state, in order: those of the table, after those that every state has.
var rowsOf = func() map[State][]row {
	all := map[State][]row{}
	for s, own := range table {
		if s.Final() {
			all[s] = slices.Concat(pauses(s), own)
		} else {
			all[s] = slices.Concat(pauses(s), endings, own)
		}
	}
	return all
}()

// pauses come before everything else: who pauses a cluster wants it left alone, and may be about to move it to another management
// cluster, which the host must not be held off in the middle of. So it is let go, and the fence taken away, and then nothing is done.
// An attempt that had not got to powering the host on starts over when the pause is over, with all of its time, and is not counted
// again.
//
// One thing is finished in spite of a pause: a workload that is on its way is waited for as ever (see Facts.moving).
func pauses(s State) []row {
	back := s
	if s == PoweringOff || s == MovingWorkload || s == Rebooting {
		back = Preparing
	}
	const reason, why = "Paused", "The remediation is paused"
	return []row{
		{pausedHolding, Release, back, reason, why + "; the host is let go"},
		{pausedLitter, Release, s, reason, why + "; the host is let go"},
		{pausedFenced, Unfence, s, reason, why + "; the fence is taken off the node"},
		{pausedNow, Wait, s, reason, why},
	}
}

// endings come before the rows of every state that is not final. Whatever happens to the remediation or to its machine, there is
// nothing left to do but to let go.
//
// A health check deletes its request as soon as the machine is well, which may be before we have seen that: so one that is deleted while
// its machine boots has not been cancelled. Nor was one in vain that is told to stop when the machine is well already.
//
// When kubemend is removed a workload that is on its way is waited for, as in a pause. (docs/adr/0023-leaving-is-a-mode.md)
var endings = []row{
	{deletedWell, Advance, Succeeded, "MachineHealthy", "The machine is well"},
	{deletedBooting, Advance, Ended, "NoLongerNeeded", "The remediation is being deleted after its host was power-cycled"},
	{deleted, Advance, Ended, "Cancelled", "The remediation is being deleted"},
	{machineGone, Advance, Ended, "MachineGone", "The machine does not exist any more"},
	{machineLeaving, Advance, Ended, "MachineDeleting", "The machine is being deleted"},
	{stoppedWell, Advance, Succeeded, "MachineHealthy", "The machine is well"},
	{stopped, Advance, Stopped, "TimedOutByCheck", toldToStop},
	{leaving, Advance, Ended, "Leaving", "kubemend is being removed, or power cycles are switched off"},
}

// The reasons that decide something elsewhere.
const (
	fencingImpossible = "FencingImpossible"
	signOfLife        = "SignOfLife"
)

const (
	hostNotFound    = "The host of the machine cannot be found; waiting for it to come back"
	isServiced      = "The firmware of the host is being written, which powers it on; waiting for the end of that"
	servicedTooLong = "The firmware of the host has been written for too long"
	notReady        = "Waiting for the host to be in a state in which its power is managed"
	neverReady      = "The power of the host has not been managed for too long"
	lives           = "The node shows life although its host shows off: the host is not proven off"
)

// Where nothing says that a host is at fault, nobody is handed over.
const (
	noFault      = ", and nothing says that this is its fault; waiting for its operator to do as it is asked"
	silentOff    = "The host was not seen off in time" + noFault
	silentOn     = "The host was not seen on in time" + noFault
	silentReboot = "The host was not rebooted in time" + noFault
	stuckFenced  = "The workload did not move in time; the fence is taken off the node before its host is powered on"
	noSigns      = "The host was off before it was asked, and its operator does not report what would prove that it still is"
	rebootTaken  = "The operator of the host has taken the reboot on; whether it was carried out shows when the node has booted"
)

const toldToStop = "The remediation was told to stop: the health check that asked for it waits for it no longer"

const fenceStays = "The fence could not be taken off the node in time; nothing waits for that any longer, and it may have to be done by hand"

const (
	waitingForTurn  = "Waiting for its turn"
	managerRunsHere = "kubemend itself runs on this host, and would be switched off with it"
	// To wait for others says nothing of this host, so nobody is asked to replace its machine.
	turnTimedOut = "It has waited for its turn for too long, and goes on waiting"
)

// table is the whole machine. Within a state the first row that holds wins.
//
// Safety rests on its order. A node is fenced only in MovingWorkload, only while the host is held, shows off and is in the hands of
// somebody who acts on what we ask, and that state is entered only from PoweringOff, after the host was asked. Power is released
// from there when the workload has moved or when the deadline has passed; every other way out is an end, and every end lets go.
var table = map[State][]row{
	Pending: {
		{hostLost, Advance, HandingOver, "HostGone", "The machine has no host that could be power-cycled"},
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{heldByOthers, Advance, Failed, "HostHeldOff", "Somebody else keeps the host off"},
		{queuedTooLong, waitForPerson, Pending, "TurnTimedOut", turnTimedOut},
		{managerHere, Wait, Pending, "ManagerRunsHere", managerRunsHere},
		{hostMissing, Wait, Pending, "HostGone", hostNotFound},
		{notOurTurn, Wait, Pending, "WaitingForTurn", waitingForTurn},
		{always, BeginAttempt, Preparing, "AttemptBegan", "An attempt has begun"},
	},
	Preparing: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{heldByOthers, Advance, Failed, "HostHeldOff", "Somebody else keeps the host off"},
		{hostLost, Advance, HandingOver, "HostGone", "The machine has no host that could be power-cycled"},
		{foreignTooLong, Advance, Failed, "HostMismatch", "The host does not belong to the machine"},
		{heldBefore, Advance, PoweringOff, "PowerOffRequested", "The host is held off already for this remediation; the attempt goes on from there"},
		{litter, Release, Preparing, "AttemptBegan", "An attempt has begun; what the last one asked for is taken back first"},
		{unfenceableQueued, Unfence, Preparing, "Unfenced", "An attempt has begun; the fence of the last one is taken off the node first"},
		{hostMissing, Wait, Preparing, "HostGone", hostNotFound},
		{hostForeign, Wait, Preparing, "HostMismatch", "The host does not belong to the machine"},
		{recovered, Advance, Succeeded, "Recovered", "The machine became well; its host is not touched"},
		{queuedTooLong, waitForPerson, Preparing, "TurnTimedOut", turnTimedOut},
		{managerHere, Wait, Preparing, "ManagerRunsHere", managerRunsHere},
		{notOurTurn, Wait, Preparing, "WaitingForTurn", waitingForTurn},
		{noFinalizer, AddFinalizer, Preparing, "AttemptBegan", "An attempt has begun"},
		{unmanagedFenced, Unfence, Preparing, "Unfenced", "The fence of the last attempt is taken off the node"},
		{servicedLong, waitForPerson, Preparing, "HostServiced", servicedTooLong},
		{serviced, Wait, Preparing, "HostServiced", isServiced},
		{deafLong, waitForPerson, Preparing, "HostNotReady", neverReady},
		{deaf, Wait, Preparing, "HostNotReady", notReady},
		{noPowerOff, Advance, Rebooting, "PowerOffDisabled", "The host cannot be held off; it is rebooted, and its node is not fenced"},
		{always, Advance, PoweringOff, "PowerOffRequested", "The host is asked to power off"},
	},
	PoweringOff: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{heldByOthers, Advance, Failed, "HostHeldOff", "Somebody else keeps the host off"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{hostMissing, Wait, PoweringOff, "HostGone", hostNotFound},
		{serviced, Advance, Servicing, "HostServiced", isServiced},
		{notHeldNotOurTurn, Advance, Preparing, "WaitingForTurn", waitingForTurn},
		{lastOverdueFaulty, Advance, HandingOver, "PowerOffTimedOut", "The host was not seen off in time"},
		{overdueFaulty, BeginAttempt, Preparing, "PowerOffTimedOut", "The host was not seen off in time; one more attempt has begun"},
		{overdueOff, Advance, PoweringOn, fencingImpossible, "The host could not be proven off in time; it is powered on, and its node is not fenced"},
		{noPowerOff, Release, Preparing, "PowerOffDisabled", "The host cannot be held off any more; it is let go, to be rebooted"},
		{onAndFenced, Unfence, PoweringOff, "Unfenced", "The host came on while its node was fenced; the fence is taken off until it is off again"},
		{aliveFenced, Unfence, PoweringOff, signOfLife, lives},
		{notHeld, HoldOff, PoweringOff, "PowerOffRequested", "The host is asked to power off"},
		{notNoted, NoteAsked, PoweringOff, "PowerOffRequested", "The host is asked to power off"},
		{seenOn, NoteOn, PoweringOff, "PowerOffRequested", "The host is asked to power off"},
		{onStillFenced, Unfence, PoweringOff, "Unfenced", "The host is on while its node is fenced; the fence is taken off until it is off again"},
		{deafLong, waitForPerson, PoweringOff, "HostNotReady", neverReady},
		{deaf, Wait, PoweringOff, "HostNotReady", notReady},
		{powerFails, Wait, PoweringOff, "PowerOffFailed", "The host could not be powered off so far"},
		{overdue, waitForPerson, PoweringOff, "OperatorSilent", silentOff},
		{poweredOn, Wait, PoweringOff, "PoweringOff", "Waiting for the host to be off"},
		{unsettled, Wait, PoweringOff, "PowerSettling", "The host was off before it was asked; waiting until it cannot have been about to power on"},
		{unprovable, waitForPerson, PoweringOff, fencingImpossible, noSigns},
		{receiptNotAsked, AskReceipt, PoweringOff, "ReceiptRequested", "The host was off before it was asked; its operator is asked to read the hardware"},
		{receiptLate, waitForPerson, PoweringOff, fencingImpossible, "The host was off before it was asked, and its operator has not read the hardware since"},
		{receiptPending, Wait, PoweringOff, "AwaitingReceipt", "The host was off before it was asked; waiting for its operator to read the hardware"},
		{receiptNotNoted, NoteReceipt, PoweringOff, "ReceiptGiven", "The operator of the host has read the hardware"},
		{receiptNew, Wait, PoweringOff, "ReceiptGiven", "The operator of the host has read the hardware; waiting for what may speak against it"},
		{receiptUnsound, waitForPerson, PoweringOff, fencingImpossible, "The operator of the host has read the hardware, and reports what speaks against that"},
		{always, Advance, MovingWorkload, "PoweredOff", "The host is off"},
	},
	MovingWorkload: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{overdueStuck, Unfence, MovingWorkload, "WorkloadStuck", stuckFenced},
		{overdue, Advance, PoweringOn, "WorkloadStuck", "The workload did not move in time; the host is powered on all the same"},
		{hostMissing, Wait, MovingWorkload, "HostGone", hostNotFound},
		{servicedFenced, Unfence, MovingWorkload, "HostServiced", isServiced},
		{serviced, Advance, Servicing, "HostServiced", isServiced},
		{notHeld, Advance, PoweringOff, "PowerOffRequested", "Somebody took back what keeps the host off; it is asked once more"},
		{poweredOn, Advance, PoweringOff, "PoweredOnAgain", "The host came on before the workload had moved"},
		{aliveFenced, Unfence, MovingWorkload, signOfLife, lives},
		{alive, Advance, PoweringOff, signOfLife, lives},
		{noPowerOffStill, Release, Preparing, "PowerOffDisabled", "The host cannot be held off any more; it is let go, to be rebooted"},
		{nodeAbsentEmpty, Advance, PoweringOn, "NodeGone", "There is no node any more, and nothing is left of its workload"},
		{nodeAbsent, Wait, MovingWorkload, "WorkloadMoving", "The node is gone; waiting for its workload to go as well"},
		{blindTooLong, Advance, PoweringOn, "ClusterUnreachable",
			"The workload cluster cannot be asked while this control-plane host is off; it is powered on, and its node was not fenced"},
		{nodeUnseen, Wait, MovingWorkload, "ClusterUnreachable", "Waiting for the workload cluster to be reachable"},
		{anotherNode, Advance, PoweringOn, "NodeMismatch", "Another node has the name of the machine's node; it is not fenced, and the host is powered on"},
		{deafNotFenced, Wait, MovingWorkload, "HostNotReady", notReady},
		{mayLive, Wait, MovingWorkload, "WatchingForLife", "The node was heard of after its host was proven off; watching whether it is again"},
		{notFenced, Fence, MovingWorkload, "Fenced", "The node is fenced, so that its workload can start elsewhere"},
		{inherited, Fence, MovingWorkload, "Fenced", "The node is fenced already, by a remediation that is gone; the fence is taken over"},
		{notDrained, Wait, MovingWorkload, "WorkloadMoving", "Waiting for the workload to leave the node"},
		{always, Advance, PoweringOn, "WorkloadMoved", "The workload has moved"},
	},
	PoweringOn: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{litter, Release, PoweringOn, "PowerOnRequested", "The host is asked to power on"},
		{up, Advance, Booting, "PoweredOn", "The node has booted: the host is on"},
		{hostMissing, Wait, PoweringOn, "HostGone", hostNotFound},
		{serviced, Advance, Servicing, "HostServiced", isServiced},
		{poweredOn, Advance, Booting, "PoweredOn", "The host is on"},
		{heldByOthersLate, Advance, Failed, "HostHeldOff", "Somebody else has kept the host off for too long"},
		{heldByOthers, Wait, PoweringOn, "HostHeldOff", "Somebody else keeps the host off"},
		{lastLateFaulty, Advance, HandingOver, "PowerOnTimedOut", "The host was not seen on in time"},
		{lateFaulty, BeginAttempt, Preparing, "PowerOnTimedOut", "The host was not seen on in time; one more attempt has begun"},
		{deafLong, waitForPerson, PoweringOn, "HostNotReady", neverReady},
		{late, waitForPerson, PoweringOn, "OperatorSilent", silentOn},
		{powerFails, Wait, PoweringOn, "PowerOnFailed", "The host could not be powered on so far"},
		{always, Wait, PoweringOn, "PoweringOn", "Waiting for the host to be on"},
	},
	Rebooting: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{rebootNotAskedNotOurTurn, Advance, Preparing, "WaitingForTurn", waitingForTurn},
		{hostMissing, Wait, Rebooting, "HostGone", hostNotFound},
		{serviced, Advance, Servicing, "HostServiced", isServiced},
		{lastOverdueFaulty, Advance, HandingOver, "RebootTimedOut", "The host did not reboot in time"},
		{overdueFaulty, BeginAttempt, Preparing, "RebootTimedOut", "The host did not reboot in time; one more attempt has begun"},
		{unfenceable, Unfence, Rebooting, "Unfenced", "The fence is taken off the node"},
		{bootUnread, Wait, Rebooting, "PowerOffDisabled", "Waiting to see under which boot the node is, so that it will be known when it has booted"},
		{rebootNotAsked, Reboot, Rebooting, "RebootRequested", "The host is asked to reboot"},
		{stillFenced, Unfence, Rebooting, "Unfenced", "The fence is taken off the node"},
		{overduePending, waitForPerson, Rebooting, "OperatorSilent", silentReboot},
		{rebootPending, Wait, Rebooting, "Rebooting", "Waiting for the reboot to be carried out"},
		{always, Advance, Booting, "RebootAccepted", rebootTaken},
	},
	Servicing: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{litter, Release, Servicing, "HostServiced", isServiced + "; it is let go, since it boots after that"},
		{unfenceable, Unfence, Servicing, "Unfenced", "The fence is taken off the node"},
		{hostMissing, Wait, Servicing, "HostGone", hostNotFound},
		{stillFenced, Unfence, Servicing, "Unfenced", "The fence is taken off the node"},
		{servicedLong, waitForPerson, Servicing, "HostServiced", servicedTooLong},
		{serviced, Wait, Servicing, "HostServiced", isServiced},
		{always, Advance, Booting, "Serviced", "The firmware of the host was written, and the host boots"},
	},
	Booting: {
		{unwanted, Advance, Failed, "HostSwitchedOff", "The host is switched off by its owner"},
		{hostLost, Advance, HandingOver, "HostGone", "The host does not exist any more"},
		{hostForeign, Advance, Failed, "HostMismatch", "The host does not belong to the machine any more"},
		{litter, Release, Booting, "PoweredOn", "The host is on"},
		{unfenceable, Unfence, Booting, "Unfenced", "The fence is taken off the node"},
		{well, Advance, Succeeded, "MachineHealthy", "The machine is well"},
		{hostMissing, Wait, Booting, "HostGone", hostNotFound},
		{serviced, Advance, Servicing, "HostServiced", isServiced},
		{heldByOthersLate, Advance, Failed, "HostHeldOff", "Somebody else has kept the host off for too long"},
		{lateStillFenced, Unfence, Booting, "Unfenced", "The fence is taken off the node"},
		{lateBlind, waitForPerson, Booting, "ClusterUnreachable", "The workload cluster cannot be asked whether the machine is well"},
		{lastLate, Advance, HandingOver, "NodeStillUnhealthy", "The machine did not become well after the last attempt"},
		{late, BeginAttempt, Preparing, "NodeStillUnhealthy", "The machine did not become well in time; one more attempt has begun"},
		{always, Wait, Booting, "Booting", "Waiting for the machine to be well"},
	},
	HandingOver: {
		{litter, Release, HandingOver, "HandingOver", "Letting go of the host before the machine is handed over"},
		{unfenceable, Unfence, HandingOver, "Unfenced", "Taking the fence off the node before the machine is handed over"},
		{well, Advance, Succeeded, "MachineHealthy", "The machine is well after all, and is not handed over"},
		{hostAway, Wait, HandingOver, "HostGone", hostNotFound},
		{notMarked, MarkHost, HandingOver, "HandingOver", "The host is marked, so that no machine is put on it"},
		{notAskedOwner, HandOver, HandedOver, "HandedOver", "The owner of the machine is asked to replace it"},
		{always, Advance, HandedOver, "HandedOver", "The owner of the machine was asked to replace it"},
	},

	Succeeded: {
		{litter, Release, Succeeded, "MachineHealthy", "The machine is well; letting go of the host"},
		{unfenceable, Unfence, Succeeded, "Unfenced", "The machine is well; taking the fence off the node"},
		{wellAfterAll, TakeBack, Succeeded, "MachineHealthy", "The machine is well after all; its host is not marked any more"},
		{fenceToBeSeen, Wait, Succeeded, "MachineHealthy", "The machine is well; waiting for its node, to take the fence away"},
		{finalizerFenced, DropFinalizer, Succeeded, "UnfenceTimedOut", fenceStays},
		{finalizer, DropFinalizer, Succeeded, "MachineHealthy", "The machine is well"},
		{stillFenced, Unfence, Succeeded, "Unfenced", "The machine is well; taking the fence off the node"},
		{always, Wait, Succeeded, "MachineHealthy", "The machine is well"},
	},
	HandedOver: {
		{litter, Release, HandedOver, "HandedOver", "The owner of the machine was asked to replace it; letting go of the host"},
		{unfenceable, Unfence, HandedOver, "Unfenced", "The owner of the machine was asked to replace it; taking the fence off the node"},
		{wellAfterAll, TakeBack, Succeeded, "MachineHealthy", "The machine is well after all; its owner is not asked any more"},
		{fenceToBeSeen, Wait, HandedOver, "HandedOver", "The owner of the machine was asked to replace it; waiting for the node, to take the fence away"},
		{finalizerFenced, DropFinalizer, HandedOver, "UnfenceTimedOut", fenceStays},
		{finalizer, DropFinalizer, HandedOver, "HandedOver", "The owner of the machine was asked to replace it"},
		{stillFenced, Unfence, HandedOver, "Unfenced", "The owner of the machine was asked to replace it; taking the fence off the node"},
		{always, Wait, HandedOver, "HandedOver", "The owner of the machine was asked to replace it"},
	},
	Failed: {
		{litter, Release, Failed, "Failed", "The remediation has failed; letting go of the host"},
		{unfenceable, Unfence, Failed, "Unfenced", "The remediation has failed; taking the fence off the node"},
		{fenceToBeSeen, Wait, Failed, "Failed", "The remediation has failed; waiting for the node, to take the fence away"},
		{finalizerFenced, DropFinalizer, Failed, "UnfenceTimedOut", fenceStays},
		{finalizer, DropFinalizer, Failed, "Failed", "The remediation has failed"},
		{stillFenced, Unfence, Failed, "Unfenced", "The remediation has failed; taking the fence off the node"},
		{always, Wait, Failed, "Failed", "The remediation has failed"},
	},
	Ended: {
		{litter, Release, Ended, "Releasing", "Letting go of the host"},
		{unfenceable, Unfence, Ended, "Unfenced", "Taking the fence off the node"},
		{wellAfterAll, TakeBack, Ended, "Releasing", "The machine is well after all; its owner is not asked any more"},
		{fenceToBeSeen, Wait, Ended, "Releasing", "Waiting for the node, to take the fence away"},
		{finalizerFenced, DropFinalizer, Ended, "UnfenceTimedOut", fenceStays},
		{finalizer, DropFinalizer, Ended, "Ended", "The remediation has ended"},
		{stillFenced, Unfence, Ended, "Unfenced", "The remediation has ended; taking the fence off the node"},
		{always, Wait, Ended, "Ended", "The remediation has ended"},
	},
	Stopped: {
		{litter, Release, Stopped, "TimedOutByCheck", "The remediation stops; letting go of the host"},
		{unfenceable, Unfence, Stopped, "Unfenced", "The remediation stops; taking the fence off the node"},
		{wellAfterAll, TakeBack, Stopped, "TimedOutByCheck", "The machine is well after all; its host is not marked any more"},
		{fenceToBeSeen, Wait, Stopped, "TimedOutByCheck", "The remediation stops; waiting for the node, to take the fence away"},
		{finalizerFenced, DropFinalizer, Stopped, "UnfenceTimedOut", fenceStays},
		{finalizer, DropFinalizer, Stopped, "TimedOutByCheck", toldToStop},
		{stillFenced, Unfence, Stopped, "Unfenced", "The remediation has stopped; taking the fence off the node"},
		{always, Wait, Stopped, "TimedOutByCheck", toldToStop},
	},
}

// order is the reading order of states, in the diagram and in tests.
var order = []State{
	Pending, Preparing, PoweringOff, MovingWorkload, PoweringOn, Rebooting, Servicing, Booting, HandingOver, Succeeded, HandedOver, Failed, Ended, Stopped,
}
