package powercycle

import (
	"cmp"
	"slices"
	"time"
)

// row is one line of the table: if when holds, do the action, and be in state next afterwards.
type row struct {
	when   guard
	do     Action
	next   State
	reason Reason
}

// action returns what r does. A person is asked only once.
func (r row) action(f Facts) Action {
	switch {
	case r.do != waitForPerson:
		return r.do
	case f.Person == r.reason:
		return Wait
	}
	return AskPerson
}

func (r row) detail() Detail {
	if r.do == waitForPerson {
		return cmp.Or(r.when.detail, AsksPerson)
	}
	return r.when.detail
}

// rowsOf has the rows for each state, in order: first those that many states share, then those of the table.
var rowsOf = func() map[State][]row {
	all := map[State][]row{}
	for s, own := range table {
		switch {
		case s.Final():
			all[s] = slices.Concat(pauses(s), own)
		case s == MovingWorkload:
			all[s] = slices.Concat(pauses(s), lives(s), []row{{finishing, Wait, s, WorkloadMovingReason}}, endings, acting, own)
		case s == PoweringOff || s == PoweringOn || s == Booting:
			all[s] = slices.Concat(pauses(s), lives(s), endings, acting, own)
		case s == Pending || s == Preparing || s == RequestingOwner:
			all[s] = slices.Concat(pauses(s), endings, own)
		default:
			all[s] = slices.Concat(pauses(s), endings, acting, own)
		}
	}
	return all
}()

// pauses come before everything else. A user who pauses a cluster wants it left alone, and may be about to move it to another management
// cluster, during which the host must not be kept off. So the host is released, the node is unfenced, and nothing more is done. An attempt
// that had not yet reached the power-on starts over after the pause, with its whole timeout, and is not counted again.
//
// A workload that is moving is still waited for (see Facts.moving).
func pauses(s State) []row {
	back := s
	if s == PoweringOff || s == MovingWorkload || s == Rebooting {
		back = Preparing
	}
	return []row{
		{pausedKeptOff, Release, back, PausedReason},
		{pausedWithAnnotations, Release, s, PausedReason},
		{pausedFenced, Unfence, s, PausedReason},
		{pausedNow, Wait, s, PausedReason},
	}
}

// lives come before endings in the states in which the node may be fenced because the host was proven off. If the node shows life, the
// proof was wrong, and that is noted before the end: else the next power cycle would trust the same proof.
func lives(s State) []row {
	return []row{
		{overAlive, Unfence, s, SignOfLifeReason},
		{overRefuted, Disprove, Failed, SignOfLifeReason},
		{overWatched, Wait, s, WatchingForLifeReason},
	}
}

// endings come before the rows of every state that is not final: the remediation is over, and only has to release the host and unfence the
// node. While a workload moves off a host that is off, the release waits until it has moved or the deadline has passed: Kubernetes
// removes neither pods nor volume attachments of a node that is not fenced while its host is off.
//
// A health check deletes its remediation as soon as the machine is healthy, maybe before the remediation sees that. So a remediation that
// is deleted while its machine boots was not cancelled, and a remediation that times out when its machine is already healthy has succeeded.
//
// When kubemend is removed, a moving workload is waited for, as in a pause.
var endings = []row{
	{deletedHealthy, Advance, Succeeded, MachineHealthyReason},
	{deletedBooting, Advance, Ended, NoLongerNeededReason},
	{deleted, Advance, Ended, CancelledReason},
	{machineGone, Advance, Ended, MachineGoneReason},
	{machineDeleting, Advance, Ended, MachineDeletingReason},
	{stoppedHealthy, Advance, Succeeded, MachineHealthyReason},
	{stopped, Advance, Stopped, TimedOutByCheckReason},
	{leaving, Advance, Ended, TeardownReason},
}

// acting come next in every state in which the host was asked for something.
var acting = []row{
	{hostless, Advance, RequestingOwner, HostGoneReason},
	{hostForeign, Advance, Failed, HostMismatchReason},
}

// table is the whole state machine. In each state the first row that holds wins.
//
// Safety depends on the order of the rows. A node is fenced only in MovingWorkload, and only while the host is kept off, is seen off, and
// BMO acts on its annotations. MovingWorkload is entered only from PoweringOff, after the host was asked to power off. It is left for the
// power-on when the workload has moved, when the deadline has passed, when the node must not be fenced because another one has its name or
// provider ID, or when the API that does not answer may need this host. Its other ways lead back to PoweringOff or Preparing, to Servicing,
// or to an end, and every end releases the host. If a proven-off host is no longer kept off, the attempt does not keep it off again:
// kubemend may have released it, and the write that says so may be lost.
var table = map[State][]row{
	Pending: {
		{hostless, Advance, RequestingOwner, HostGoneReason},
		{poweredOffBySpecLong, waitForPerson, Pending, HostSwitchedOffReason},
		{poweredOffBySpec, Wait, Pending, HostSwitchedOffReason},
		{keptOffLong, waitForPerson, Pending, HostKeptOffReason},
		{keptOffByOthers, Wait, Pending, HostKeptOffReason},
		{othersReleased, Advance, Pending, HostReleasedByOthersReason},
		{disproved, waitForPerson, Pending, PowerOffDisprovedReason},
		{twins, waitForPerson, Pending, NodeMismatchReason},
		{placeless, Wait, Pending, WaitingForPolicyReason},
		{queuedTooLong, waitForPerson, Pending, QueueTimedOutReason},
		{managerHere, Wait, Pending, ManagerRunsHereReason},
		{hostLost, waitForPerson, Pending, HostGoneReason},
		{hostMissing, Wait, Pending, HostGoneReason},
		{loopUnknown, Wait, Pending, RemediationLoopReason},
		{looping, Wait, Pending, RemediationLoopReason},
		{notFirst, Wait, Pending, WaitingInQueueReason},
		{always, BeginAttempt, Preparing, AttemptBeganReason},
	},
	Preparing: {
		{hostless, Advance, RequestingOwner, HostGoneReason},
		{othersReleased, Advance, Preparing, HostReleasedByOthersReason},
		{foreignTooLong, Advance, Failed, HostMismatchReason},
		{keptOffBefore, Advance, PoweringOff, PowerOffRequestedReason},
		{hasPowerAnnotations, Release, Preparing, AttemptBeganReason},
		{unfenceable, Unfence, Preparing, UnfencedReason},
		{hostLost, waitForPerson, Preparing, HostGoneReason},
		{hostMissing, Wait, Preparing, HostGoneReason},
		{hostForeign, Wait, Preparing, HostMismatchReason},
		{recovered, Advance, Succeeded, RecoveredReason},
		{poweredOffBySpecLong, waitForPerson, Preparing, HostSwitchedOffReason},
		{poweredOffBySpec, Wait, Preparing, HostSwitchedOffReason},
		{keptOffLong, waitForPerson, Preparing, HostKeptOffReason},
		{keptOffByOthers, Wait, Preparing, HostKeptOffReason},
		{disproved, waitForPerson, Preparing, PowerOffDisprovedReason},
		{twins, waitForPerson, Preparing, NodeMismatchReason},
		{bootsUnasked, Wait, Preparing, BootingReason},
		{placeless, Wait, Preparing, WaitingForPolicyReason},
		{queuedTooLong, waitForPerson, Preparing, QueueTimedOutReason},
		{managerHere, Wait, Preparing, ManagerRunsHereReason},
		{notFirst, Wait, Preparing, WaitingInQueueReason},
		{noFinalizer, AddFinalizer, Preparing, AttemptBeganReason},
		{servicedLong, waitForPerson, Preparing, HostServicedReason},
		{serviced, Wait, Preparing, HostServicedReason},
		{powerUnmanagedLong, waitForPerson, Preparing, HostNotReadyReason},
		{powerUnmanaged, Wait, Preparing, HostNotReadyReason},
		{noPowerOff, Advance, Rebooting, PowerOffDisabledReason},
		{always, Advance, PoweringOff, PowerOffRequestedReason},
	},
	PoweringOff: {
		{poweredOffBySpec, Advance, Preparing, HostSwitchedOffReason},
		{keptOffByOthers, Advance, Preparing, HostKeptOffReason},
		{setAsideOn, Advance, Preparing, HostNotReadyReason},
		{overdueGone, Advance, PoweringOn, FencingImpossibleReason},
		{hostLost, waitForPerson, PoweringOff, HostGoneReason},
		{hostMissing, Wait, PoweringOff, HostGoneReason},
		{serviced, Advance, Servicing, HostServicedReason},
		{holdRemovedProven, Advance, PoweringOn, HoldRemovedReason},
		{notKeptOffNotFirst, Advance, Preparing, WaitingInQueueReason},
		{lastOverdueFaulty, Advance, RequestingOwner, PowerOffTimedOutReason},
		{overdueFaulty, BeginAttempt, Preparing, PowerOffTimedOutReason},
		{overdueOff, Advance, PoweringOn, FencingImpossibleReason},
		{noPowerOff, Release, Preparing, PowerOffDisabledReason},
		{aliveFenced, Unfence, PoweringOff, SignOfLifeReason},
		{refuted, Disprove, Failed, SignOfLifeReason},
		{disprovedStill, Release, Preparing, PowerOffDisprovedReason},
		{onAndFenced, Unfence, PoweringOff, UnfencedReason},
		{notKeptOff, KeepOff, PoweringOff, PowerOffRequestedReason},
		{notNoted, NoteAsked, PoweringOff, PowerOffRequestedReason},
		{seenOn, NoteOn, PoweringOff, PowerOffRequestedReason},
		{powerUnmanagedLong, waitForPerson, PoweringOff, HostNotReadyReason},
		{powerUnmanaged, Wait, PoweringOff, HostNotReadyReason},
		{powerFails, Wait, PoweringOff, PowerOffFailedReason},
		{overdue, waitForPerson, PoweringOff, OperatorSilentReason},
		{unproven, Wait, PoweringOff, PoweringOffReason},
		{poweredOn, Wait, PoweringOff, PoweringOffReason},
		{unsettled, Wait, PoweringOff, PowerSettlingReason},
		{unprovable, waitForPerson, PoweringOff, FencingImpossibleReason},
		{receiptNotAsked, AskReceipt, PoweringOff, ReceiptRequestedReason},
		{receiptLate, waitForPerson, PoweringOff, FencingImpossibleReason},
		{receiptPending, Wait, PoweringOff, AwaitingReceiptReason},
		{receiptNotNoted, NoteReceipt, PoweringOff, ReceiptGivenReason},
		{receiptNew, Wait, PoweringOff, ReceiptGivenReason},
		{receiptUnsound, waitForPerson, PoweringOff, FencingImpossibleReason},
		{always, Advance, MovingWorkload, PoweredOffReason},
	},
	MovingWorkload: {
		{overdueStuck, Unfence, MovingWorkload, WorkloadStuckReason},
		{overdue, Advance, PoweringOn, WorkloadStuckReason},
		{aliveFenced, Unfence, MovingWorkload, SignOfLifeReason},
		{hostMissing, Wait, MovingWorkload, HostGoneReason},
		{servicedFenced, Unfence, MovingWorkload, HostServicedReason},
		{serviced, Advance, Servicing, HostServicedReason},
		{holdRemovedDrained, Advance, PoweringOn, WorkloadMovedReason},
		{holdRemoved, Advance, PoweringOn, HoldRemovedReason},
		{notKeptOff, Advance, PoweringOff, PowerOffRequestedReason},
		{poweredOn, Advance, PoweringOff, PoweredOnAgainReason},
		{refuted, Disprove, Failed, SignOfLifeReason},
		{alive, Advance, PoweringOff, SignOfLifeReason},
		{noPowerOffStill, Release, Preparing, PowerOffDisabledReason},
		{disprovedStill, Release, Preparing, PowerOffDisprovedReason},
		{nodeAbsentEmpty, Advance, PoweringOn, NodeGoneReason},
		{nodeAbsent, Wait, MovingWorkload, WorkloadMovingReason},
		{clusterUnreachableLong, Advance, PoweringOn, ClusterUnreachableReason},
		{nodeUnseen, Wait, MovingWorkload, ClusterUnreachableReason},
		{anotherNode, Advance, PoweringOn, NodeMismatchReason},
		{twinsNotFenced, Advance, PoweringOn, NodeMismatchReason},
		{unmanagedNotFenced, Wait, MovingWorkload, HostNotReadyReason},
		{mayLive, Wait, MovingWorkload, WatchingForLifeReason},
		{notFenced, Fence, MovingWorkload, FencedReason},
		{inherited, Fence, MovingWorkload, FencedReason},
		{notDrained, Wait, MovingWorkload, WorkloadMovingReason},
		{drainedIdle, Advance, PoweringOn, WorkloadMovedReason},
		{always, Advance, PoweringOn, WorkloadMovedReason},
	},
	PoweringOn: {
		{hasPowerAnnotations, Release, PoweringOn, PowerOnRequestedReason},
		{bootedFenced, Unfence, PoweringOn, UnfencedReason},
		{aliveFenced, Unfence, PoweringOn, UnfencedReason},
		{refuted, Disprove, Failed, SignOfLifeReason},
		{poweredOffBySpecLong, waitForPerson, PoweringOn, HostSwitchedOffReason},
		{poweredOffBySpec, Wait, PoweringOn, HostSwitchedOffReason},
		{keptOffLong, waitForPerson, PoweringOn, HostKeptOffReason},
		{keptOffByOthers, Wait, PoweringOn, HostKeptOffReason},
		{othersReleased, Advance, PoweringOn, HostReleasedByOthersReason},
		{up, Advance, Booting, PoweredOnReason},
		{hostLost, Advance, Booting, HostGoneReason},
		{hostMissing, Wait, PoweringOn, HostGoneReason},
		{serviced, Advance, Servicing, HostServicedReason},
		{poweredOn, Advance, Booting, PoweredOnReason},
		{setAsideLong, waitForPerson, PoweringOn, HostNotReadyReason},
		{setAsideNow, Wait, PoweringOn, HostNotReadyReason},
		{lastLateFaulty, Advance, RequestingOwner, PowerOnTimedOutReason},
		{lateFaulty, BeginAttempt, Preparing, PowerOnTimedOutReason},
		{powerUnmanagedLong, waitForPerson, PoweringOn, HostNotReadyReason},
		{late, waitForPerson, PoweringOn, OperatorSilentReason},
		{powerFails, Wait, PoweringOn, PowerOnFailedReason},
		{always, Wait, PoweringOn, PoweringOnReason},
	},
	Rebooting: {
		{poweredOffBySpec, Advance, Preparing, HostSwitchedOffReason},
		{setAsidePending, Advance, Preparing, HostNotReadyReason},
		{rebootNotAskedNotFirst, Advance, Preparing, WaitingInQueueReason},
		{rebootNotAskedDisproved, Advance, Preparing, PowerOffDisprovedReason},
		{hostLost, waitForPerson, Rebooting, HostGoneReason},
		{hostMissing, Wait, Rebooting, HostGoneReason},
		{serviced, Advance, Servicing, HostServicedReason},
		{lastOverdueFaulty, Advance, RequestingOwner, RebootTimedOutReason},
		{overdueFaulty, BeginAttempt, Preparing, RebootTimedOutReason},
		{unfenceable, Unfence, Rebooting, UnfencedReason},
		{bootUnread, Wait, Rebooting, PowerOffDisabledReason},
		{rebootNotAsked, Reboot, Rebooting, RebootRequestedReason},
		{overduePending, waitForPerson, Rebooting, OperatorSilentReason},
		{rebootPending, Wait, Rebooting, RebootingReason},
		{always, Advance, Booting, RebootAcceptedReason},
	},
	Servicing: {
		{hasPowerAnnotations, Release, Servicing, HostServicedReason},
		{unfenceable, Unfence, Servicing, UnfencedReason},
		{hostLost, waitForPerson, Servicing, HostGoneReason},
		{hostMissing, Wait, Servicing, HostGoneReason},
		{servicedLong, waitForPerson, Servicing, HostServicedReason},
		{serviced, Wait, Servicing, HostServicedReason},
		{always, Advance, Booting, ServicedReason},
	},
	Booting: {
		{hasPowerAnnotations, Release, Booting, PoweredOnReason},
		{aliveFenced, Unfence, Booting, UnfencedReason},
		{refuted, Disprove, Failed, SignOfLifeReason},
		{unfenceable, Unfence, Booting, UnfencedReason},
		{healthy, Advance, Succeeded, MachineHealthyReason},
		{hostLost, waitForPerson, Booting, HostGoneReason},
		{hostMissing, Wait, Booting, HostGoneReason},
		{serviced, Advance, Servicing, HostServicedReason},
		{poweredOffBySpec, Advance, PoweringOn, HostSwitchedOffReason},
		{keptOffByOthers, Advance, PoweringOn, HostKeptOffReason},
		{setAsideLong, waitForPerson, Booting, HostNotReadyReason},
		{othersReleased, Advance, Booting, HostReleasedByOthersReason},
		{lateUnreachable, waitForPerson, Booting, ClusterUnreachableReason},
		{lateTwins, waitForPerson, Booting, NodeMismatchReason},
		{lastLate, Advance, RequestingOwner, NodeStillUnhealthyReason},
		{late, BeginAttempt, Preparing, NodeStillUnhealthyReason},
		{always, Wait, Booting, BootingReason},
	},
	RequestingOwner: {
		{hasPowerAnnotations, Release, RequestingOwner, RequestingOwnerReason},
		{unfenceable, Unfence, RequestingOwner, UnfencedReason},
		{healthy, Advance, Succeeded, MachineHealthyReason},
		{hostForeign, Advance, Failed, HostMismatchReason},
		{hostExternal, Advance, Failed, HostExternalReason},
		{ownerless, Advance, Failed, OwnerlessReason},
		{hostLost, waitForPerson, RequestingOwner, HostGoneReason},
		{hostAway, Wait, RequestingOwner, HostGoneReason},
		{hostAnew, waitForPerson, RequestingOwner, HostGoneReason},
		{twins, waitForPerson, RequestingOwner, NodeMismatchReason},
		{clusterChanged, waitForPerson, RequestingOwner, ClusterUnreachableReason},
		{notMarked, MarkHost, RequestingOwner, RequestingOwnerReason},
		{notAskedOwner, RequestOwner, OwnerRequested, OwnerRequestedReason},
		{always, Advance, OwnerRequested, OwnerRequestedReason},
	},

	Succeeded:      ending(Succeeded, MachineHealthyReason, MachineHealthyReason, withdrawn(Succeeded, MachineHealthyReason)),
	OwnerRequested: ending(OwnerRequested, OwnerRequestedReason, OwnerRequestedReason, withdrawn(Succeeded, MachineHealthyReason)),
	Failed:         ending(Failed, FailedReason, FailedReason),
	Ended:          ending(Ended, EndedReason, ReleasingReason, withdrawn(Ended, ReleasingReason)),
	Stopped:        ending(Stopped, TimedOutByCheckReason, TimedOutByCheckReason, withdrawn(Stopped, TimedOutByCheckReason)),
}

func withdrawn(state State, reason Reason) row { return row{healthyAfterAll, Withdraw, state, reason} }

// ending returns the rows of a final state, which release host and node before the finalizer is removed; releasing is the reason until
// then. If the host is still off, the fence stays until the workload has moved or the deadline has passed. If the machine is healthy after
// all, the request to its owner is withdrawn.
func ending(state State, reason, releasing Reason, withdraw ...row) []row {
	rows := append([]row{{hasPowerAnnotations, Release, state, releasing}, {unfenceable, Unfence, state, UnfencedReason}}, withdraw...)
	return append(rows,
		row{fenceKept, Wait, state, releasing},
		row{fenceToBeSeen, Wait, state, releasing},
		row{finalizerFenced, DropFinalizer, state, UnfenceTimedOutReason},
		row{finalizer, DropFinalizer, state, reason},
		row{stillFenced, Unfence, state, UnfencedReason},
		row{always, Wait, state, reason},
	)
}

// order is the order of the states in the diagram and in tests.
var order = []State{
	Pending, Preparing, PoweringOff, MovingWorkload, PoweringOn, Rebooting, Servicing, Booting, RequestingOwner,
	Succeeded, OwnerRequested, Failed, Ended, Stopped,
}

// step returns the step of the row that holds. Actions are due at once, but one that another client has undone only after a delay.
func (s situation) step(row row) Step {
	step := Step{Do: row.action(s.Facts), From: s.State, Next: row.next, Reason: row.reason, Detail: row.detail(), Again: s.now}
	if s.unfencesFirst(row) {
		return Step{Do: Unfence, From: s.State, Next: s.State, Reason: UnfencedReason, Again: s.now}
	}
	switch until := s.Did.Until(s.now); {
	case step.Do == Wait:
		step.Again = s.again(row)
	case step.Do == s.Did.Do && !s.past(until):
		step = Step{Do: Wait, From: s.State, Next: s.State, Reason: StepUndoneReason, Again: until}
		if at := s.again(row); !at.IsZero() && at.Before(until) {
			step.Again = at
		}
		if !s.patient() && s.Person == "" {
			step.Do, step.Detail, step.Again = AskPerson, AsksPerson, s.now
		}
	}
	return step
}

// again returns the first moment at which time alone changes which row holds; zero if time changes nothing.
func (s situation) again(chosen row) time.Time {
	var first time.Time
	due := s
	if due.now = s.deadline(); !s.past(due.now) && due.unfencesFirst(chosen) {
		first = due.now
	}
	for _, r := range rowsOf[s.State] {
		if r.when.until == nil {
			if r.when.name == chosen.when.name {
				break
			}
			continue
		}
		then := s
		then.now = r.when.until(s)
		if then.now.After(s.now) && r.when.holds(then) != r.when.holds(s) && (first.IsZero() || then.now.Before(first)) {
			first = then.now
		}
		if r.when.name == chosen.when.name {
			break
		}
	}
	return first
}
