package hosts

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/kubemend/kubemend/test/simulator"
)

// How long everything takes.
const (
	takesPower  = 5 * time.Second  // to power off, or on
	takesBoot   = 30 * time.Second // from when the power is on until the kubelet runs
	asksAgain   = 10 * time.Second // the Bare Metal Operator asks again for a reboot that is still asked for
	retriesBMC  = time.Minute      // the Bare Metal Operator asks again a BMC that has failed
	takesPods   = 2 * time.Second  // the eviction of the pods of a tainted node, and then the detaching of their volumes
	takesOrphan = 40 * time.Second // the collection of the pods of a node that is gone
	takesSilent = 40 * time.Second // until a node whose kubelet is silent is not Ready any more
)

// box is a host with its BMC and with what is on its disk: what is really so, whatever its BareMetalHost says. It also plays the Bare Metal
// Operator, by the rules of package simulator.
type box struct {
	e *environment

	powered bool
	order   simulator.Power // what the BMC is doing; empty if nothing
	done    time.Time       // when that is done
	history []simulator.Power

	// ignores are the orders that the BMC accepts and does not follow; failure is what it says against every order.
	ignores map[simulator.Power]bool
	failure string
	retry   time.Time
	// pinned is the provisioning state that the host stays in; empty if it is as it should be.
	pinned bmov1alpha1.ProvisioningState

	mute   int // how many boots bring up no kubelet; negative for all
	boot   time.Time
	starts int
	runs   bool // the kubelet
	silent time.Time
}

// step lets happen what is due, and what the Bare Metal Operator does about it. It reports whether anything has changed.
func (b *box) step(now time.Time) bool {
	changed := false
	if b.order != "" && !now.Before(b.done) {
		b.change(b.order, now)
		b.order, changed = "", true
	}
	if !b.boot.IsZero() && !now.Before(b.boot) {
		b.boot, changed = time.Time{}, true
		b.start()
	}
	return b.operate(now) || changed
}

// next is the next moment at which something is due; zero if nothing is.
func (b *box) next() time.Time {
	moments := []time.Time{b.boot, b.retry}
	if b.order != "" {
		moments = append(moments, b.done)
	}
	return earliest(moments...)
}

// change changes the power in fact.
func (b *box) change(to simulator.Power, now time.Time) {
	b.history = append(b.history, to)
	b.powered = to != simulator.Off
	if b.runs && to != simulator.On {
		b.runs, b.silent = false, now
	}
	b.boot = time.Time{}
	if !b.powered {
		return
	}
	if b.mute != 0 {
		b.mute = max(b.mute-1, -1)
		return
	}
	b.boot = now.Add(takesBoot)
}

// start starts the kubelet, under a boot of its own.
func (b *box) start() {
	b.starts++
	b.runs, b.silent = true, time.Time{}
	b.e.registers(b.starts)
}

// hang makes the kubelet say no more.
func (b *box) hang() { b.runs, b.silent = false, b.e.clock.Now().Add(-takesSilent) }

// recover makes a kubelet that hangs on a host that is on report again, under the same boot.
func (b *box) recover() {
	if b.powered && !b.runs && b.boot.IsZero() {
		b.runs, b.silent = true, time.Time{}
		b.e.registers(b.starts)
	}
}

// revive makes the BMC follow orders again.
func (b *box) revive() { b.ignores, b.failure, b.retry = map[simulator.Power]bool{}, "", time.Time{} }

// operate is what the Bare Metal Operator does about a host: it follows the power, and changes it if it is not as asked.
func (b *box) operate(now time.Time) bool {
	h := b.e.host()
	if h == nil {
		return false
	}
	if _, paused := h.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return false
	}
	if state := b.state(); h.Status.Provisioning.State != state {
		b.e.editHost(true, func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = state })
		return true
	}
	if b.pinned != "" {
		return false
	}
	if _, detached := h.Annotations[bmov1alpha1.DetachedAnnotation]; detached {
		return false
	}
	if b.powered != h.Status.PoweredOn {
		b.e.editHost(true, func(h *bmov1alpha1.BareMetalHost) {
			h.Status.PoweredOn = b.powered
			h.Status.OperationalStatus, h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, "", ""
		})
		return true
	}
	if _, asked := h.Annotations[bmov1alpha1.RebootAnnotationPrefix]; asked && !b.powered {
		b.e.editHost(false, func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.RebootAnnotationPrefix) })
		return true
	}
	reboot, _ := simulator.RebootAsked(h.Annotations, false)
	if wanted := h.Spec.Online && !reboot; wanted != b.powered && b.order == "" && !now.Before(b.retry) {
		return b.ask(h, simulator.OrderFor(h, wanted), now)
	}
	return false
}

func (b *box) state() bmov1alpha1.ProvisioningState {
	if b.pinned != "" {
		return b.pinned
	}
	return bmov1alpha1.StateExternallyProvisioned
}

// ask asks the BMC to change the power.
func (b *box) ask(h *bmov1alpha1.BareMetalHost, to simulator.Power, now time.Time) bool {
	if b.failure != "" {
		b.retry = now.Add(retriesBMC)
		if h.Status.ErrorMessage == b.failure {
			return false
		}
		b.e.editHost(true, func(h *bmov1alpha1.BareMetalHost) {
			h.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
			h.Status.ErrorType, h.Status.ErrorMessage = bmov1alpha1.PowerManagementError, b.failure
		})
		return true
	}
	b.retry = time.Time{}
	if b.ignores[to] {
		return false
	}
	b.order, b.done = to, now.Add(takesPower)
	if to != simulator.Reset {
		return true
	}
	// Done is done, for the Bare Metal Operator: the request that it may clear is cleared.
	b.done, b.retry = now, now.Add(asksAgain)
	b.e.editHost(false, func(h *bmov1alpha1.BareMetalHost) { delete(h.Annotations, bmov1alpha1.RebootAnnotationPrefix) })
	return true
}

// earliest is the first of these moments that is one; zero if none is.
func earliest(moments ...time.Time) time.Time {
	var first time.Time
	for _, at := range moments {
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}
