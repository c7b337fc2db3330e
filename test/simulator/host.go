package simulator

import (
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Host is one host with its BMC: what is really so, whatever its BareMetalHost says.
//
// Every knob takes effect at once, and stays as it is until it is turned again.
type Host struct {
	hosts *Hosts
	key   client.ObjectKey

	// mu guards all below. Nobody who holds it waits for a kubelet or an API server.
	mu     sync.Mutex
	times  Times
	closed bool

	// The machine. A turn is the time from one power change to the next: what was begun in one is void in another.
	powered  bool
	changing bool
	turn     int
	boots    int
	history  History
	carried  *Kubelet
	comesUp  func() bool
	mute     int

	// The BMC.
	dead        bool
	failure     string
	hidden      bool
	ignoresSoft bool
	orders      int

	// The state that BMO has the host in.
	pinned    *bmov1alpha1.ProvisioningState
	state     bmov1alpha1.ProvisioningState
	since     time.Time
	clearsAll bool
}

// Take changes how long the host takes for everything from now on.
func (h *Host) Take(times Times) { h.set(func() { h.times = times }) }

// Die makes the BMC accept every order and follow none, or brings it back to life.
func (h *Host) Die(dead bool) { h.set(func() { h.dead = dead }) }

// FailPower makes every change of power fail with this message; none fails if it is empty.
func (h *Host) FailPower(message string) { h.set(func() { h.failure = message }) }

// HidePower makes the BMC follow orders without saying whether the power is on: what BMO says of it becomes stale.
func (h *Host) HidePower(hidden bool) { h.set(func() { h.hidden = hidden }) }

// IgnoreSoft makes the operating system not listen when it is asked to shut down, as one that hangs.
func (h *Host) IgnoreSoft(ignores bool) { h.set(func() { h.ignoresSoft = ignores }) }

// Pin keeps the host in a provisioning state, whatever is asked of it, until Unpin.
func (h *Host) Pin(state bmov1alpha1.ProvisioningState) { h.set(func() { h.pinned = &state }) }

// Unpin lets the provisioning state follow what is asked of the host.
func (h *Host) Unpin() { h.set(func() { h.pinned = nil }) }

// ClearAllReboots makes BMO treat the host as up to 0.13, or as since 0.14; see HostsOptions.ClearsAllReboots.
func (h *Host) ClearAllReboots(all bool) { h.set(func() { h.clearsAll = all }) }

// Mute makes the next few boots bring up no kubelet; all of them if the number is negative, none if it is zero.
func (h *Host) Mute(boots int) { h.set(func() { h.mute = boots }) }

func (h *Host) set(change func()) {
	h.mu.Lock()
	change()
	h.mu.Unlock()
	h.hosts.wake(h.key)
}

// Carry puts a kubelet on the host's disk. It starts when the host boots, which is now if the power is on, and stops
// when the power goes. A deprovisioned host carries none any more.
func (h *Host) Carry(kubelet *Kubelet) { h.carry(kubelet, func() bool { return true }) }

func (h *Host) carry(kubelet *Kubelet, comesUp func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.carried, h.comesUp = kubelet, comesUp
	if h.powered {
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

// Powered tells whether the power is really on.
func (h *Host) Powered() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.powered
}

// Orders is how often the BMC was asked to change the power, followed or not.
func (h *Host) Orders() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.orders
}

// Boots is how often the host booted what it carries.
func (h *Host) Boots() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.boots
}

// History is all that has happened to the power so far.
func (h *Host) History() History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.history)
}

// order asks the BMC to change the power, and returns what it says against it. It is called with mu held.
func (h *Host) order(to Power, hard bool) (failure string) {
	h.orders++
	switch {
	case h.failure != "":
		return h.failure
	case to == Off && !hard && h.ignoresSoft:
		return "the host did not shut down in time"
	case h.dead, h.changing, to == On && h.powered, to == Off && !h.powered:
		return ""
	}
	h.changing = true
	takes := map[Power]time.Duration{On: h.times.PowerOn, Off: h.times.PowerOff, Reset: h.times.PowerOff + h.times.PowerOn}
	time.AfterFunc(takes[to], func() { h.settle(to, hard) })
	return ""
}

// settle is when the BMC has done as it was told. BMO asks for that, but of a reset there is nothing to see.
func (h *Host) settle(to Power, hard bool) {
	h.mu.Lock()
	died := h.closed || h.dead
	if died {
		h.changing = false
	}
	h.mu.Unlock()
	if died {
		return
	}
	h.changePower(to, hard)
	h.mu.Lock()
	h.changing = false
	h.mu.Unlock()
	if to != Reset {
		h.hosts.wake(h.key)
	}
}

// Unplug takes the power away for a moment, and tells nobody: BMO finds the host off when it looks the next time.
func (h *Host) Unplug() { h.changePower(Off, true) }

// changePower changes the power in fact. The kubelet is silent before anybody can see that the host is off.
func (h *Host) changePower(to Power, hard bool) {
	h.mu.Lock()
	h.turn++
	kubelet := h.carried
	h.mu.Unlock()
	if to != On && kubelet != nil {
		kubelet.Stop()
	}

	h.mu.Lock()
	h.powered = to != Off
	h.history = append(h.history, PowerChange{At: time.Now(), To: to, Hard: hard})
	if h.powered && h.carried != nil {
		h.boot()
	}
	h.mu.Unlock()
}

// boot starts what the host carries, after as long as that takes. It is called with mu held.
func (h *Host) boot() {
	h.boots++
	if h.mute != 0 {
		h.mute = max(h.mute-1, -1)
		return
	}
	kubelet, turn := h.carried, h.turn
	time.AfterFunc(h.times.Boot, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.closed && h.powered && h.turn == turn && h.carried == kubelet && h.comesUp() {
			kubelet.Start()
		}
	})
}

// wipe takes from the host what it carries. It is called with mu held, of a host that is off or about to be.
func (h *Host) wipe() {
	if h.carried != nil {
		go h.carried.Retire() // it waits for its last request
	}
	h.carried, h.comesUp = nil, nil
}

// shut ends everything that goes on by itself.
func (h *Host) shut() {
	h.mu.Lock()
	h.closed = true
	kubelet := h.carried
	h.mu.Unlock()
	if kubelet != nil {
		kubelet.Stop()
	}
}
