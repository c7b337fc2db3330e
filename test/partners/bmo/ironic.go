package bmo

import "time"

// hardware is the real state of the host.
type hardware struct {
	on bool
	// ramdisk is true if it runs a ramdisk.
	ramdisk bool
	// order is what the BMC carries out until ends; empty if it does nothing.
	order Power
	ends  time.Time
}

// node is what Ironic knows about the host.
type node struct {
	// known is true if the host is registered; verified is when it will be.
	known    bool
	verified time.Time
	// power is On or Off; empty if Ironic could not read it.
	power Power
	// target is the power that Ironic ordered at asked. Ironic gives up at until. ignored is true while the BMC does not follow. failure is
	// the error of the last order.
	target       Power
	asked, until time.Time
	ignored      bool
	failure      string
	// synced is when Ironic last compared its copy of the power with the BMC; missed is how often it could not since then.
	synced time.Time
	missed int
	// fault is true if Ironic has given the BMC up and put the host into maintenance.
	fault bool
	// adopting is true while Ironic tries again to adopt a provisioned host.
	adopting bool
	// servicing is true while a ramdisk writes firmware, until serviced; broken is true if that failed.
	servicing, broken bool
	serviced          time.Time
}

// givesUp is how many times in a row the BMC may fail to answer. (conductor power_state_sync_max_retries)
const givesUp = 3

func powerOf(on bool) Power {
	if on {
		return On
	}
	return Off
}

// Next returns when the next thing happens by itself; zero if nothing does.
func (h *Host) Next() time.Time {
	var next time.Time
	for _, at := range []time.Time{h.late(), h.ordered(), h.awaited(), h.synchronized(), h.serviced()} {
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// ignores reports whether the BMC does not follow an order.
func (h *Host) ignores(to Power) bool {
	switch to {
	case On:
		return h.Faults.IgnoresOn
	case Off:
		return h.Faults.IgnoresOff
	}
	return h.Faults.IgnoresOff || h.Faults.IgnoresOn
}

// late returns the time of an order that the BMC ignored and now follows; zero if there is none.
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

// synchronized returns when Ironic reads the power next, if it will learn anything.
func (h *Host) synchronized() time.Time {
	n := h.node
	switch {
	case !n.known || n.target != "" || n.servicing:
		return time.Time{}
	case n.fault && h.Faults.Unreachable:
		return time.Time{}
	case n.fault:
		return n.synced.Add(h.Waits.Recovery)
	case h.Faults.Unreachable || n.missed > 0 || n.power != h.reported():
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

// Advance advances the model to now, one event after the other.
func (h *Host) Advance(now time.Time) {
	for {
		at := h.Next()
		if at.IsZero() || at.After(now) {
			return
		}
		switch at {
		case h.late():
			h.node.ignored = false
			h.begin(h.node.target, now)
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

// reported returns the power that the BMC reports.
func (h *Host) reported() Power {
	if h.Faults.Stale && h.node.power != "" {
		return h.node.power
	}
	return powerOf(h.hardware.on)
}

// synchronize compares Ironic's copy of the power with the BMC, and restores the power of the copy if they differ. (conductor manager.py
// do_sync_power_state; force_power_state_during_sync is on)
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
		n.fault, n.power = false, h.reported()
		return
	}
	if n.power != h.reported() {
		h.force(n.power, now)
	}
}

func (h *Host) force(to Power, now time.Time) {
	if h.ignores(to) || h.Faults.Refuses != "" || h.hardware.order != "" {
		return
	}
	h.begin(to, now)
}

// order makes Ironic's API accept a power change from BMO and a conductor carry it out. (conductor utils.py node_power_action)
func (h *Host) order(to Power, now time.Time) {
	n := &h.node
	// The timeout is longer than any healthy host of the model takes.
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
		h.begin(to, now)
	}
}

func (h *Host) begin(to Power, now time.Time) {
	h.hardware.order, h.hardware.ends = to, now.Add(h.takes(to))
}

// takes returns how long the host takes to follow an order.
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

// carryOut completes the order of the BMC.
func (h *Host) carryOut(now time.Time) {
	to := h.hardware.order
	h.hardware.order = ""
	h.become(to, false, now)
	h.confirm(now)
}

// confirm makes Ironic see that the host has followed the order.
func (h *Host) confirm(now time.Time) {
	if h.Faults.Unreachable || h.Faults.Stale {
		return
	}
	h.node.power, h.node.synced, h.node.missed = powerOf(h.hardware.on), now, 0
	h.node.target = ""
}

// fail ends a power change with an error, which BMO sees in its next reconcile.
func (h *Host) fail(why string) { h.node.target, h.node.failure = "", why }

// become changes the real power.
func (h *Host) become(to Power, ramdisk bool, now time.Time) {
	h.hardware.on, h.hardware.ramdisk = to != Off, ramdisk
	h.changes = append(h.changes, Change{At: now, To: to, Ramdisk: ramdisk})
}

// service makes Ironic boot a ramdisk that writes firmware. (ironic servicing.go startServicing)
func (h *Host) service(now time.Time) {
	h.node.servicing, h.node.broken, h.node.serviced = true, false, now.Add(h.Times.Servicing)
	h.node.power = On
	h.become(On, true, now)
}

// endServicing boots the disk after servicing has succeeded; after a failure the ramdisk keeps running. (conductor servicing.py
// do_node_service)
func (h *Host) endServicing(now time.Time) {
	h.node.servicing, h.node.synced = false, now
	if h.Faults.ServicingFails {
		h.node.broken = true
		return
	}
	h.Faults.Firmware = false
	h.become(Reset, false, now)
}
