package powercycle

import (
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	cases := map[string]struct {
		given  Facts
		do     Action
		next   State
		reason Reason
	}{
		"a remediation counts its attempt before it does anything": {in(Pending), BeginAttempt, Preparing, "AttemptBegan"},
		"one without a state is new":                               {in("", free), BeginAttempt, Preparing, "AttemptBegan"},
		"one in a state of a later version begins anew":            {in("Sideways"), Advance, Preparing, "StateUnknown"},
		"it begins without a node":                                 {in(Pending, noNode), BeginAttempt, Preparing, "AttemptBegan"},
		"and without the API of the workload cluster":              {in(Pending, blind), BeginAttempt, Preparing, "AttemptBegan"},
		"a well machine that somebody wants rebooted is":           {in(Pending, wellNow), BeginAttempt, Preparing, "AttemptBegan"},

		"C7: a host that is switched off is waited for": {in(Pending, switchedOff), Wait, Pending, "HostSwitchedOff"},
		"and a person asked":                            {in(Pending, switchedOff, stateOver), AskPerson, Pending, "HostSwitchedOff"},
		"after that its time begins anew":               {in(Pending, stateOver, wasKeptOff), Advance, Pending, "HostReleasedByOthers"},
		"nor is one touched that others hold off":       {in(Pending, heldElsewhere), Wait, Pending, "HostKeptOff"},
		"also in an attempt":                            {in(Preparing, heldElsewhere), Wait, Preparing, "HostKeptOff"},
		"the verdict is asked anew": {
			in(Preparing, wellNow, startedUnhealthy, toldPerson("HostKeptOff")), Advance, Succeeded, "Recovered",
		},
		"what the last attempt left goes": {in(Preparing, switchedOff, heldOff), Release, Preparing, "AttemptBegan"},
		"also the fence":                  {in(Preparing, switchedOff, fenced, stateOver), Unfence, Preparing, "Unfenced"},
		"and what CAPM3 left": {
			in(Preparing, takenOver, heldOff, off, switchedOff), Release, Preparing, "AttemptBegan",
		},
		"who switches it off has it":               {in(PoweringOff, switchedOff), Advance, Preparing, "HostSwitchedOff"},
		"so has who holds it off":                  {in(PoweringOff, heldElsewhere), Advance, Preparing, "HostKeptOff"},
		"or before its reboot":                     {in(Rebooting, switchedOff), Advance, Preparing, "HostSwitchedOff"},
		"C12: who holds it off then is waited for": {in(PoweringOn, heldElsewhere), Wait, PoweringOn, "HostKeptOff"},
		"and the host not condemned": {
			in(PoweringOn, heldElsewhere, stateOver, second), AskPerson, PoweringOn, "HostKeptOff",
		},
		"released by others, it has all of its time": {
			in(PoweringOn, stateOver, second, failing, wasKeptOff), Advance, PoweringOn, "HostReleasedByOthers",
		},
		"also to be again the machine's": {
			in(Preparing, attemptOver, anothersHost, wasKeptOff), Advance, Preparing, "HostReleasedByOthers",
		},
		"nor is one condemned that is paused": {
			in(PoweringOn, setAside, stateOver, second, hasFailed), AskPerson, PoweringOn, "HostNotReady",
		},
		"nor if it goes off in its boot": {
			in(Booting, heldElsewhere, stateOver, second), Advance, PoweringOn, "HostKeptOff",
		},
		"or is repaired then":                 {in(Booting, switchedOff), Advance, PoweringOn, "HostSwitchedOff"},
		"a host that is still on is unfenced": {in(PoweringOn, switchedOff, on, fenced), Unfence, PoweringOn, "Unfenced"},

		"the workload moves on meanwhile": {
			in(MovingWorkload, heldElsewhere, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"the owner of a machine without a host is asked": {
			in(Pending, hostNeverNamed), Advance, RequestingOwner, "HostGone",
		},
		"not that of one whose host is gone: it may be registered anew": {in(Pending, hostLostLong), AskPerson, Pending, "HostGone"},
		"nor in the middle of an attempt": {
			in(Booting, hostLostLong, stateOver, second), AskPerson, Booting, "HostGone",
		},
		"H-B7: but not for a moment without one": {in(Pending, hostVanished), Wait, Pending, "HostGone"},
		"in no state": {
			in(Booting, hostVanished, stateOver, second), Wait, Booting, "HostGone",
		},
		"nor while its workload moves":                 {in(MovingWorkload, hostVanished), Wait, MovingWorkload, "HostGone"},
		"W27: a control-plane host waits for its turn": {in(Pending, anothersTurn), Wait, Pending, "WaitingInQueue"},
		"also one whose attempt has begun, which takes none of its time": {
			in(Preparing, anothersTurn, attemptOver), Wait, Preparing, "WaitingInQueue",
		},
		"in the end a person is asked, and no owner": {
			in(Pending, anothersTurn, long), AskPerson, Pending, "QueueTimedOut",
		},
		"nor is one whose attempt has begun": {
			in(Preparing, anothersTurn, long, second), AskPerson, Preparing, "QueueTimedOut",
		},
		"one on whose host kubemend runs waits as well": {
			in(Pending, anothersTurn, managerOnIt), Wait, Pending, "ManagerRunsHere",
		},
		"and tells a person in the end": {
			in(Preparing, anothersTurn, managerOnIt, long), AskPerson, Preparing, "QueueTimedOut",
		},
		"a machine that recovers while it waits is not touched": {
			in(Preparing, anothersTurn, long, wellNow, startedUnhealthy), Advance, Succeeded, "Recovered",
		},
		"W6: one that is deleted before it began touches nothing": {in(Pending, deleting), Advance, Ended, "Cancelled"},
		"F4: what CAPM3 keeps powered off is not released to begin": {
			in(Preparing, takenOver, heldOff, off), Advance, PoweringOff, "PowerOffRequested",
		},
		"nor is its node unfenced meanwhile": {
			in(Preparing, takenOver, heldOff, off, fenced), Advance, PoweringOff, "PowerOffRequested",
		},
		"when it was held off is noted": {
			in(PoweringOff, takenOver, heldOff, off, notAsked), NoteAsked, PoweringOff, "PowerOffRequested",
		},
		"a later attempt releases the host first as ever": {
			in(Preparing, takenOver, heldOff, off, touched, second), Release, Preparing, "AttemptBegan",
		},
		"H-A3: the fence of a remediation that is gone is taken over": {
			in(MovingWorkload, inheritedFence, empty), Fence, MovingWorkload, "Fenced",
		},
		"H-B8: the node of another machine is not fenced": {
			in(MovingWorkload, anothersNode), Advance, PoweringOn, "NodeMismatch",
		},
		"nothing begins where two nodes have one provider ID": {in(Pending, nodeTwins), AskPerson, Pending, "NodeMismatch"},
		"nor one more attempt": {
			in(Preparing, nodeTwins, second), AskPerson, Preparing, "NodeMismatch",
		},
		"neither of them is fenced": {
			in(MovingWorkload, nodeTwins), Advance, PoweringOn, "NodeMismatch",
		},
		"a fence that there is stays until the workload has moved": {
			in(MovingWorkload, nodeTwins, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"the machine is waited for": {in(Booting, nodeTwins), Wait, Booting, "Booting"},
		"and then a person is asked": {
			in(Booting, nodeTwins, stateOver, second), AskPerson, Booting, "NodeMismatch",
		},
		"in no case an owner": {
			in(RequestingOwner, nodeTwins), AskPerson, RequestingOwner, "NodeMismatch",
		},
		"a finalizer comes before power-off":       {in(Preparing, free), AddFinalizer, Preparing, "AttemptBegan"},
		"W23: somebody else's host is not touched": {in(Preparing, anothersHost), Wait, Preparing, "HostMismatch"},
		"and the remediation fails in the end": {
			in(Preparing, anothersHost, attemptOver), Advance, Failed, "HostMismatch",
		},
		"N15: a machine that recovered is not touched": {
			in(Preparing, wellNow, startedUnhealthy), Advance, Succeeded, "Recovered",
		},
		"unless it was not seen to be bad in the beginning": {
			in(Preparing, wellNow), Advance, PoweringOff, "PowerOffRequested",
		},
		"W25, N9: a paused host is waited for": {in(Preparing, hostPaused), Wait, Preparing, "HostNotReady"},
		"H-B10: and no owner is asked for it, but a person": {
			in(Preparing, hostPaused, stateOver, second), AskPerson, Preparing, "HostNotReady",
		},
		"but only once": {in(Preparing, hostPaused, stateOver, second, toldPerson("HostNotReady")), Wait, Preparing, "HostNotReady"},
		"an attempt has all of its time when its host is ready": {
			in(Preparing, attemptOver), Advance, PoweringOff, "PowerOffRequested",
		},
		"H-A4: a host that is serviced is waited for": {
			in(Preparing, beingServiced, stateOver, second), Wait, Preparing, "HostServiced",
		},
		"in a state of its own once it was asked": {
			in(PoweringOff, beingServiced), Advance, Servicing, "HostServiced",
		},
		"also if its workload was moving": {
			in(MovingWorkload, beingServiced, on), Advance, Servicing, "HostServiced",
		},
		"but first the fence goes": {
			in(MovingWorkload, beingServiced, on, fenced), Unfence, MovingWorkload, "HostServiced",
		},
		"the host is released, which boots after that": {
			in(Servicing, beingServiced, heldOff), Release, Servicing, "HostServiced",
		},
		"no owner is asked meanwhile": {
			in(Servicing, beingServiced, stateOver, second), Wait, Servicing, "HostServiced",
		},
		"after two hours a person is asked": {
			in(Servicing, beingServiced, long), AskPerson, Servicing, "HostServiced",
		},
		"and when it has ended the host boots":                          {in(Servicing), Advance, Booting, "Serviced"},
		"a retry releases the host first, which makes its operator act": {in(Preparing, heldOff), Release, Preparing, "AttemptBegan"},
		"N8: a host that cannot be off is rebooted": {
			in(Preparing, cannotBeOff), Advance, Rebooting, "PowerOffDisabled",
		},
		"a host is held off": {
			in(PoweringOff, released, notAsked), KeepOff, PoweringOff, "PowerOffRequested",
		},

		"not again at once if it is released": {
			in(PoweringOff, released, notAsked, holdsBefore(3, 3*time.Second)), Wait, PoweringOff, "StepUndone",
		},
		"but after a growing pause": {
			in(PoweringOff, released, notAsked, holdsBefore(3, 4*time.Second)), KeepOff, PoweringOff, "PowerOffRequested",
		},
		"of minutes at most": {
			in(PoweringOff, released, notAsked, holdsBefore(30, 5*time.Minute)), KeepOff, PoweringOff, "PowerOffRequested",
		},
		"in the end a person is asked": {
			in(PoweringOff, released, notAsked, stateOver, holdsBefore(3, time.Second)), AskPerson, PoweringOff, "StepUndone",
		},
		"which is done once":                 {in(PoweringOff, released, notAsked, stateOver, holdsBefore(3, time.Second), toldPerson("OperatorSilent")), Wait, PoweringOff, "StepUndone"},
		"also if it is the mark of the host": {in(RequestingOwner, stateOver, func(f *Facts) { f.Did = Did{Do: MarkHost, Times: 9, At: noon} }), AskPerson, RequestingOwner, "StepUndone"},
		"nor is it waited for as long as the clock was ahead": {
			in(PoweringOff, released, notAsked, holdsBefore(3, -time.Hour)), KeepOff, PoweringOff, "PowerOffRequested",
		},
		"which holds up nothing else": {
			in(PoweringOff, released, attemptOver, hasFailed, holdsBefore(30, time.Second)), BeginAttempt, Preparing, "PowerOffTimedOut",
		},

		"but not one whose turn it is not": {
			in(PoweringOff, released, notAsked, anothersTurn), Advance, Preparing, "WaitingInQueue",
		},
		"a crash after that is noticed": {
			in(PoweringOff, notAsked), NoteAsked, PoweringOff, "PowerOffRequested",
		},
		"a host that is on is waited for": {in(PoweringOff), Wait, PoweringOff, "PoweringOff"},
		"N6: a dead BMC is retried": {
			in(PoweringOff, attemptOver, hasFailed), BeginAttempt, Preparing, "PowerOffTimedOut",
		},
		"and its owner is asked at last": {
			in(PoweringOff, attemptOver, second, failing), Advance, RequestingOwner, "PowerOffTimedOut",
		},
		"H-B10: an operator that says nothing condemns no host": {
			in(PoweringOff, attemptOver, second), AskPerson, PoweringOff, "OperatorSilent",
		},
		"one that is paused before it was off is asked anew after that": {in(PoweringOff, setAside), Advance, Preparing, "HostNotReady"},
		"so is one before it was rebooted": {
			in(Rebooting, rebooting, setAside), Advance, Preparing, "HostNotReady",
		},
		"nor condemned meanwhile": {
			in(PoweringOff, setAside, second, attemptOver, hasFailed), Advance, Preparing, "HostNotReady",
		},
		"the power of a paused host proves nothing": {
			in(PoweringOff, off, hostPaused), Wait, PoweringOff, "HostNotReady",
		},
		"a host that was off may have been about to power on": {
			in(PoweringOff, off, wasOff), Wait, PoweringOff, "PowerSettling",
		},
		"H-A1: then its operator is asked to read the hardware": {
			in(PoweringOff, off, wasOff, askedLong), AskReceipt, PoweringOff, "ReceiptRequested",
		},
		"which is waited for": {
			in(PoweringOff, off, wasOff, askedLong, receiptAsked), Wait, PoweringOff, "AwaitingReceipt",
		},
		"and when it does not, a person is asked": {in(PoweringOff, off, wasOff, receiptAsked, func(f *Facts) { f.Asked = ago(4 * time.Minute) }), AskPerson, PoweringOff, "FencingImpossible"},
		"a receipt is noted": {
			in(PoweringOff, off, wasOff, askedLong, receiptGiven), NoteReceipt, PoweringOff, "ReceiptGiven",
		},
		"and looked at for a moment": {
			in(PoweringOff, off, wasOff, askedLong, receiptGiven, func(f *Facts) { f.Receipt = noon }), Wait, PoweringOff, "ReceiptGiven",
		},
		"before it is believed": {
			in(PoweringOff, off, wasOff, askedLong, receiptNoted), Advance, MovingWorkload, "PoweredOff",
		},
		"not if the operator cannot manage the power": {
			in(PoweringOff, off, wasOff, askedLong, receiptNoted, contradicted), AskPerson, PoweringOff, "FencingImpossible",
		},
		"an operator that does not say so gives no proof": {
			in(PoweringOff, off, wasOff, askedLong, oldBMO), AskPerson, PoweringOff, "FencingImpossible",
		},
		"though it does by switching the host off": {
			in(PoweringOff, off, oldBMO), Advance, MovingWorkload, "PoweredOff",
		},
		"what cannot be proven off is not fenced, but powered on": {
			in(PoweringOff, off, wasOff, attemptOver, second), Advance, PoweringOn, "FencingImpossible",
		},
		"a host that is another object has to be asked anew": {
			in(PoweringOff, off, hostMadeAnew), KeepOff, PoweringOff, "PowerOffRequested",
		},
		"also if its workload was moving, when what was seen is void": {
			in(MovingWorkload, hostMadeAnew), Advance, PoweringOff, "PowerOffRequested",
		},
		"a host whose power was wrong before is left to a person": {
			in(Pending, disprovedBefore), AskPerson, Pending, "PowerOffDisproved",
		},
		"nor in an attempt that had begun": {
			in(Preparing, disprovedBefore), AskPerson, Preparing, "PowerOffDisproved",
		},
		"whoever has kept it powered off before": {
			in(Preparing, takenOver, heldOff, off, disprovedBefore), Release, Preparing, "AttemptBegan",
		},
		"one that is found wrong meanwhile is released": {
			in(PoweringOff, off, disprovedBefore), Release, Preparing, "PowerOffDisproved",
		},
		"and its node is not fenced": {
			in(MovingWorkload, disprovedBefore), Release, Preparing, "PowerOffDisproved",
		},
		"though a workload on its way may arrive": {
			in(MovingWorkload, fenced, disprovedBefore), Wait, MovingWorkload, "WorkloadMoving",
		},
		"nor is it rebooted": {
			in(Rebooting, disprovedBefore), Advance, Preparing, "PowerOffDisproved",
		},
		"a node that has booted since is not fenced": {
			in(MovingWorkload, anotherBoot), Advance, PoweringOff, "SignOfLife",
		},
		"nor one that was heard of since, before it was watched": {
			in(MovingWorkload, renewed), Wait, MovingWorkload, "WatchingForLife",
		},
		"the clock of the operator is not compared with the node's": {
			in(MovingWorkload, operatorBehind), Fence, MovingWorkload, "Fenced",
		},
		"a status of before the request proves nothing": {
			in(PoweringOff, off, restored), Wait, PoweringOff, "PoweringOff",
		},
		"nor that the host was on in between": {
			in(PoweringOff, on, wasOff, restored), Wait, PoweringOff, "PoweringOff",
		},
		"nor that it is off when time is over": {
			in(PoweringOff, off, restored, attemptOver, second), AskPerson, PoweringOff, "OperatorSilent",
		},
		"one of since does": {
			in(PoweringOff, off, saidSince), Advance, MovingWorkload, "PoweredOff",
		},
		"so does one of the same second": {
			in(PoweringOff, off, saysNothingNew), Advance, MovingWorkload, "PoweredOff",
		},
		"a fence that is there comes off for it": {
			in(MovingWorkload, fenced, renewedAgain), Unfence, MovingWorkload, "SignOfLife",
		},
		"although the host is gone": {
			in(MovingWorkload, fenced, renewedAgain, hostVanished), Unfence, MovingWorkload, "SignOfLife",
		},
		"a clock that is ahead is watched after a receipt": {
			in(MovingWorkload, wasOff, receiptNoted, clockAhead), Wait, MovingWorkload, "WatchingForLife",
		},
		"so is a node that was heard of since its host was asked": {
			in(MovingWorkload, wasOff, askedLong, receiptNoted, heardSince), Wait, MovingWorkload, "WatchingForLife",
		},
		"and not taken for life for ever": {
			in(MovingWorkload, wasOff, receiptNoted, watchedLong), Fence, MovingWorkload, "Fenced",
		},
		"nor again one that lives on, by a clock that is behind": {
			in(MovingWorkload, lived, clockBehind), Wait, MovingWorkload, "WatchingForLife",
		},
		"which a second renewal ends": {
			in(MovingWorkload, lived, clockBehind, renewedLate), Disprove, Failed, "SignOfLife",
		},
		"but a node that goes on to report lives": {
			in(MovingWorkload, wasOff, receiptNoted, renewedAgain), Advance, PoweringOff, "SignOfLife",
		},
		"or came on, and goes off because of us": {
			in(PoweringOff, on, wasOff), NoteOn, PoweringOff, "PowerOffRequested",
		},
		"a host that is off has its workload moved": {in(PoweringOff, off), Advance, MovingWorkload, "PoweredOff"},
		"a node is fenced while its host is off":    {in(MovingWorkload), Fence, MovingWorkload, "Fenced"},
		"but not while the power is unmanaged": {
			in(MovingWorkload, hostPaused), Wait, MovingWorkload, "HostNotReady",
		},
		"a host that came on is powered off again": {in(MovingWorkload, on), Advance, PoweringOff, "PoweredOnAgain"},
		"W10: a fenced node is given time to empty": {
			in(MovingWorkload, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"N7: but not for ever, and the fence goes before the host comes": {
			in(MovingWorkload, fenced, attemptOver), Unfence, MovingWorkload, "WorkloadStuck",
		},
		"which it does": {
			in(MovingWorkload, attemptOver), Advance, PoweringOn, "WorkloadStuck",
		},
		"somebody else's fence is as good": {
			in(MovingWorkload, fencedByOthers, empty), Advance, PoweringOn, "WorkloadMoved",
		},
		"an empty node lets its host on": {
			in(MovingWorkload, fenced, empty), Advance, PoweringOn, "WorkloadMoved",
		},
		"N5: without a node there is nothing to move": {
			in(MovingWorkload, noNode, empty), Advance, PoweringOn, "NodeGone",
		},
		"the pods of a node that was deleted are waited for": {
			in(MovingWorkload, noNode), Wait, MovingWorkload, "WorkloadMoving",
		},
		"the boot of a node is waited for that is about to be seen": {
			in(Rebooting, cannotBeOff, bootNotSeen, since(59*time.Second)), Wait, Rebooting, "PowerOffDisabled",
		},
		"but not for ever": {
			in(Rebooting, cannotBeOff, bootNotSeen), Reboot, Rebooting, "RebootRequested",
		},
		"until the deadline": {
			in(MovingWorkload, noNode, attemptOver), Advance, PoweringOn, "WorkloadStuck",
		},
		"a host that cannot be kept powered off is released": {
			in(MovingWorkload, cannotBeOff), Release, Preparing, "PowerOffDisabled",
		},
		"also before it was off": {
			in(PoweringOff, cannotBeOff), Release, Preparing, "PowerOffDisabled",
		},
		"a host that came on has its fence taken away": {in(PoweringOff, fenced), Unfence, PoweringOff, "Unfenced"},
		"but not while it is off": {
			in(PoweringOff, fenced, off), Advance, MovingWorkload, "PoweredOff",
		},
		"a retry begins without a fence": {in(Preparing, fenced), Unfence, Preparing, "Unfenced"},
		"a power failure is said": {
			in(PoweringOff, failing), Wait, PoweringOff, "PowerOffFailed",
		},
		"of a host that does not come on too": {in(PoweringOn, failing), Wait, PoweringOn, "PowerOnFailed"},
		"a workload that moves is waited for, whatever the host": {
			in(MovingWorkload, cannotBeOff, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"W28: a mark without a request is removed too": {
			in(Succeeded, markedByUs, wellNow), Withdraw, Succeeded, "MachineHealthy",
		},
		"a pending reboot of the last attempt is removed first": {in(Preparing, rebooting), Release, Preparing, "AttemptBegan"},
		"nor does a machine that is gone, while its node may be there": {
			in(Ended, machineVanished, fenced, blind), Wait, Ended, "Releasing",
		},
		"N10: a pause releases a host that is being powered off": {in(PoweringOff, paused), Release, Preparing, "Paused"},
		"and of one that is off, as long as nothing moves":       {in(MovingWorkload, paused), Release, Preparing, "Paused"},
		"but a workload that moves is waited for": {
			in(MovingWorkload, paused, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"with a deadline": {
			in(MovingWorkload, paused, fenced, attemptOver), Unfence, MovingWorkload, "WorkloadStuck",
		},
		"nothing begins during a teardown":                {in(Pending, leavingNow), Advance, Ended, "Teardown"},
		"and goes on with nothing that would need an end": {in(PoweringOff, leavingNow), Advance, Ended, "Teardown"},
		"does not fence the node of a host that is off":   {in(MovingWorkload, leavingNow), Advance, Ended, "Teardown"},
		"but waits for a workload that moves": {
			in(MovingWorkload, leavingNow, fenced), Wait, MovingWorkload, "WorkloadMoving",
		},
		"no longer than ever": {
			in(MovingWorkload, leavingNow, fenced, attemptOver), Unfence, MovingWorkload, "WorkloadStuck",
		},
		"and lets the host on when it has moved": {
			in(PoweringOn, leavingNow, heldOff), Advance, Ended, "Teardown",
		},
		"no owner is asked during a teardown": {in(RequestingOwner, leavingNow), Advance, Ended, "Teardown"},
		"nor waited for until it is healthy":  {in(Booting, leavingNow, fenced), Advance, Ended, "Teardown"},
		"then the host is released": {
			in(PoweringOn, paused, heldOff), Release, PoweringOn, "Paused",
		},
		"and the fence taken away": {
			in(PoweringOn, paused, fenced), Unfence, PoweringOn, "Paused",
		},
		"a pause stops the clocks": {
			in(Booting, paused, resumed, stateOver), Wait, Booting, "Paused",
		},
		"and they go on after it": {in(Booting, resumed, stateOver), Wait, Booting, "Booting"},
		"a reboot that was carried out is not asked for once more": {
			in(Rebooting, paused, rebooted), Advance, Booting, "RebootAccepted",
		},
		"a paused remediation that is deleted releases the host, and stays": {in(Ended, paused, deleting), Wait, Ended, "Paused"},
		"N4: a cluster out of reach is waited for": {
			in(MovingWorkload, blindLong), Wait, MovingWorkload, "ClusterUnreachable",
		},
		"but a control-plane host may be what it takes": {
			in(MovingWorkload, blindLong, controlPlane), Advance, PoweringOn, "ClusterUnreachable",
		},
		"power is released": {
			in(PoweringOn, heldOff), Release, PoweringOn, "PowerOnRequested",
		},
		"W7: a host that never comes on is retried": {
			in(PoweringOn, stateOver, hasFailed), BeginAttempt, Preparing, "PowerOnTimedOut",
		},
		"and its owner is asked in the end": {
			in(PoweringOn, stateOver, second, failing), Advance, RequestingOwner, "PowerOnTimedOut",
		},
		"unless nothing reports that it fails": {
			in(PoweringOn, stateOver, second), AskPerson, PoweringOn, "OperatorSilent",
		},
		"a node that has booted proves that its host is on":            {in(PoweringOn, upAgain), Advance, Booting, "PoweredOn"},
		"W9: booting has a clock of its own":                           {in(Booting, attemptOver), Wait, Booting, "Booting"},
		"a reboot is asked for":                                        {in(Rebooting), Reboot, Rebooting, "RebootRequested"},
		"once in an attempt":                                           {in(Rebooting, rebooting), Wait, Rebooting, "Rebooting"},
		"F7: and taken on when its mark is gone, which proves no more": {in(Rebooting, rebooted), Advance, Booting, "RebootAccepted"},
		"the fence goes when the host is on":                           {in(Booting, fenced), Unfence, Booting, "Unfenced"},
		"W26: a well machine is the end":                               {in(Booting, wellNow), Advance, Succeeded, "MachineHealthy"},
		"nor for one that was registered anew": {
			in(RequestingOwner, hostMadeAnew), AskPerson, RequestingOwner, "HostGone",
		},
		"C5: a bad one is retried": {
			in(Booting, stateOver), BeginAttempt, Preparing, "NodeStillUnhealthy",
		},
		"but not one whose cluster cannot be asked": {
			in(Booting, stateOver, second, outOfReach), AskPerson, Booting, "ClusterUnreachable",
		},
		"unless that may be for its host": {
			in(Booting, stateOver, second, outOfReach, controlPlane), Advance, RequestingOwner, "NodeStillUnhealthy",
		},
		"but not if another one answers": {in(Booting, stateOver, second, changed, controlPlane), AskPerson, Booting, "ClusterUnreachable"},
		"W20: also if there are fewer retries now": {
			in(Booting, stateOver, func(f *Facts) { f.Attempt = 7 }), Advance, RequestingOwner, "NodeStillUnhealthy",
		},
		"a host is released before the owner is asked": {
			in(RequestingOwner, heldOff), Release, RequestingOwner, "RequestingOwner",
		},
		"it is marked before that": {
			in(RequestingOwner), MarkHost, RequestingOwner, "RequestingOwner",
		},
		"W1: then the owner is asked": {
			in(RequestingOwner, hostIsMarked), RequestOwner, OwnerRequested, "OwnerRequested",
		},
		"once": {
			in(RequestingOwner, hostIsMarked, ownerAsked), Advance, OwnerRequested, "OwnerRequested",
		},
		"a host that is gone cannot be marked": {
			in(RequestingOwner, hostNeverNamed), RequestOwner, OwnerRequested, "OwnerRequested",
		},
		"no owner is asked while a host may be registered anew": {
			in(RequestingOwner, hostLostLong), AskPerson, RequestingOwner, "HostGone",
		},
		"nor for a host that cannot be provisioned anew": {
			in(RequestingOwner, hostExternally), Advance, Failed, "HostExternallyProvisioned",
		},
		"nor one that there is not, and nothing is marked": {
			in(RequestingOwner, withoutOwner), Advance, Failed, "MachineWithoutOwner",
		},
		"one that may come back is waited for, to be released and marked": {
			in(RequestingOwner, hostVanished), Wait, RequestingOwner, "HostGone",
		},
		"the owner of a healthy machine is not asked": {
			in(RequestingOwner, wellNow), Advance, Succeeded, "MachineHealthy",
		},
		"W3: after the owner was asked no finalizer is kept": {
			in(OwnerRequested, markedByUs), DropFinalizer, OwnerRequested, "OwnerRequested",
		},
		"W28: the request is withdrawn when the machine is healthy": {
			in(OwnerRequested, markedByUs, wellNow), Withdraw, Succeeded, "MachineHealthy",
		},
		"W4: a host that was switched off is released": {in(Failed, switchedOff, heldOff), Release, Failed, "Failed"},
		"N2: one that is deleted releases the host": {
			in(Ended, deleting, heldOff, fenced), Release, Ended, "Releasing",
		},
		"then of the node":                                    {in(Ended, deleting, fenced), Unfence, Ended, "Unfenced"},
		"waits for a node that is out of sight":               {in(Ended, deleting, fenced, blind), Wait, Ended, "Releasing"},
		"also if it is only remembered that it may be fenced": {in(Failed, blind, mayBeFenced), Wait, Failed, "Failed"},
		"which one in sight is not":                           {in(Failed, mayBeFenced), DropFinalizer, Failed, "Failed"},
		"but not for ever, either": {
			in(Ended, deleting, fenced, blind, stateOver), DropFinalizer, Ended, "UnfenceTimedOut",
		},
		"nor where the fence cannot be taken away": {
			in(Ended, deleting, fenced, stateOver), DropFinalizer, Ended, "UnfenceTimedOut",
		},
		"though that is tried while there is a remediation": {
			in(Failed, fenced, stateOver, free), Unfence, Failed, "Unfenced",
		},
		"nor if the machine goes anyway": {
			in(Ended, deleting, fenced, blind, machineGoing), DropFinalizer, Ended, "Ended",
		},
		"a check deletes its request because the machine is healthy": {
			in(Booting, deleting, wellNow), Advance, Succeeded, "MachineHealthy",
		},
		"F6: or because its node is, before it says so of the machine": {
			in(Booting, deleting, upAgain), Advance, Succeeded, "MachineHealthy",
		},
		"also before that is seen here: it was not cancelled": {in(Booting, deleting), Advance, Ended, "NoLongerNeeded"},
		"W2: nor does a machine that is gone keep it": {
			in(Ended, deleting, machineVanished), DropFinalizer, Ended, "Ended",
		},
		"one that its check times out before it began touches nothing": {in(Pending, toStop), Advance, Stopped, "TimedOutByCheck"},
		"nor before the host was asked":                                {in(Preparing, toStop), Advance, Stopped, "TimedOutByCheck"},
		"not even for one that waits for its turn": {
			in(Preparing, toStop, anothersTurn), Advance, Stopped, "TimedOutByCheck",
		},
		"it stops while the host is held off": {
			in(MovingWorkload, toStop), Advance, Stopped, "TimedOutByCheck",
		},
		"releases the host": {
			in(Stopped, toStop, heldOff, fenced), Release, Stopped, "TimedOutByCheck",
		},
		"and of the node": {in(Stopped, toStop, fenced), Unfence, Stopped, "Unfenced"},
		"then it keeps no finalizer": {
			in(Stopped, toStop), DropFinalizer, Stopped, "TimedOutByCheck",
		},
		"and does not begin anew if it is not told any more": {in(Stopped, free), Wait, Stopped, "TimedOutByCheck"},
		"an owner that was about to be asked is not": {
			in(RequestingOwner, toStop, hostIsMarked), Advance, Stopped, "TimedOutByCheck",
		},
		"a machine that is healthy already was not remediated in vain": {
			in(Booting, toStop, wellNow), Advance, Succeeded, "MachineHealthy",
		},
		"one that is over has nothing to stop": {
			in(Succeeded, toStop, free), Wait, Succeeded, "MachineHealthy",
		},
		"nor has one whose owner was asked": {
			in(OwnerRequested, toStop, free), Wait, OwnerRequested, "OwnerRequested",
		},
		"a pause comes before a stop, and releases the host as well": {
			in(PoweringOff, toStop, paused), Release, Preparing, "Paused",
		},
		"a machine that is being deleted is left to those who do that": {
			in(PoweringOff, machineGoing), Advance, Ended, "MachineDeleting",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Next(tc.given, policy, noon)
			if got.Do != tc.do || got.Next != tc.next || got.Reason != tc.reason {
				t.Errorf("Next(): %s, then %s (%s), want %s, then %s (%s)", got.Do, got.Next, got.Reason, tc.do, tc.next, tc.reason)
			}
		})
	}
}

func TestEveryStateEndsAndNoneCanHang(t *testing.T) {
	if len(order) != len(table) {
		t.Errorf("order names %d states, the table has %d", len(order), len(table))
	}
	for _, s := range order {
		rows := rowsOf[s]
		if last := rows[len(rows)-1]; last.when.name != always.name {
			t.Errorf("%s: the last row is %q, want %q", s, last.when.name, always.name)
		}
		for i, r := range rows {
			if s.Final() || r.do != Wait || r.when.name == pausedNow.name { // a pause ends when who made it says so
				continue
			}
			if !boundedBefore(rows[:i]) && r.when.until == nil {
				t.Errorf("%s: %q waits, and nothing before it runs out of time", s, r.when.name)
			}
		}
	}
	for _, s := range Steps() {
		if s.Do == AskPerson && s.Detail == "" || s.Do != AskPerson && s.Detail == AsksPerson {
			t.Errorf("%s in %s because of %s has the detail %q", s.Do, s.From, s.Reason, s.Detail)
		}
	}
}

// boundedBefore reports whether time makes one of rows hold, whatever else is the case; what waits for a turn has a time of its own,
// and so has what waits for a host that may be somebody else's.
func boundedBefore(rows []row) bool {
	for _, r := range rows {
		switch r.when.name {
		case overdue.name, overduePending.name, late.name, queuedTooLong.name, foreignTooLong.name, poweredOffBySpecLong.name, hostLost.name, servicedLong.name,
			powerUnmanagedLong.name:
			return true
		}
	}
	return false
}

func TestWhenToLookAgain(t *testing.T) {
	cases := map[string]struct {
		given Facts
		want  time.Time
	}{
		"at once after an action":                {in(Pending), noon},
		"when what was undone may be done again": {in(PoweringOff, released, holdsBefore(3, 3*time.Second)), noon.Add(time.Second)},
		"or at the end of the attempt before": {
			in(PoweringOff, off, released, holdsBefore(12, 0), func(f *Facts) { f.Began = ago(599 * time.Second) }), noon.Add(time.Second),
		},
		"at the end of the attempt":                     {in(PoweringOff), noon.Add(9 * time.Minute)},
		"when a host has settled, if that is earlier":   {in(PoweringOff, off, wasOff), noon.Add(30 * time.Second)},
		"when a blind control plane is given up":        {in(MovingWorkload, blind, controlPlane), noon.Add(time.Minute)},
		"not for a worker":                              {in(MovingWorkload, blind), noon.Add(9 * time.Minute)},
		"at the end of booting":                         {in(Booting), noon.Add(19 * time.Minute)},
		"when a turn took too long":                     {in(Pending, anothersTurn), noon.Add(119 * time.Minute)},
		"not during a pause, which no clock ends":       {in(Booting, paused), time.Time{}},
		"W16: never after an end":                       {in(Succeeded, free), time.Time{}},
		"when a node out of sight is given up":          {in(Ended, fenced, blind), noon.Add(9 * time.Minute)},
		"not once it is given up; something else keeps": {in(Ended, blind, free), time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Next(tc.given, policy, noon); !got.Again.Equal(tc.want) {
				t.Errorf("%s (%s): again %s, want %s", got.Do, got.Reason, got.Again, tc.want)
			}
		})
	}
}
