package powercycle

import "time"

// guard is a named question about a situation. Its name is what the diagram shows.
type guard struct {
	name  string
	holds func(situation) bool
	// until is when the answer changes although nothing happens; nil if it does not.
	until func(situation) time.Time
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
func (s situation) deadline() time.Time { return s.Began.Add(s.Timeout) }

// stateDeadline is the end of the patience with the current state alone.
func (s situation) stateDeadline() time.Time { return s.Since.Add(s.Timeout) }

func (s situation) last() bool { return s.Attempt >= s.Attempts() }

// queued says that another remediation goes first.
func (s situation) queued() bool { return !s.Turn }

// keptOff says that somebody who is no remediation keeps the host off.
func (s situation) keptOff() bool { return s.Host == HostOurs && s.HeldByOthers }

// fencedHere says that there is something of ours on a node that can be seen.
func (s situation) fencedHere() bool { return s.FencedByUs && s.Node == NodePresent }

// patient says that the patience with the current state is not over.
func (s situation) patient() bool { return !s.past(s.stateDeadline()) }

func (s situation) settledAt() time.Time { return s.Asked.Add(s.Settle) }

func (s situation) blindAt() time.Time { return s.Unseen.Add(s.Blind) }

// ours says that there is something of ours on the node. It is remembered for when the node cannot be seen.
func (s situation) ours() bool { return s.FencedByUs || s.Node == NodeUnseen && s.Fencing }

func is(name string, holds func(situation) bool) guard { return guard{name: name, holds: holds} }

// timed is a guard that time alone makes hold.
func timed(name string, until func(situation) time.Time, also func(situation) bool) guard {
	return guard{name: name, until: until, holds: func(s situation) bool { return s.past(until(s)) && also(s) }}
}

// impatient is a guard that holds no longer once the patience with the current state is over: what it asks for may fail for ever.
func impatient(name string, holds func(situation) bool) guard {
	return guard{name: name, until: situation.stateDeadline, holds: func(s situation) bool { return s.patient() && holds(s) }}
}

func anyhow(situation) bool { return true }

var (
	always = is("otherwise", anyhow)

	deletedWell    = is("remediation deleted, machine well", func(s situation) bool { return s.Deleting && s.State == Booting && s.Well })
	deletedBooting = is("remediation deleted, host power-cycled", func(s situation) bool { return s.Deleting && s.State == Booting })
	deleted        = is("remediation deleted", func(s situation) bool { return s.Deleting })
	machineGone    = is("machine gone", func(s situation) bool { return s.Machine == MachineGone })
	machineLeaving = is("machine being deleted", func(s situation) bool { return s.Machine == MachineLeaving })
	stoppedWell    = is("told to stop, machine well", func(s situation) bool { return s.Stop && s.State == Booting && s.Well })
	stopped        = is("told to stop", func(s situation) bool { return s.Stop })

	leaving = is("kubemend leaves", func(s situation) bool { return s.Leaving && !s.moving() })

	hostGone        = is("host gone", func(s situation) bool { return s.Host == HostGone })
	hostForeign     = is("host of another machine", func(s situation) bool { return s.Host == HostForeign })
	foreignTooLong  = timed("host of another machine, out of time", situation.deadline, func(s situation) bool { return s.Host == HostForeign })
	unwanted        = is("host switched off by its owner", func(s situation) bool { return s.Host == HostOurs && !s.Wanted })
	noPowerOff      = is("power-off disabled", func(s situation) bool { return s.NoPowerOff })
	noPowerOffStill = is("power-off disabled, nothing moves", func(s situation) bool { return s.NoPowerOff && !s.moving() })
	deaf            = is("power not managed now", func(s situation) bool { return !s.Acts })
	poweredOn       = is("host on", func(s situation) bool { return s.PoweredOn })
	held            = is("host held off", func(s situation) bool { return s.Held })
	notHeld         = is("host not held off", func(s situation) bool { return !s.Held })
	notNoted        = is("not noted when asked", func(s situation) bool { return s.Asked.IsZero() })
	seenOn          = is("host on after it was off", func(s situation) bool { return s.WasOff && s.PoweredOn })
	unsettled       = guard{
		name: "host was off when asked, not settled", until: situation.settledAt,
		holds: func(s situation) bool { return s.WasOff && !s.past(s.settledAt()) },
	}
	// Only what was begun by somebody else can hold a host off that this attempt has not touched.
	heldBefore = is("host held off by who began the remediation", func(s situation) bool {
		return s.Held && s.TakenOver && !s.Touched && s.Finalizer && s.Host == HostOurs && !s.NoPowerOff
	})
	litter    = is("host marked by us", func(s situation) bool { return s.Litter })
	notMarked = is("host not marked unhealthy", func(s situation) bool { return s.Host == HostOurs && !s.HostMarked })

	rebootNotAsked = is("reboot not asked for", func(s situation) bool { return !s.RebootAsked })
	rebootPending  = is("reboot not carried out", func(s situation) bool { return s.RebootPending })

	notOurTurn               = is("not its turn", situation.queued)
	queuedTooLong            = timed("not its turn, out of time", func(s situation) time.Time { return s.Since.Add(s.Queue) }, situation.queued)
	notHeldNotOurTurn        = is("not held, not its turn", func(s situation) bool { return !s.Held && s.queued() })
	rebootNotAskedNotOurTurn = is("reboot not asked for, not its turn", func(s situation) bool { return !s.RebootAsked && s.queued() })

	overdue     = timed("attempt out of time", situation.deadline, anyhow)
	lastOverdue = timed("last attempt out of time", situation.deadline, situation.last)
	late        = timed("out of time", situation.stateDeadline, anyhow)
	lastLate    = timed("last attempt, out of time", situation.stateDeadline, situation.last)

	heldByOthers     = is("host held off by others", situation.keptOff)
	heldByOthersLate = timed("host held off by others, out of time", situation.stateDeadline, situation.keptOff)

	powerFails = is("power management fails", func(s situation) bool { return s.PowerFails })

	pausedHolding = is("paused, host held off", func(s situation) bool { return s.Paused && (s.Held || s.RebootPending) })
	pausedLitter  = is("paused, host marked by us", func(s situation) bool { return s.Paused && s.Litter })
	pausedFenced  = is("paused, node fenced by us", func(s situation) bool { return s.Paused && s.fencedHere() })
	pausedNow     = is("paused", func(s situation) bool { return s.Paused })

	nodeAbsent      = is("node gone", func(s situation) bool { return s.Node == NodeAbsent })
	nodeAbsentEmpty = is("node gone, nothing left of it", func(s situation) bool { return s.Node == NodeAbsent && s.Drained })
	nodeUnseen      = is("workload cluster out of reach", func(s situation) bool { return s.Node == NodeUnseen })
	blindTooLong    = timed("workload cluster out of reach, control-plane host", situation.blindAt,
		func(s situation) bool { return s.ControlPlane && s.Node == NodeUnseen })
	inherited     = is("fence of a remediation that is gone", func(s situation) bool { return s.Inherited })
	anotherNode   = is("another node has the name", func(s situation) bool { return s.NodeMismatch && !s.Fenced })
	deafNotFenced = is("not fenced, power not managed now", func(s situation) bool { return !s.Fenced && !s.Acts })
	notFenced     = is("node not fenced", func(s situation) bool { return !s.Fenced })
	notDrained    = is("workload still there", func(s situation) bool { return !s.Drained })
	unfenceable   = impatient("node fenced by us", situation.fencedHere)
	// Whoever waits for its turn has more patience than an attempt.
	unfenceableQueued = guard{name: "node fenced by us", until: situation.stateDeadline, holds: func(s situation) bool {
		return s.fencedHere() && (s.patient() || s.queued())
	}}
	onAndFenced   = impatient("host on, node fenced by us", func(s situation) bool { return s.PoweredOn && s.fencedHere() })
	fenceToBeSeen = impatient("node fenced by us, out of reach", func(s situation) bool {
		return s.ours() && s.Node != NodePresent && s.Machine != MachineLeaving
	})
	stillFenced     = is("node still fenced by us", situation.fencedHere)
	finalizerFenced = is("finalizer, node still fenced by us", func(s situation) bool {
		return s.Finalizer && s.ours() && s.Node != NodeAbsent && s.Machine != MachineLeaving
	})

	well      = is("machine well", func(s situation) bool { return s.Well })
	recovered = is("machine well, and was not", func(s situation) bool {
		return s.Well && s.StartedBad && !s.Litter && s.Asked.IsZero()
	})
	wellAfterAll  = is("machine well, host marked by us", func(s situation) bool { return s.Well && s.Marked && s.Machine == MachinePresent })
	notAskedOwner = is("owner not asked", func(s situation) bool { return !s.OwnerAsked })
	finalizer     = is("finalizer", func(s situation) bool { return s.Finalizer })
	noFinalizer   = is("no finalizer", func(s situation) bool { return !s.Finalizer })
)

// again is when to look once more after a step: at once unless it waits; else at the first moment at which time alone makes another
// row hold: one that comes before it, or the next one when it holds no longer.
func (s situation) again(chosen row) time.Time {
	if chosen.do != Wait {
		return s.now
	}
	var first time.Time
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
