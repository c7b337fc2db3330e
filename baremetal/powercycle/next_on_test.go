package powercycle

import (
	"testing"
	"time"
)

func TestNextInPoweringOn(t *testing.T) {
	testNext(t, PoweringOn, []nextCase{
		{"C12: a host that another client keeps off is waited for", facts{heldElsewhere}, Wait, PoweringOn, "HostKeptOff"},
		{"a host that another client keeps off asks a person, and is not condemned",
			facts{heldElsewhere, stateOver, second}, AskPerson, PoweringOn, "HostKeptOff"},
		{"its time begins anew when nobody keeps the host off any more",
			facts{stateOver, second, failing, wasKeptOff}, Advance, PoweringOn, "HostReleasedByOthers"},
		{"a paused host asks a person, and is not condemned",
			facts{setAside, stateOver, second, hasFailed}, AskPerson, PoweringOn, "HostNotReady"},
		{"the fence is removed from the node of a host that is on during a wait",
			facts{switchedOff, on, fenced}, Unfence, PoweringOn, "Unfenced"},
		{"an error of the power is reported", facts{failing}, Wait, PoweringOn, "PowerOnFailed"},
		{"it ends during a teardown", facts{leavingNow, heldOff}, Advance, Ended, "Teardown"},
		{"a remediation that is deleted before its host is released is cancelled", facts{deleting, heldOff}, Advance, Ended, "Cancelled"},
		{"one that is deleted after that is needed no longer", facts{deleting}, Advance, Ended, "NoLongerNeeded"},
		{"or has succeeded: its check may see the node first", facts{deleting, upAgain}, Advance, Succeeded, "MachineHealthy"},
		{"a pause releases the host", facts{paused, heldOff}, Release, PoweringOn, "Paused"},
		{"a pause removes what a reboot has left", facts{paused, rebooted}, Release, PoweringOn, "Paused"},
		{"a pause removes the fence", facts{paused, fenced, empty}, Unfence, PoweringOn, "Paused"},
		{"a pause keeps the fence of a host that is off until the workload has moved", facts{paused, fenced}, Wait, PoweringOn, "Paused"},
		{"or for the deadline", facts{paused, fenced, attemptOver}, Unfence, PoweringOn, "Paused"},
		{"the host is released", facts{heldOff}, Release, PoweringOn, "PowerOnRequested"},
		{"W7: a host whose power fails is tried again", facts{stateOver, hasFailed}, BeginAttempt, Preparing, "PowerOnTimedOut"},
		{"the owner is asked when the power fails in the last attempt",
			facts{stateOver, second, failing}, Advance, RequestingOwner, "PowerOnTimedOut"},
		{"an operator that says nothing condemns no host", facts{stateOver, second}, AskPerson, PoweringOn, "OperatorSilent"},
		{"a node that has booted proves that the host is on", facts{upAgain}, Advance, Booting, "PoweredOn"},
		{"a node that shows life is unfenced at once", facts{fenced, renewedAgain}, Unfence, PoweringOn, "Unfenced"},
		{"a host that is on boots", facts{on}, Advance, Booting, "PoweredOn"},
		{"a host that is gone is waited for", facts{hostVanished}, Wait, PoweringOn, "HostGone"},
		{"a host that stays gone leaves it to the boot to ask a person", facts{hostLostLong}, Advance, Booting, "HostGone"},
		{"a host that is being serviced is waited for in a state of its own", facts{beingServiced}, Advance, Servicing, "HostServiced"},
		{"a host whose power stays unmanaged asks a person", facts{hostPaused, stateOver}, AskPerson, PoweringOn, "HostNotReady"},
		{"a node that goes on to show life is unfenced first", facts{fenced, lived, renewedAgain}, Unfence, PoweringOn, "Unfenced"},
		{"a node that has booted is unfenced before its host counts as on",
			facts{fenced, anotherBoot, upAgain}, Unfence, PoweringOn, "Unfenced"},
		{"a node that goes on to show life ends all attempts", facts{lived, renewedAgain}, Disprove, Failed, "SignOfLife"},
		{"a node that has booted is unfenced", facts{fenced, anotherBoot}, Unfence, PoweringOn, "Unfenced"},
		{"a node that has booted is unfenced after the timeout", facts{fenced, anotherBoot, stateOver}, Unfence, PoweringOn, "Unfenced"},
		{"a node that has booted is unfenced during a wait for others",
			facts{fenced, anotherBoot, switchedOff, stateOver}, Unfence, PoweringOn, "Unfenced"},
		{"a node that shows life is unfenced after the timeout", facts{fenced, renewedAgain, stateOver}, Unfence, PoweringOn, "Unfenced"},
		{"a fence that cannot be removed holds up no retry",
			facts{fenced, anotherBoot, stateOver, hasFailed}, BeginAttempt, Preparing, "PowerOnTimedOut"},
	})
}

func TestNextInRebooting(t *testing.T) {
	testNext(t, Rebooting, []nextCase{
		{"a host that its owner switches off before its reboot is left to the owner",
			facts{switchedOff}, Advance, Preparing, "HostSwitchedOff"},
		{"a host that is paused before its reboot is asked anew later", facts{rebooting, setAside}, Advance, Preparing, "HostNotReady"},
		{"a paused host whose reboot was carried out boots, and no owner is asked",
			facts{rebooted, setAside, second, attemptOver, hasFailed}, Advance, Booting, "RebootAccepted"},
		{"a host whose power-off was disproved is not rebooted", facts{disprovedBefore}, Advance, Preparing, "PowerOffDisproved"},
		{"the boot of the node is waited for",
			facts{cannotBeOff, bootNotSeen, since(59 * time.Second)}, Wait, Rebooting, "PowerOffDisabled"},
		{"the boot of the node is waited for a minute at most", facts{cannotBeOff, bootNotSeen}, Reboot, Rebooting, "RebootRequested"},
		{"a reboot that was carried out is noticed in a pause", facts{paused, rebooted}, Advance, Booting, "RebootAccepted"},
		{"it waits in the queue again before it asks the host", facts{anothersTurn}, Advance, Preparing, "WaitingInQueue"},
		{"a host that is gone is waited for", facts{hostVanished}, Wait, Rebooting, "HostGone"},
		{"a host that is being serviced is waited for in a state of its own", facts{beingServiced}, Advance, Servicing, "HostServiced"},
		{"the fence is removed first", facts{fenced}, Unfence, Rebooting, "Unfenced"},
		{"a host whose power fails is tried again", facts{rebooting, attemptOver, hasFailed}, BeginAttempt, Preparing, "RebootTimedOut"},
		{"the owner is asked when the power fails in the last attempt",
			facts{rebooting, second, attemptOver, hasFailed}, Advance, RequestingOwner, "RebootTimedOut"},
		{"an operator that says nothing condemns no host", facts{rebooting, second, attemptOver}, AskPerson, Rebooting, "OperatorSilent"},
		{"the host is asked to reboot", nil, Reboot, Rebooting, "RebootRequested"},
		{"the reboot is asked for once", facts{rebooting}, Wait, Rebooting, "Rebooting"},
		{"F7: the reboot is accepted when its annotation is gone", facts{rebooted}, Advance, Booting, "RebootAccepted"},
	})
}

func TestNextInServicing(t *testing.T) {
	testNext(t, Servicing, []nextCase{
		{"the host is released", facts{beingServiced, heldOff}, Release, Servicing, "HostServiced"},
		{"a host that is gone is waited for", facts{hostVanished}, Wait, Servicing, "HostGone"},
		{"the fence is removed before the host boots", facts{fenced}, Unfence, Servicing, "Unfenced"},
		{"no owner is asked in the meantime", facts{beingServiced, stateOver, second}, Wait, Servicing, "HostServiced"},
		{"a person is asked after two hours", facts{beingServiced, long}, AskPerson, Servicing, "HostServiced"},
		{"the host boots when the service has ended", nil, Advance, Booting, "Serviced"},
	})
}

func TestNextInBooting(t *testing.T) {
	testNext(t, Booting, []nextCase{
		{"a host that another client keeps off is waited for",
			facts{heldElsewhere, stateOver, second}, Advance, PoweringOn, "HostKeptOff"},
		{"a host that its owner switches off is waited for", facts{switchedOff}, Advance, PoweringOn, "HostSwitchedOff"},
		{"a host that stays gone asks a person", facts{hostLostLong, stateOver, second}, AskPerson, Booting, "HostGone"},
		{"a host that is gone is waited for", facts{hostVanished, stateOver, second}, Wait, Booting, "HostGone"},
		{"the machine is waited for where two nodes have the provider ID", facts{nodeTwins}, Wait, Booting, "Booting"},
		{"a person is asked where two nodes have the provider ID",
			facts{nodeTwins, stateOver, second}, AskPerson, Booting, "NodeMismatch"},
		{"a machine that does not boot on a paused host asks a person, and no owner",
			facts{setAside, stateOver, second}, AskPerson, Booting, "HostNotReady"},
		{"a machine that does not boot on a paused host asks a person, and no attempt begins",
			facts{setAside, stateOver}, AskPerson, Booting, "HostNotReady"},
		{"its time begins anew when the host is paused no more",
			facts{stateOver, second, wasKeptOff}, Advance, Booting, "HostReleasedByOthers"},
		{"it ends during a teardown", facts{leavingNow, fenced}, Advance, Ended, "Teardown"},
		{"a host that is kept off for a former attempt is released", facts{heldOff}, Release, Booting, "PoweredOn"},
		{"the fence is removed before a healthy machine is the end", facts{fenced, wellNow}, Unfence, Booting, "Unfenced"},
		{"a node that has booted is unfenced", facts{fenced, anotherBoot}, Unfence, Booting, "Unfenced"},
		{"a node that goes on to show life is unfenced first", facts{fenced, lived, renewedAgain}, Unfence, Booting, "Unfenced"},
		{"a host that is being serviced is waited for in a state of its own", facts{beingServiced}, Advance, Servicing, "HostServiced"},
		{"a pause stops the clocks", facts{paused, resumed, stateOver}, Wait, Booting, "Paused"},
		{"the clocks go on after a pause", facts{resumed, stateOver}, Wait, Booting, "Booting"},
		{"W9: a boot has a timeout of its own", facts{attemptOver}, Wait, Booting, "Booting"},
		{"the fence is removed", facts{fenced}, Unfence, Booting, "Unfenced"},
		{"W26: a healthy machine is the end", facts{wellNow}, Advance, Succeeded, "MachineHealthy"},
		{"C5: a machine that is not healthy in time is retried", facts{stateOver}, BeginAttempt, Preparing, "NodeStillUnhealthy"},
		{"a machine whose cluster cannot be reached asks a person",
			facts{stateOver, second, outOfReach}, AskPerson, Booting, "ClusterUnreachable"},
		{"a control-plane machine whose cluster cannot be reached goes to its owner",
			facts{stateOver, second, outOfReach, controlPlane}, Advance, RequestingOwner, "NodeStillUnhealthy"},
		{"no owner is asked for one in whose place another cluster answers, but a person",
			facts{stateOver, second, changed, controlPlane}, AskPerson, Booting, "ClusterUnreachable"},
		{"W20: the owner is asked if there are fewer retries now",
			facts{stateOver, func(f *Facts) { f.Attempt = 7 }}, Advance, RequestingOwner, "NodeStillUnhealthy"},
		{"a remediation that is deleted when the machine is healthy has succeeded",
			facts{deleting, wellNow}, Advance, Succeeded, "MachineHealthy"},
		{"F6: a remediation that is deleted when the node is Ready has succeeded",
			facts{deleting, upAgain}, Advance, Succeeded, "MachineHealthy"},
		{"a remediation that is deleted during the boot is needed no longer", facts{deleting}, Advance, Ended, "NoLongerNeeded"},
		{"that the node lives on under the boot of before is noted first",
			facts{deleting, upAgain, lived, renewedAgain}, Disprove, Failed, "SignOfLife"},
		{"a remediation that is timed out when the machine is healthy has succeeded",
			facts{toStop, wellNow}, Advance, Succeeded, "MachineHealthy"},
		{"a node that shows life under the boot of before is unfenced", facts{fenced, renewedAgain}, Unfence, Booting, "Unfenced"},
		{"a node that goes on to show life ends all attempts", facts{lived, renewedAgain, stateOver}, Disprove, Failed, "SignOfLife"},
		{"one report of a kubelet that has yet to say its boot ends nothing", facts{lived}, Wait, Booting, "Booting"},
	})
}

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
