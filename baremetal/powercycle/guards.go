package powercycle

import "time"

// guard is a named question about a situation. Its name is what the diagram shows.
type guard struct {
	name  string
	holds func(situation) bool
	// until is when the answer changes although nothing happens; nil if it does not.
	until func(situation) time.Time
	// detail is what it tells of a step, besides the reason of that.
	detail Detail
}

// tells is g with that detail.
func (g guard) tells(d Detail) guard {
	g.detail = d
	return g
}

// situation is all that a guard may look at.
type situation struct {
	Facts
	Policy
	now time.Time
}

// past reports whether a moment has come.
func (s situation) past(at time.Time) bool { return !s.now.Before(at) }

// deadline is the end of the attempt, until its power-on was asked for.
func (s situation) deadline() time.Time { return s.Memory.Deadline(s.Policy) }

// lost is when a person is asked about a host that cannot be found. An administrator who may not change a BMC's address deletes it and
// registers it anew, which takes a quarter of an hour by hand; a machine that was replaced meanwhile would have its disks
// cleaned. (baremetal-operator#1458)
func (s situation) lost() time.Time { return s.Missing.Add(s.Registering) }

// unnamed is when a machine that never had a host is given up.
func (s situation) unnamed() time.Time { return s.Missing.Add(s.Timeout) }

// needsReceipt says that only a receipt proves that the host is off.
func (s situation) needsReceipt() bool { return s.WasOff && !s.PoweredOn }

// awaitsReceipt says that the receipt was asked for and is not there.
func (s situation) awaitsReceipt() bool { return s.needsReceipt() && s.ReceiptAsked && !s.ReceiptGiven }

// holding says that the host is held off by what was asked of this very object.
func (f Facts) holding() bool { return f.KeptOff && !f.HostAnew }

// stale says that what the operator says of the host is older than what it had said when the host was asked: a status that was
// restored from a backup shows the power of that day. Both are by the operator's own clock.
func (s situation) stale() bool { return s.Power.Said.Before(s.Memory.Said) }

// powerFails says that the operator of the host has reported, after it was asked last, that it cannot manage the power: an error that it
// had reported before is of another day, or of another step. A status without lastUpdated may be as new.
func (f Facts) powerFails() bool {
	return f.Fails && (f.Power.Said.IsZero() || f.Power.Said.After(f.Memory.Said))
}

// livedOn says that the node has given a sign of life since its host was proven off. Only one that is seen to come is: the clock
// of the node may be ahead, or that of the operator behind (a machine's clock is not set before its network is up).
func (f Facts) livedOn() bool {
	switch {
	case !f.Looked || f.Node != NodePresent:
		return false
	case f.NewBoot:
		return true
	}
	return !f.SignSeen.IsZero() && f.Sign.After(f.Memory.Sign)
}

// over says that there is no more need of the power cycle.
func (s situation) over() bool { return s.Deleting || s.Stop || s.Machine != MachinePresent }

// cycled says that the host was powered off and may be on again: a node may be Ready before its host is seen on.
func (s situation) cycled() bool {
	return s.State == Booting || s.State == PoweringOn && !s.HasPowerAnnotations
}

// cycledWell says that it was, and that its machine is healthy.
func (s situation) cycledWell() bool { return s.cycled() && (s.Healthy || s.Up) }

// finishes says that the workload of a host that is held off is on its way, and can arrive.
func (s situation) finishes() bool {
	off := s.moving() && s.workloadStays()
	switch s.Node {
	case NodeUnseen: // it may be that the API of its cluster runs on a control-plane host
		return off && !s.FencedAt.IsZero() && !s.ControlPlane
	case NodeAbsent: // Kubernetes collects its pods without it
		return false
	}
	return off
}

// provenOff says that the host is off, and was held off for it.
func (s situation) provenOff() bool {
	return s.Held && !s.PoweredOn && !s.stale() && (!s.WasOff || !s.Receipt.IsZero())
}

// watched is when a node has been watched for long enough that may live.
func (s situation) watched() time.Time { return s.SignSeen.Add(s.Watch) }

// stateDeadline is the end of the patience with the current state alone. At its end a remediation has no longer than it may take to release
// the host, whatever its attempts may take: who waits for it to be gone would wait as long. A fence that had to stay until the deadline is
// removed after it.
func (s situation) stateDeadline() time.Time {
	switch {
	case s.State.Final():
		end, unfencing := s.Since.Add(min(s.Timeout, s.Releasing)), s.deadline().Add(s.Unreachable)
		if s.fencedHere() && unfencing.After(end) {
			return unfencing
		}
		return end
	case s.State == Booting:
		return s.bootDeadline()
	}
	return s.Since.Add(s.Timeout)
}

func (s situation) bootDeadline() time.Time { return s.Since.Add(s.Boot) }

func (s situation) last() bool { return s.Attempt >= s.Attempts() }

// queued says that another remediation goes first.
func (s situation) queued() bool { return !s.First }

// switchedOff says that the owner of the host wants it off, keptOff that somebody keeps it off who is no remediation. Either passes.
func (s situation) switchedOff() bool { return s.Host == HostOurs && !s.Wanted }
func (s situation) keptOff() bool     { return s.Host == HostOurs && s.KeptOffBy != "" }

// fencedHere says that there is something of ours on a node that can be seen.
func (s situation) fencedHere() bool { return s.FencedByUs && s.Node == NodePresent }

// mayUnfence says that there is, and that nothing has to move any more, or in time, before it is removed.
func (s situation) mayUnfence() bool {
	return s.fencedHere() && (!s.keepsFence() || s.past(s.deadline()))
}

// unfenceableUntil is when the answer of unfenceable may change: the fence may be removed, or the patience with that is over.
func (s situation) unfenceableUntil() time.Time {
	if s.keepsFence() && !s.past(s.deadline()) {
		return s.deadline()
	}
	return s.stateDeadline()
}

// unfencesFirst reports whether the fence on the node goes before the row waits, for somebody or for a person: nothing holds the host off
// in its state, or it is on all the same, or so long gone that a person is asked. A node that shows life is unfenced whatever its host
// shows.
func (s situation) unfencesFirst(row row) bool {
	switch {
	case row.do != Wait && row.do != waitForPerson, s.stands(), s.State.Final(), !s.mayUnfence():
		return false
	case s.State == PoweringOff, s.State == MovingWorkload, s.State == PoweringOn:
		return s.PoweredOn || s.livedOn() || row.do == waitForPerson && s.Host == HostGone
	}
	return true
}

// patient says that the patience with the current state is not over.
func (s situation) patient() bool { return !s.past(s.stateDeadline()) }

func (s situation) settledAt() time.Time { return s.Asked.Add(s.Settle) }

// ours says that there is something of ours on the node. It is remembered for when the node cannot be seen.
func (s situation) ours() bool { return s.FencedByUs || s.Node == NodeUnseen && s.Fencing }

// faulty says that the host is at fault: what manages its power has said so in this attempt. Where that reports nothing at all, it is not
// known.
func (s situation) faulty() bool { return s.Faulted || s.powerFails() }

func is(name string, holds func(situation) bool) guard { return guard{name: name, holds: holds} }

// timed is a guard that time alone makes hold.
func timed(name string, until func(situation) time.Time, also func(situation) bool) guard {
	return guard{name: name, until: until, holds: func(s situation) bool { return s.past(until(s)) && also(s) }}
}

// before is a guard that time alone ends.
func before(name string, until func(situation) time.Time, also func(situation) bool) guard {
	return guard{name: name, until: until, holds: func(s situation) bool { return !s.past(until(s)) && also(s) }}
}

// impatient is a guard that holds no longer once the patience with the current state is over: what it asks for may fail for ever.
func impatient(name string, holds func(situation) bool) guard {
	return before(name, situation.stateDeadline, holds)
}

func anyhow(situation) bool { return true }

var (
	always = is("otherwise", anyhow)

	deletedHealthy  = is("remediation deleted, machine healthy", func(s situation) bool { return s.Deleting && s.cycledWell() })
	deletedBooting  = is("remediation deleted, host power-cycled", func(s situation) bool { return s.Deleting && s.cycled() })
	deleted         = is("remediation deleted", func(s situation) bool { return s.Deleting })
	machineGone     = is("machine gone", func(s situation) bool { return s.Machine == MachineGone })
	machineDeleting = is("machine being deleted", func(s situation) bool { return s.Machine == MachineDeleting })
	stoppedHealthy  = is("timed out by its check, machine healthy", func(s situation) bool { return s.Stop && s.cycledWell() })
	stopped         = is("timed out by its check", func(s situation) bool { return s.Stop })

	finishing = before("over, workload of a host that is off not moved", situation.deadline,
		func(s situation) bool { return s.over() && s.finishes() })

	leaving = is("kubemend is being removed", func(s situation) bool { return s.Teardown && !s.moving() })

	hostMissing = is("host not to be found", func(s situation) bool { return s.Host == HostGone })
	hostLost    = timed("host gone for too long", situation.lost, func(s situation) bool { return s.Host == HostGone && !s.HostUnnamed })
	hostless    = timed("no host named for too long", situation.unnamed, func(s situation) bool { return s.Host == HostGone && s.HostUnnamed })
	hostAway    = guard{name: "host gone", until: situation.unnamed, holds: func(s situation) bool {
		return s.Host == HostGone && !(s.HostUnnamed && s.past(s.unnamed()))
	}}
	hostExternal         = is("host externally provisioned", func(s situation) bool { return s.External })
	ownerless            = is("machine without an owner", func(s situation) bool { return s.Machine == MachinePresent && s.Ownerless })
	hostForeign          = is("host of another machine", func(s situation) bool { return s.Host == HostForeign })
	foreignTooLong       = timed("host of another machine, out of time", situation.deadline, func(s situation) bool { return s.Host == HostForeign })
	poweredOffBySpec     = is("host switched off by its owner", situation.switchedOff)
	poweredOffBySpecLong = timed("host switched off by its owner for too long", situation.stateDeadline, situation.switchedOff)
	noPowerOff           = is("power-off disabled", func(s situation) bool { return s.NoPowerOff })
	noPowerOffStill      = is("power-off disabled, nothing moves", func(s situation) bool { return s.NoPowerOff && !s.moving() })
	powerUnmanaged       = is("power not managed now", func(s situation) bool { return s.Unmanaged != "" })
	// What was asked of the host is carried out when the pause is over, whatever has become of the machine by then.
	setAsideOn      = is("host paused or detached before it is off", func(s situation) bool { return s.SetAside && s.PoweredOn })
	setAsideNow     = is("host paused or detached", func(s situation) bool { return s.SetAside })
	setAsideLong    = timed("host paused or detached for too long", situation.stateDeadline, func(s situation) bool { return s.SetAside })
	setAsidePending = is("host paused or detached before its reboot",
		func(s situation) bool { return s.SetAside && (s.RebootPending || !s.RebootAsked) })
	poweredOn  = is("host on", func(s situation) bool { return s.PoweredOn })
	notKeptOff = is("host not kept powered off", func(s situation) bool { return !s.holding() })
	// A host that was released, also by kubemend, is powering on.
	holdRemoved        = is("host not kept powered off any more", func(s situation) bool { return !s.KeptOff && !s.HostAnew })
	holdRemovedDrained = is("host not kept powered off any more, workload moved",
		func(s situation) bool { return holdRemoved.holds(s) && s.Drained })
	// One whose release was not stored has the mark of the attempt.
	holdRemovedProven = is("host proven off, not kept powered off any more",
		func(s situation) bool { return holdRemoved.holds(s) && (s.provenOff() || s.RebootAsked) })
	notNoted   = is("not noted when asked", func(s situation) bool { return s.Asked.IsZero() })
	seenOn     = is("host on after it was off", func(s situation) bool { return s.WasOff && s.PoweredOn && !s.stale() })
	unproven   = is("host's status older than the request", situation.stale).tells(StatusOutdated)
	unsettled  = before("host was off when asked, not settled", situation.settledAt, func(s situation) bool { return s.WasOff })
	unprovable = is("host was off when asked, receipts not to be believed", func(s situation) bool {
		return s.needsReceipt() && !s.Provable
	}).tells(NoReceipts)
	receiptNotAsked = is("no receipt asked for", func(s situation) bool { return s.needsReceipt() && !s.ReceiptAsked })
	receiptLate     = timed("receipt overdue", func(s situation) time.Time { return s.settledAt().Add(s.Settle) },
		situation.awaitsReceipt).tells(ReceiptLate)
	receiptPending  = is("no receipt", situation.awaitsReceipt)
	receiptNotNoted = is("receipt not noted", func(s situation) bool { return s.needsReceipt() && s.Receipt.IsZero() })
	receiptNew      = before("receipt in doubt", func(s situation) time.Time { return s.Receipt.Add(s.Doubt) }, situation.needsReceipt)
	receiptUnsound  = is("receipt contradicted", func(s situation) bool { return s.needsReceipt() && s.Power.Doubt != "" }).tells(ReceiptContradicted)

	serviced       = is("host being serviced", func(s situation) bool { return s.Serviced })
	servicedFenced = is("host being serviced, node fenced by us", func(s situation) bool { return s.Serviced && s.fencedHere() })
	servicedLong   = timed("host being serviced for too long", func(s situation) time.Time { return s.Since.Add(s.Servicing) },
		func(s situation) bool { return s.Serviced })

	// A check deletes its request as soon as the node is Ready that lives on: what that proves of the host is noted before the end.
	overAlive = impatient("over, node shows life, fenced by us",
		func(s situation) bool { return s.over() && s.livedOn() && !s.NewBoot && s.fencedHere() })
	overRefuted = is("over, node shows life after it was fenced", func(s situation) bool { return s.over() && refuted.holds(s) }).tells(ProofWrong)
	overWatched = before("over, node may live on", situation.watched,
		func(s situation) bool { return s.over() && s.Lived && !s.NewBoot && s.Node == NodePresent })

	alive       = is("node shows life", situation.livedOn)
	aliveFenced = impatient("node shows life, fenced by us", func(s situation) bool { return s.livedOn() && s.fencedHere() })
	refuted     = is("node shows life after it was fenced", func(s situation) bool {
		return s.livedOn() && !s.NewBoot && (s.Lived || s.State == MovingWorkload && !s.FencedAt.IsZero())
	}).tells(ProofWrong)
	// The Metal3Remediation that failed for it may be gone: its check deletes it as soon as the node that lives on is Ready.
	disproved      = is("an earlier power-off of the host disproved", func(s situation) bool { return s.Disproved })
	disprovedStill = is("an earlier power-off of the host disproved, nothing moves",
		func(s situation) bool { return s.Disproved && !s.moving() })
	bootedFenced = impatient("node under another boot, fenced by us", func(s situation) bool { return s.NewBoot && s.fencedHere() })
	// One that has shown life under the fence is watched by whatever clock it has: it would be fenced again before its next sign else.
	mayLive = before("node not fenced, may live", situation.watched,
		func(s situation) bool { return !s.Fenced && (s.Lived || s.Facts.Sign.After(s.Asked.Add(s.Skew))) })
	up = is("node booted", func(s situation) bool { return s.Up }).tells(NodeBooted)

	// Only what was begun by somebody else can hold a host off that this attempt has not touched.
	keptOffBefore = is("host kept powered off by what began the remediation", func(s situation) bool {
		return s.KeptOff && s.TakenOver && !s.Touched && s.Finalizer && s.Host == HostOurs && !s.NoPowerOff && !s.Disproved &&
			!s.switchedOff() && !s.keptOff()
	}).tells(KeptOffAlready)
	hasPowerAnnotations = is("host has power annotations of ours", func(s situation) bool { return s.HasPowerAnnotations })
	notMarked           = is("host not marked unhealthy", func(s situation) bool { return s.Host == HostOurs && !s.HostMarked })

	bootUnread = before("boot of the node not known yet", func(s situation) time.Time { return s.Since.Add(s.Unreachable) },
		func(s situation) bool { return s.BootUnread && !s.RebootAsked })
	rebootNotAsked = is("reboot not asked for", func(s situation) bool { return !s.RebootAsked })
	rebootPending  = is("reboot not carried out", func(s situation) bool { return s.RebootPending })

	loopEnds = func(s situation) time.Time { return s.LoopUntil }
	looping  = before("host fails soon after each power cycle", loopEnds,
		func(s situation) bool { return !s.KeptOff && !s.HasPowerAnnotations })
	loopUnknown = before("power cycles of before not known", loopEnds,
		func(s situation) bool { return looping.holds(s) && s.Loop.Times == 0 }).tells(RecordsUnread)
	notFirst               = is("not first in the queue", situation.queued)
	managerHere            = is("kubemend runs on the host", func(s situation) bool { return s.queued() && s.ManagerHere })
	placeless              = is("no place by RemediationPolicies", func(s situation) bool { return s.queued() && s.Placeless })
	queuedTooLong          = timed("not first in the queue, out of time", func(s situation) time.Time { return s.Since.Add(s.Queue) }, situation.queued)
	notKeptOffNotFirst     = is("not kept powered off, not first in the queue", func(s situation) bool { return !s.holding() && s.queued() })
	rebootNotAskedNotFirst = is("reboot not asked for, not first in the queue", func(s situation) bool { return !s.RebootAsked && s.queued() })

	rebootNotAskedDisproved = is("reboot not asked for, an earlier power-off of the host disproved",
		func(s situation) bool { return !s.RebootAsked && s.Disproved })

	overdue      = timed("attempt out of time", situation.deadline, anyhow)
	overdueStuck = guard{name: "attempt out of time, node fenced by us", until: situation.deadline, holds: func(s situation) bool {
		return s.past(s.deadline()) && s.fencedHere() && !s.Drained && !s.past(s.deadline().Add(s.Unreachable))
	}}
	// The Bare Metal Operator does nothing about a host that is paused or detached: an error of before says nothing of it.
	overdueFaulty = timed("attempt out of time, power fails", situation.deadline,
		func(s situation) bool { return s.faulty() && !s.SetAside })
	lastOverdueFaulty = timed("last attempt out of time, power fails", situation.deadline,
		func(s situation) bool { return s.last() && s.faulty() && !s.SetAside })
	overdueOff = timed("attempt out of time, host off", situation.deadline,
		func(s situation) bool { return !s.PoweredOn && !s.stale() })
	overduePending = timed("attempt out of time, reboot not carried out", situation.deadline,
		func(s situation) bool { return s.RebootPending })
	overdueGone = timed("attempt out of time, host not to be found and kept off", situation.deadline,
		func(s situation) bool { return s.Host == HostGone && s.HasPowerAnnotations })
	hostAnew       = is("host registered anew", func(s situation) bool { return s.HostAnew }).tells(HostRegistered)
	late           = timed("out of time", situation.stateDeadline, anyhow)
	lastLate       = timed("last attempt, out of time", situation.stateDeadline, situation.last)
	lateFaulty     = timed("out of time, power fails", situation.stateDeadline, situation.faulty)
	lastLateFaulty = timed("last attempt, out of time, power fails", situation.stateDeadline,
		func(s situation) bool { return s.last() && s.faulty() })
	lateUnreachable = timed("out of time, workload cluster out of reach", situation.stateDeadline,
		func(s situation) bool { return s.OutOfReach && (!s.ControlPlane || s.ClusterChanged) })
	clusterChanged     = is("another workload cluster answers", func(s situation) bool { return s.ClusterChanged })
	powerUnmanagedLong = timed("power not managed for too long", situation.stateDeadline, func(s situation) bool { return s.Unmanaged != "" })

	keptOffByOthers = is("host kept powered off by others", situation.keptOff)
	keptOffLong     = timed("host kept powered off by others for too long", situation.stateDeadline, situation.keptOff)
	// The time of the state begins anew then: for the moment that is left of it the host would be at fault.
	othersReleased = is("others not waited for any more", func(s situation) bool {
		return s.Waited && !s.switchedOff() && !s.keptOff() && !(s.SetAside && s.Host == HostOurs)
	})

	bootsUnasked = before("host switched on again by others", situation.bootDeadline,
		func(s situation) bool { return s.SwitchedOn && !s.powerFails() })

	powerFails = is("power management fails", func(s situation) bool { return s.powerFails() })

	pausedKeptOff         = is("paused, host kept powered off", func(s situation) bool { return s.Paused && (s.KeptOff || s.RebootPending) })
	pausedWithAnnotations = is("paused, host has power annotations of ours", func(s situation) bool { return s.Paused && s.HasPowerAnnotations })
	pausedFenced          = guard{name: "paused, node fenced by us", until: situation.deadline, holds: func(s situation) bool {
		return s.Paused && s.mayUnfence()
	}}
	pausedNow = is("paused", func(s situation) bool { return s.Paused })

	nodeAbsent             = is("node gone", func(s situation) bool { return s.Node == NodeAbsent }).tells(NodeIsGone)
	nodeAbsentEmpty        = is("node gone, nothing left of it", func(s situation) bool { return s.Node == NodeAbsent && s.Drained })
	nodeUnseen             = is("workload cluster out of reach", func(s situation) bool { return s.Node == NodeUnseen })
	clusterUnreachableLong = timed("workload cluster out of reach, control-plane host",
		func(s situation) time.Time { return s.Unseen.Add(s.Unreachable) },
		func(s situation) bool { return s.ControlPlane && s.Node == NodeUnseen })
	inherited   = is("fence of a remediation that is gone", func(s situation) bool { return s.Inherited }).tells(FencedBefore)
	anotherNode = is("another node has the name", func(s situation) bool { return s.NodeMismatch && !s.Fenced })
	twins       = is("several nodes have the machine's provider ID", func(s situation) bool { return s.Twins }).tells(NodeTwins)
	lateTwins   = timed("several nodes have the machine's provider ID, out of time", situation.stateDeadline,
		func(s situation) bool { return s.Twins }).tells(NodeTwins)
	twinsNotFenced = is("several nodes have the machine's provider ID, none fenced",
		func(s situation) bool { return s.Twins && !s.Fenced }).tells(NodeTwins)
	unmanagedNotFenced = is("not fenced, power not managed now", func(s situation) bool { return !s.Fenced && s.Unmanaged != "" })
	notFenced          = is("node not fenced", func(s situation) bool { return !s.Fenced })
	notDrained         = is("workload still there", func(s situation) bool { return !s.Drained })
	drainedIdle        = is("volumes attached that nothing waits for", func(s situation) bool { return s.Idle }).tells(VolumesIdle)
	unfenceable        = guard{name: "node fenced by us", until: situation.unfenceableUntil, holds: func(s situation) bool {
		return s.patient() && s.mayUnfence()
	}}
	fenceKept = is("node fenced by us, workload of a host that is off not moved", func(s situation) bool {
		return s.keepsFence() && !s.past(s.deadline())
	}).tells(WorkloadLeaving)
	onAndFenced   = impatient("host on, node fenced by us", func(s situation) bool { return s.PoweredOn && s.fencedHere() })
	fenceToBeSeen = impatient("node fenced by us, out of reach", func(s situation) bool {
		return s.ours() && s.Node != NodePresent && s.Machine != MachineDeleting
	}).tells(FenceUnseen)
	stillFenced     = is("node still fenced by us", situation.fencedHere)
	finalizerFenced = is("finalizer, node still fenced by us", func(s situation) bool {
		return s.Finalizer && s.ours() && s.Node != NodeAbsent && s.Machine != MachineDeleting
	})

	healthy   = is("machine healthy", func(s situation) bool { return s.Healthy })
	recovered = is("machine healthy, and was not", func(s situation) bool {
		return s.Healthy && s.StartedUnhealthy && !s.HasPowerAnnotations && s.Asked.IsZero()
	})
	healthyAfterAll = is("machine healthy, host marked by us", func(s situation) bool { return s.Healthy && s.Marked && s.Machine == MachinePresent })
	notAskedOwner   = is("owner not asked", func(s situation) bool { return !s.OwnerAsked })
	finalizer       = is("finalizer", func(s situation) bool { return s.Finalizer })
	noFinalizer     = is("no finalizer", func(s situation) bool { return !s.Finalizer })
)
