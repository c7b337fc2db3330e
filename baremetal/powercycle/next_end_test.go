package powercycle

import "testing"

func TestNextInRequestingOwner(t *testing.T) {
	testNext(t, RequestingOwner, []nextCase{
		{"no owner is asked where two nodes have the provider ID", facts{nodeTwins}, AskPerson, RequestingOwner, "NodeMismatch"},
		{"nor where another workload cluster answers", facts{changed}, AskPerson, RequestingOwner, "ClusterUnreachable"},
		{"a mark that another client removes again and again asks a person",
			facts{stateOver, func(f *Facts) { f.Did = Did{Do: MarkHost, Times: 9, At: noon} }}, AskPerson, RequestingOwner, "StepUndone"},
		{"no owner is asked during a teardown", facts{leavingNow}, Advance, Ended, "Teardown"},
		{"no owner is asked for a host that was registered anew", facts{hostMadeAnew}, AskPerson, RequestingOwner, "HostGone"},
		{"the host is released first", facts{heldOff}, Release, RequestingOwner, "RequestingOwner"},
		{"the fence is removed before the host is marked", facts{fenced}, Unfence, RequestingOwner, "Unfenced"},
		{"the host is marked next", nil, MarkHost, RequestingOwner, "RequestingOwner"},
		{"W1: the owner is asked when the host is marked", facts{hostIsMarked}, RequestOwner, OwnerRequested, "OwnerRequested"},
		{"the owner is asked once", facts{hostIsMarked, ownerAsked}, Advance, OwnerRequested, "OwnerRequested"},
		{"the owner is asked for a machine without a host, which cannot be marked",
			facts{hostNeverNamed}, RequestOwner, OwnerRequested, "OwnerRequested"},
		{"nor for one that is another machine's by now, or was registered anew for none",
			facts{anothersHost}, Advance, Failed, "HostMismatch"},
		{"no owner is asked for a host that stays gone", facts{hostLostLong}, AskPerson, RequestingOwner, "HostGone"},
		{"no owner is asked for a host that is externally provisioned",
			facts{hostExternally}, Advance, Failed, "HostExternallyProvisioned"},
		{"no host is marked for a machine without an owner", facts{withoutOwner}, Advance, Failed, "MachineWithoutOwner"},
		{"a host that is gone is waited for", facts{hostVanished}, Wait, RequestingOwner, "HostGone"},
		{"no owner is asked for a machine that is healthy", facts{wellNow}, Advance, Succeeded, "MachineHealthy"},
		{"no owner is asked when the check has timed the remediation out",
			facts{toStop, hostIsMarked}, Advance, Stopped, "TimedOutByCheck"},
	})
}

func TestNextInSucceeded(t *testing.T) {
	testNext(t, Succeeded, []nextCase{
		{"W28: the mark of a healthy machine's host is removed", facts{markedByUs, wellNow}, Withdraw, Succeeded, "MachineHealthy"},
		{"nothing is left to stop", facts{toStop, free}, Wait, Succeeded, "MachineHealthy"},
	})
}

func TestNextInOwnerRequested(t *testing.T) {
	testNext(t, OwnerRequested, []nextCase{
		{"W3: no finalizer is kept when the owner was asked", facts{markedByUs}, DropFinalizer, OwnerRequested, "OwnerRequested"},
		{"W28: the request is withdrawn when the machine is healthy", facts{markedByUs, wellNow}, Withdraw, Succeeded, "MachineHealthy"},
		{"nothing is left to stop when the owner was asked", facts{toStop, free}, Wait, OwnerRequested, "OwnerRequested"},
	})
}

func TestNextInFailed(t *testing.T) {
	testNext(t, Failed, []nextCase{
		{"W4: a host that was switched off is released", facts{switchedOff, heldOff}, Release, Failed, "Failed"},
		{"a node that may be fenced is waited for", facts{blind, mayBeFenced}, Wait, Failed, "Failed"},
		{"a node that is seen without a fence is not waited for", facts{mayBeFenced}, DropFinalizer, Failed, "Failed"},
		{"a fence is removed also when the patience is over", facts{fenced, stateOver, free}, Unfence, Failed, "Unfenced"},
	})
}

func TestNextInEnded(t *testing.T) {
	testNext(t, Ended, []nextCase{
		{"a node that may be fenced is waited for when the machine is gone",
			facts{machineVanished, fenced, blind}, Wait, Ended, "Releasing"},
		{"a paused remediation that is deleted stays", facts{paused, deleting}, Wait, Ended, "Paused"},
		{"N2: the host is released first", facts{deleting, heldOff, fenced}, Release, Ended, "Releasing"},
		{"the fence is removed next", facts{deleting, fenced}, Unfence, Ended, "Unfenced"},
		{"the fence of a host that is off stays until the workload has moved", facts{deleting, fenced, off}, Wait, Ended, "Releasing"},
		{"also if its machine is deleted and another client keeps it off",
			facts{machineGoing, fenced, off, heldElsewhere}, Wait, Ended, "Releasing"},
		{"or for the deadline", facts{deleting, fenced, off, attemptOver}, Unfence, Ended, "Unfenced"},
		{"or until the node boots", facts{deleting, fenced, off, anotherBoot}, Unfence, Ended, "Unfenced"},
		{"or until it lives on", facts{deleting, fenced, off, renewedAgain}, Unfence, Ended, "Unfenced"},
		{"or until the node is deleted", facts{deleting, fenced, off, discarded}, Unfence, Ended, "Unfenced"},
		{"a node that cannot be seen is waited for", facts{deleting, fenced, blind}, Wait, Ended, "Releasing"},
		{"a node that cannot be seen is waited for until the timeout",
			facts{deleting, fenced, blind, stateOver}, DropFinalizer, Ended, "UnfenceTimedOut"},
		{"a fence that cannot be removed keeps the finalizer until the timeout",
			facts{deleting, fenced, stateOver}, DropFinalizer, Ended, "UnfenceTimedOut"},
		{"a node is not waited for when its machine is being deleted",
			facts{deleting, fenced, blind, machineGoing}, DropFinalizer, Ended, "Ended"},
		{"W2: nothing is waited for when the machine is gone", facts{deleting, machineVanished}, DropFinalizer, Ended, "Ended"},
	})
}

func TestNextInStopped(t *testing.T) {
	testNext(t, Stopped, []nextCase{
		{"the host is released first", facts{toStop, heldOff, fenced}, Release, Stopped, "TimedOutByCheck"},
		{"the fence is removed next", facts{toStop, fenced}, Unfence, Stopped, "Unfenced"},
		{"the finalizer is dropped last", facts{toStop}, DropFinalizer, Stopped, "TimedOutByCheck"},
		{"it does not begin anew when it is timed out no more", facts{free}, Wait, Stopped, "TimedOutByCheck"},
	})
}
