package bmo

import "time"

// hardware is what is really so.
type hardware struct {
	on bool
	// ramdisk says that it runs one.
	ramdisk bool
	// order is what the BMC is carrying out, until ends; empty if nothing.
	order Power
	hard  bool
	ends  time.Time
}

// node is what Ironic knows of the host.
type node struct {
	// known says that it is registered; verified is when it will be.
	known    bool
	verified time.Time
	// power is On or Off; empty if that could not be found out.
	power Power
	// target is what the power is being changed to since asked, and until is when Ironic gives that up; ignored says that the BMC has not
	// begun. failure is what the last change failed for.
	target       Power
	asked, until time.Time
	ignored      bool
	failure      string
	// synced is when the power was last compared with what the BMC says, and missed how often it could not be since.
	synced time.Time
	missed int
	// fault says that Ironic has given the BMC up, and put the host into maintenance.
	fault bool
	// adopting says that Ironic is being asked once more to take a host that was provisioned.
	adopting bool
	// servicing says that a ramdisk writes firmware, until serviced; broken, that it has failed to.
	servicing, broken bool
	serviced          time.Time
}

// givesUp is how many times in a row the BMC may not answer. (conductor power_state_sync_max_retries)
const givesUp = 3

func powerOf(on bool) Power {
	if on {
		return On
	}
	return Off
}

// Next is the next moment at which anything happens by itself; zero if nothing does.
func (h *Host) Next() time.Time {
	var next time.Time
	for _, at := range []time.Time{h.late(), h.ordered(), h.awaited(), h.synchronized(), h.serviced()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// ignores tells whether the BMC does not follow an order.
func (h *Host) ignores(to Power) bool {
	switch to {
	case On:
		return h.Faults.IgnoresOn
	case Off:
		return h.Faults.IgnoresOff
	}
	return h.Faults.IgnoresOff || h.Faults.IgnoresOn
}

// late is when an order is due that was ignored until now: at once, by the latest moment that is known.
func (h *Host) late() time.Time {
	if h.node.ignored && !h.ignores(h.node.target) && h.node.target != "" && h.hardware.order == "" {
		return h.node.asked
	}
	return time.Time{}
}

func (h *Host) ordered() time.Time {
	if h.hardware.order == "" {
		return time.Time{}
	}
	return h.hardware.ends
}

func (h *Host) awaited() time.Time {
	if h.node.target == "" {
		return time.Time{}
	}
	return h.node.until
}

// synchronized is when Ironic looks at the power the next time, if it learns anything from that.
func (h *Host) synchronized() time.Time {
	n := h.node
	switch {
	case !n.known || n.target != "" || n.servicing:
		return time.Time{}
	case n.fault && h.Faults.Unreachable:
		return time.Time{}
	case n.fault:
		return n.synced.Add(h.Waits.Recovery)
	case h.Faults.Unreachable || n.missed > 0 || n.power != h.told():
		return n.synced.Add(h.Waits.Sync)
	}
	return time.Time{}
}

func (h *Host) serviced() time.Time {
	if !h.node.servicing {
		return time.Time{}
	}
	return h.node.serviced
}

// Advance lets happen what happens by itself until now, in the order of time.
func (h *Host) Advance(now time.Time) {
	for {
		at := h.Next()
		if at.IsZero() || at.After(now) {
			return
		}
		switch at {
		case h.late():
			h.node.ignored = false
			h.begin(h.node.target, true, now)
		case h.ordered():
			h.carryOut(at)
		case h.awaited():
			h.fail("Timed out waiting for the host to power " + string(h.node.target))
		case h.serviced():
			h.endServicing(at)
		default:
			h.synchronize(at)
		}
	}
}

// told is what the BMC says of the power.
func (h *Host) told() Power {
	if h.Faults.Stale && h.node.power != "" {
		return h.node.power
	}
	return powerOf(h.hardware.on)
}

// synchronize compares Ironic's copy of the power with what the BMC says, and forces it on the host if they differ.
// (conductor manager.py do_sync_power_state; force_power_state_during_sync is on)
func (h *Host) synchronize(now time.Time) {
	n := &h.node
	n.synced = now
	if h.Faults.Unreachable {
		n.missed++
		if n.missed >= givesUp {
			n.power, n.fault, n.failure = "", true, "During sync_power_state, max retries exceeded"
		}
		return
	}
	n.missed = 0
	if n.fault || n.power == "" {
		n.fault, n.power = false, h.told()
		return
	}
	if n.power != h.told() {
		h.force(n.power, now)
	}
}

func (h *Host) force(to Power, now time.Time) {
	if h.ignores(to) || h.Faults.Refuses != "" || h.hardware.order != "" {
		return
	}
	h.begin(to, true, now)
}

// order is what Ironic's API does with a change of power that BMO asks for: it notes it, and has a conductor carry it out.
// (conductor utils.py node_power_action)
func (h *Host) order(to Power, hard bool, now time.Time) {
	n := &h.node
	// It waits for longer than any healthy host takes; where hosts are slow, so is its patience.
	n.target, n.failure, n.asked, n.until, n.ignored = to, "", now, now.Add(max(h.Waits.Change, 2*h.takes(to))), false
	switch {
	case h.Faults.Unreachable:
		h.fail("Failed to get the power state: the BMC does not answer")
	case h.Faults.Refuses != "":
		h.fail(h.Faults.Refuses)
	case h.ignores(to):
		n.ignored = true
	case to != Reset && h.hardware.order == "" && h.hardware.on == (to == On):
		h.confirm(now)
	default:
		h.begin(to, hard, now)
	}
}

func (h *Host) begin(to Power, hard bool, now time.Time) {
	h.hardware.order, h.hardware.hard, h.hardware.ends = to, hard, now.Add(h.takes(to))
}

// takes is how long the host takes to follow an order.
func (h *Host) takes(to Power) time.Duration {
	switch to {
	case On:
		return h.Times.PowerOn
	case Off:
		return h.Times.PowerOff
	default:
		return max(h.Times.PowerOff+h.Times.PowerOn, h.Waits.Reset)
	}
}

// carryOut is when the BMC has followed the order.
func (h *Host) carryOut(now time.Time) {
	to, hard := h.hardware.order, h.hardware.hard
	h.hardware.order = ""
	h.become(to, hard, false, now)
	h.confirm(now)
}

// confirm is when Ironic sees that the host has followed the order.
func (h *Host) confirm(now time.Time) {
	if h.Faults.Unreachable || h.Faults.Stale {
		return
	}
	h.node.power, h.node.synced, h.node.missed = powerOf(h.hardware.on), now, 0
	h.node.target = ""
}

// fail ends a change of power. BMO finds out when it looks.
func (h *Host) fail(why string) { h.node.target, h.node.failure = "", why }

// become changes the power in fact.
func (h *Host) become(to Power, hard, ramdisk bool, now time.Time) {
	h.hardware.on, h.hardware.ramdisk = to != Off, ramdisk
	h.changes = append(h.changes, Change{At: now, To: to, Hard: hard, Ramdisk: ramdisk})
}

// service has Ironic boot a ramdisk that writes firmware. (ironic servicing.go startServicing)
func (h *Host) service(now time.Time) {
	h.node.servicing, h.node.broken, h.node.serviced = true, false, now.Add(h.Times.Servicing)
	h.node.power = On
	h.become(On, true, true, now)
}

// endServicing boots what is on the disk, however servicing has ended well; where it has failed the ramdisk stays on.
// (conductor servicing.py do_node_service)
func (h *Host) endServicing(now time.Time) {
	h.node.servicing, h.node.synced = false, now
	if h.Faults.ServicingFails {
		h.node.broken = true
		return
	}
	h.Faults.Firmware = false
	h.become(Reset, true, false, now)
}
