package simulator

import (
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

// Host is one host with its BMC: what is really so, whatever its BareMetalHost says. What becomes of it is decided by package bmo; here it has
// a clock, and a kubelet.
//
// Every knob takes effect at once, stays as it is until it is turned again, and enqueues the host for the Bare Metal Operator. (A real one may
// not reconcile it for hours after an error.)
type Host struct {
	hosts *Hosts
	key   client.ObjectKey

	// mu guards all below. No holder of it waits for a kubelet or an API server.
	mu     sync.Mutex
	model  bmo.Host
	timer  *time.Timer
	closed bool

	// A turn is the time from one power change to the next: what has started in one is void in another.
	turn    int
	history History
	carried *Kubelet
	mute    int
}

// Take changes how long the host takes for everything from now on.
func (h *Host) Take(times Times) { h.set(func(m *bmo.Host) { m.Times = times }) }

// Die makes the BMC accept every order and follow none, or brings it back to life.
func (h *Host) Die(dead bool) {
	h.set(func(m *bmo.Host) { m.Faults.IgnoresOff, m.Faults.IgnoresOn = dead, dead })
}

// Mute makes the next few boots bring up no kubelet; all of them if the number is negative, none if it is zero.
func (h *Host) Mute(boots int) { h.set(func(*bmo.Host) { h.mute = boots }) }

func (h *Host) set(change func(*bmo.Host)) {
	h.mu.Lock()
	change(&h.model)
	h.follow()
	h.mu.Unlock()
	h.hosts.enqueue(h.key)
}

// silence stops the kubelet, and waits for its last request: it is silent before any client can see that the host is off.
func (h *Host) silence() {
	if kubelet := h.Kubelet(); kubelet != nil {
		kubelet.Stop()
	}
}

// tick lets happen what happens by itself until now.
func (h *Host) tick(now time.Time) {
	h.mu.Lock()
	goesOff := h.model.GoesOff(now)
	h.mu.Unlock()
	if goesOff {
		h.silence()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.model.Advance(now)
	h.follow()
}

// reconcile is one reconcile of bmh by the Bare Metal Operator.
func (h *Host) reconcile(bmh *bmov1alpha1.BareMetalHost) bmo.Pass {
	now := time.Now()
	h.tick(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	pass := h.model.Reconcile(bmh, now)
	h.follow()
	return pass
}

// follow does what comes of a change of the model: what the host carries starts with the power and stops with it. It is called with mu held.
func (h *Host) follow() {
	for _, change := range h.model.Changes() {
		h.turn++
		h.history = append(h.history, change)
		if h.carried != nil && change.To != Off && !change.Ramdisk {
			h.boot()
		}
	}
	if h.model.Wiped() {
		h.wipe()
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	if next := h.model.Next(); !next.IsZero() && !h.closed {
		h.timer = time.AfterFunc(time.Until(next), func() { h.tick(time.Now()) })
	}
}

// Carry puts a kubelet on the host's disk. It starts when the host boots, which is now if the power is on, and stops
// when the power goes. A deprovisioned host carries none any more.
func (h *Host) Carry(kubelet *Kubelet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.carried = kubelet
	if h.model.Powered() {
		h.boot()
	}
}

// Key names the BareMetalHost.
func (h *Host) Key() client.ObjectKey { return h.key }

// Kubelet is the kubelet that the host carries, or nil.
func (h *Host) Kubelet() *Kubelet {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.carried
}

// Powered reports whether the power is really on.
func (h *Host) Powered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.model.Powered()
}

// History is all that has happened to the power so far.
func (h *Host) History() History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.history)
}

// boot starts what the host carries, after as long as that takes. It is called with mu held.
func (h *Host) boot() {
	if h.mute != 0 {
		h.mute = max(h.mute-1, -1)
		return
	}
	kubelet, turn := h.carried, h.turn
	time.AfterFunc(h.model.Times.Boot, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.closed && h.model.Powered() && h.turn == turn && h.carried == kubelet {
			kubelet.Start()
		}
	})
}

// wipe takes from the host what it carries. It is called with mu held, of a host that is off or about to be.
func (h *Host) wipe() {
	if h.carried != nil {
		go h.carried.Retire() // it waits for its last request
	}
	h.carried = nil
}

// shut ends everything that goes on by itself.
func (h *Host) shut() {
	h.mu.Lock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	kubelet := h.carried
	h.mu.Unlock()
	if kubelet != nil {
		kubelet.Stop()
	}
}
