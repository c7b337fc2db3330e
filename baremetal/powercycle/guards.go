package powercycle

import "time"

// guard is a named condition on a situation. The diagram shows the name.
type guard struct {
	name  string
	holds func(situation) bool
	// until returns when time alone changes the answer; nil if time does not change it.
	until func(situation) time.Time
	// detail becomes the detail of the step.
	detail Detail
}

func (g guard) tells(d Detail) guard {
	g.detail = d
	return g
}

// situation is everything that a guard may look at.
type situation struct {
	Facts
	Policy
	now time.Time
}

func (s situation) past(at time.Time) bool { return !s.now.Before(at) }

func (s situation) deadline() time.Time { return s.Memory.Deadline(s.Policy) }

// lost is when a person is asked about a missing host. An administrator who cannot change a BMC address deletes the host and registers it
// again, which takes a quarter of an hour by hand. If the machine were replaced meanwhile, its disks would be cleaned.
// (baremetal-operator#1458)
func (s situation) lost() time.Time { return s.Missing.Add(s.Registering) }

// unnamed is when the remediation gives up on a machine that never had a host.
func (s situation) unnamed() time.Time { return s.Missing.Add(s.Timeout) }

// needsReceipt reports whether only a receipt proves that the host is off.
func (s situation) needsReceipt() bool { return s.WasOff && !s.PoweredOn }

func (s situation) awaitsReceipt() bool { return s.needsReceipt() && s.ReceiptAsked && !s.ReceiptGiven }

// holding reports whether our annotation keeps off the host that was asked, and not a new one with its name.
func (f Facts) holding() bool { return f.KeptOff && !f.HostAnew }

// stale reports whether the host's status is older than it was when the host was asked, by BMO's own clock. A status that was restored from
// a backup shows the power of the day of the backup.
func (s situation) stale() bool { return s.Power.Said.Before(s.Memory.Said) }

// powerFails reports whether BMO has reported a power failure since the last request. An error from before belongs to another request. A
// status without lastUpdated may be new, so its error counts.
func (f Facts) powerFails() bool {
	return f.Fails && (f.Power.Said.IsZero() || f.Power.Said.After(f.Memory.Said))
}

// livedOn reports whether the node has given a sign of life since its host was proven off. Only a sign that differs from the stored one
// counts: the clock of the node may be ahead, or BMO's may be behind (a machine's clock is not set before its network is up).
func (f Facts) livedOn() bool {
	switch {
	case !f.Looked || f.Node != NodePresent:
		return false
	case f.NewBoot:
		return true
	}
	return !f.SignSeen.IsZero() && f.Sign.After(f.Memory.Sign)
}

func (s situation) over() bool { return s.Deleting || s.Stop || s.Machine != MachinePresent }

// cycled reports whether the host was powered off and may be on again. A node may be Ready before its host is seen on.
func (s situation) cycled() bool {
	return s.State == Booting || s.State == PoweringOn && !s.HasPowerAnnotations
}

func (s situation) cycledWell() bool { return s.cycled() && (s.Healthy || s.Up) }

// finishes reports whether a workload can still move off a host that is kept off, so that it is worth waiting for.
func (s situation) finishes() bool {
	off := s.moving() && s.workloadStays()
	switch s.Node {
	case NodeUnseen: // a control-plane host may serve the API that does not answer
		return off && !s.FencedAt.IsZero() && !s.ControlPlane
	case NodeAbsent: // even without the fence, Kubernetes deletes the pods of a deleted node
		return false
	}
	return off
}

// provenOff reports whether the host is proven off, and was seen kept off for this attempt.
func (s situation) provenOff() bool {
	return s.Held && !s.PoweredOn && !s.stale() && (!s.WasOff || !s.Receipt.IsZero())
}

// watched is when a node that may be alive has been watched long enough.
func (s situation) watched() time.Time { return s.SignSeen.Add(s.Watch) }

// stateDeadline is when the current state times out. A final state times out after Releasing at the latest, even if attempts may take
// longer: other clients wait until the remediation is gone. If the fence had to stay until the attempt's deadline, there is time to remove
// it after that.
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

func (s situation) queued() bool { return len(s.Ahead) > 0 }

// switchedOff reports whether the owner of the host wants it off (spec.online). keptOff reports whether another client keeps the host off.
func (s situation) switchedOff() bool { return s.Host == HostOurs && !s.Wanted }
func (s situation) keptOff() bool     { return s.Host == HostOurs && s.KeptOffBy != "" }

// fencedHere reports whether a node that can be seen has a fence or mark of this remediation.
func (s situation) fencedHere() bool { return s.FencedByUs && s.Node == NodePresent }

// mayUnfence reports whether the fence may be removed: the workload need not move any more, or its time is over.
func (s situation) mayUnfence() bool {
	return s.fencedHere() && (!s.keepsFence() || s.past(s.deadline()))
}

// unfenceableUntil is when unfenceable may change: the fence may be removed then, or the state times out.
func (s situation) unfenceableUntil() time.Time {
	if s.keepsFence() && !s.past(s.deadline()) {
		return s.deadline()
	}
	return s.stateDeadline()
}

// unfencesFirst reports whether the node is unfenced before the row waits: in this state nothing keeps the host off, or the host is on, or
// it has been gone so long that a person is asked. A node that shows life is unfenced whatever the power of its host.
func (s situation) unfencesFirst(row row) bool {
	switch {
	case row.do != Wait && row.do != waitForPerson, s.stands(), s.State.Final(), !s.mayUnfence():
		return false
	case s.State == PoweringOff, s.State == MovingWorkload, s.State == PoweringOn:
		return s.PoweredOn || s.livedOn() || row.do == waitForPerson && s.Host == HostGone
	}
	return true
}

func (s situation) patient() bool { return !s.past(s.stateDeadline()) }

func (s situation) settledAt() time.Time { return s.Asked.Add(s.Settle) }

// ours reports whether a fence of this remediation may be on the node; while the node cannot be seen, by the memory.
func (s situation) ours() bool { return s.FencedByUs || s.Node == NodeUnseen && s.Fencing }

// faulty reports whether the host is at fault, because BMO has reported a power failure in this state. If BMO reports nothing at all, that
// is not known.
func (s situation) faulty() bool { return s.Faulted || s.powerFails() }

func is(name string, holds func(situation) bool) guard { return guard{name: name, holds: holds} }

// timed returns a guard that holds from until on, if also holds.
func timed(name string, until func(situation) time.Time, also func(situation) bool) guard {
	return guard{name: name, until: until, holds: func(s situation) bool { return s.past(until(s)) && also(s) }}
}

// before returns a guard that holds before until, if also holds.
func before(name string, until func(situation) time.Time, also func(situation) bool) guard {
	return guard{name: name, until: until, holds: func(s situation) bool { return !s.past(until(s)) && also(s) }}
}

// impatient returns a guard that stops holding when the state times out: what its row does may fail for ever.
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
	hostless    = timed("no host named for too long", situation.unnamed,
		func(s situation) bool { return s.Host == HostGone && s.HostUnnamed })
	hostAway = guard{name: "host gone", until: situation.unnamed, holds: func(s situation) bool {
		return s.Host == HostGone && !(s.HostUnnamed && s.past(s.unnamed()))
	}}
	hostExternal   = is("host externally provisioned", func(s situation) bool { return s.External })
	ownerless      = is("machine without an owner", func(s situation) bool { return s.Machine == MachinePresent && s.Ownerless })
	hostForeign    = is("host of another machine", func(s situation) bool { return s.Host == HostForeign })
	foreignTooLong = timed("host of another machine, out of time", situation.deadline,
		func(s situation) bool { return s.Host == HostForeign })
	poweredOffBySpec     = is("host switched off by its owner", situation.switchedOff)
	poweredOffBySpecLong = timed("host switched off by its owner for too long", situation.stateDeadline, situation.switchedOff)
	noPowerOff           = is("power-off disabled", func(s situation) bool { return s.NoPowerOff })
	noPowerOffStill      = is("power-off disabled, nothing moves", func(s situation) bool { return s.NoPowerOff && !s.moving() })
	powerUnmanaged       = is("power not managed now", func(s situation) bool { return s.Unmanaged != "" })
	// BMO would carry out the request when the host is no longer paused, whatever the machine has become by then.
	setAsideOn      = is("host paused or detached before it is off", func(s situation) bool { return s.SetAside && s.PoweredOn })
	setAsideNow     = is("host paused or detached", func(s situation) bool { return s.SetAside })
	setAsideLong    = timed("host paused or detached for too long", situation.stateDeadline, func(s situation) bool { return s.SetAside })
	setAsidePending = is("host paused or detached before its reboot",
		func(s situation) bool { return s.SetAside && (s.RebootPending || !s.RebootAsked) })
	poweredOn  = is("host on", func(s situation) bool { return s.PoweredOn })
	notKeptOff = is("host not kept powered off", func(s situation) bool { return !s.holding() })
	// A host that anybody has released, even kubemend itself, is powering on.
	holdRemoved        = is("host not kept powered off any more", func(s situation) bool { return !s.KeptOff && !s.HostAnew })
	holdRemovedDrained = is("host not kept powered off any more, workload moved",
		func(s situation) bool { return holdRemoved.holds(s) && s.Drained })
	// If the manager could not store the release, the host has the annotation with the attempt (ReleaseUnstored).
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
	receiptUnsound  = is("receipt contradicted",
		func(s situation) bool { return s.needsReceipt() && s.Power.Doubt != "" }).tells(ReceiptContradicted)

	serviced       = is("host being serviced", func(s situation) bool { return s.Serviced })
	servicedFenced = is("host being serviced, node fenced by us", func(s situation) bool { return s.Serviced && s.fencedHere() })
	servicedLong   = timed("host being serviced for too long", func(s situation) time.Time { return s.Since.Add(s.Servicing) },
		func(s situation) bool { return s.Serviced })

	// A health check deletes its remediation as soon as the node is Ready, even one that lived on. The proof about the host is noted before
	// the end.
	overAlive = impatient("over, node shows life, fenced by us",
		func(s situation) bool { return s.over() && s.livedOn() && !s.NewBoot && s.fencedHere() })
	overRefuted = is("over, node shows life after it was fenced",
		func(s situation) bool { return s.over() && refuted.holds(s) }).tells(ProofWrong)
	overWatched = before("over, node may live on", situation.watched,
		func(s situation) bool { return s.over() && s.Lived && !s.NewBoot && s.Node == NodePresent })

	alive       = is("node shows life", situation.livedOn)
	aliveFenced = impatient("node shows life, fenced by us", func(s situation) bool { return s.livedOn() && s.fencedHere() })
	refuted     = is("node shows life after it was fenced", func(s situation) bool {
		return s.livedOn() && !s.NewBoot && (s.Lived || s.State == MovingWorkload && !s.FencedAt.IsZero())
	}).tells(ProofWrong)
	// The remediation that failed because of this may be gone: its health check deletes it as soon as the node is Ready.
	disproved      = is("an earlier power-off of the host disproved", func(s situation) bool { return s.Disproved })
	disprovedStill = is("an earlier power-off of the host disproved, nothing moves",
		func(s situation) bool { return s.Disproved && !s.moving() })
	bootedFenced = impatient("node under another boot, fenced by us", func(s situation) bool { return s.NewBoot && s.fencedHere() })
	// A node that has shown life while fenced is watched even if its clock is wrong: else it would be fenced again before its next sign.
	mayLive = before("node not fenced, may live", situation.watched,
		func(s situation) bool { return !s.Fenced && (s.Lived || s.Facts.Sign.After(s.Asked.Add(s.Skew))) })
	up = is("node booted", func(s situation) bool { return s.Up }).tells(NodeBooted)

	// If this attempt has not touched the host, only the controller that began the remediation can have kept it off for it.
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
	notFirst      = is("not first in the queue", situation.queued)
	managerHere   = is("kubemend runs on the host", func(s situation) bool { return s.queued() && s.Ahead[0].Manager })
	placeless     = is("no place by RemediationPolicies", func(s situation) bool { return s.queued() && s.Ahead[0].Policy })
	queuedTooLong = timed("not first in the queue, out of time",
		func(s situation) time.Time { return s.Since.Add(s.Queue) }, situation.queued)
	notKeptOffNotFirst = is("not kept powered off, not first in the queue",
		func(s situation) bool { return !s.holding() && s.queued() })
	rebootNotAskedNotFirst = is("reboot not asked for, not first in the queue",
		func(s situation) bool { return !s.RebootAsked && s.queued() })

	rebootNotAskedDisproved = is("reboot not asked for, an earlier power-off of the host disproved",
		func(s situation) bool { return !s.RebootAsked && s.Disproved })

	overdue      = timed("attempt out of time", situation.deadline, anyhow)
	overdueStuck = guard{name: "attempt out of time, node fenced by us", until: situation.deadline, holds: func(s situation) bool {
		return s.past(s.deadline()) && s.fencedHere() && !s.Drained && !s.past(s.deadline().Add(s.Unreachable))
	}}
	// BMO ignores a host that is paused or detached, so an earlier error says nothing about the host.
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
	powerUnmanagedLong = timed("power not managed for too long", situation.stateDeadline,
		func(s situation) bool { return s.Unmanaged != "" })

	keptOffByOthers = is("host kept powered off by others", situation.keptOff)
	keptOffLong     = timed("host kept powered off by others for too long", situation.stateDeadline, situation.keptOff)
	// The state's time starts again then: else only a moment would be left, after which the host would count as faulty.
	othersReleased = is("others not waited for any more", func(s situation) bool {
		return s.Waited && !s.switchedOff() && !s.keptOff() && !(s.SetAside && s.Host == HostOurs)
	})

	bootsUnasked = before("host switched on again by others", situation.bootDeadline,
		func(s situation) bool { return s.SwitchedOn && !s.powerFails() })

	powerFails = is("power management fails", func(s situation) bool { return s.powerFails() })

	pausedKeptOff = is("paused, host kept powered off",
		func(s situation) bool { return s.Paused && (s.KeptOff || s.RebootPending) })
	pausedWithAnnotations = is("paused, host has power annotations of ours",
		func(s situation) bool { return s.Paused && s.HasPowerAnnotations })
	pausedFenced = guard{name: "paused, node fenced by us", until: situation.deadline, holds: func(s situation) bool {
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
	twins       = is("several nodes have the machine's provider ID", func(s situation) bool { return s.Twin != "" }).tells(NodeTwins)
	lateTwins   = timed("several nodes have the machine's provider ID, out of time", situation.stateDeadline,
		func(s situation) bool { return s.Twin != "" }).tells(NodeTwins)
	twinsNotFenced = is("several nodes have the machine's provider ID, none fenced",
		func(s situation) bool { return s.Twin != "" && !s.Fenced }).tells(NodeTwins)
	unmanagedNotFenced = is("not fenced, power not managed now", func(s situation) bool { return !s.Fenced && s.Unmanaged != "" })
	notFenced          = is("node not fenced", func(s situation) bool { return !s.Fenced })
	notDrained         = is("workload still there", func(s situation) bool { return !s.Drained })
	drainedIdle        = is("volumes attached that nothing waits for",
		func(s situation) bool { return s.IdleVolumes != "" }).tells(VolumesIdle)
	unfenceable = guard{name: "node fenced by us", until: situation.unfenceableUntil, holds: func(s situation) bool {
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
	healthyAfterAll = is("machine healthy, host marked by us",
		func(s situation) bool { return s.Healthy && s.Marked && s.Machine == MachinePresent })
	notAskedOwner = is("owner not asked", func(s situation) bool { return !s.OwnerAsked })
	finalizer     = is("finalizer", func(s situation) bool { return s.Finalizer })
	noFinalizer   = is("no finalizer", func(s situation) bool { return !s.Finalizer })
)
