package simulator

import (
	"context"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/kubemend/kubemend/test/partners/bmo"
)

// newsRoom is how many events about hosts may wait before a sender blocks.
const newsRoom = 10_000

// Times are how long a host takes for each step. A step of zero takes no time.
type Times = bmo.Times

// Waits are how long the Bare Metal Operator and Ironic wait before they reconcile again.
type Waits = bmo.Waits

// Hurried returns short waits in the proportions of the real ones, for suites on real time. Tests that depend on the real waits have a
// virtual clock: see test/faults/hosts.
func Hurried() Waits {
	return Waits{
		Poll: time.Minute, Error: time.Second, Short: 50 * time.Millisecond, Long: 200 * time.Millisecond, NotReady: 500 * time.Millisecond,
		Credentials: 500 * time.Millisecond, Detached: 10 * time.Minute, Serviced: time.Second, Sync: time.Second,
		Recovery: 5 * time.Second,
		Change:   2 * time.Second, Reset: time.Second, Errors: 4,
	}
}

// Hosts simulates the Bare Metal Operator, Ironic and the hosts of all BareMetalHosts of a management cluster.
//
// A BareMetalHost is what BMO knows about a host; a Host is the host itself. They differ while the host is paused or detached, and while
// its BMC cannot be read.
type Hosts struct {
	player
	waits  Waits
	news   chan event.GenericEvent
	closed chan struct{}
	*hall
}

// hall has the hosts, which may belong to several management clusters.
type hall struct {
	mu      sync.Mutex
	known   map[client.ObjectKey]*Host
	lookers []*Hosts
}

// NewHosts creates the hosts of a management cluster, with BMO 0.14 and these waits. The hosts take no time for anything. Start starts
// them.
func NewHosts(management *rest.Config, waits Waits) (*Hosts, error) {
	return newHosts(management, waits, &hall{known: map[client.ObjectKey]*Host{}})
}

// SeenFrom returns the same hosts under the Bare Metal Operator of another management cluster, to which their objects may be moved. It
// needs its own Start.
func (h *Hosts) SeenFrom(management *rest.Config) (*Hosts, error) {
	return newHosts(management, h.waits, h.hall)
}

func newHosts(management *rest.Config, waits Waits, in *hall) (*Hosts, error) {
	player, err := newPlayer(management, "hosts")
	if err != nil {
		return nil, err
	}
	h := &Hosts{player: player, waits: waits, news: make(chan event.GenericEvent, newsRoom), closed: make(chan struct{}), hall: in}
	if err := (&operator{Hosts: h}).setUp(player.manager); err != nil {
		return nil, err
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.lookers = append(in.lookers, h)
	return h, nil
}

// Start runs the hosts until the context ends, and then stops their kubelets unless other Hosts have the same hosts. Call it once.
func (h *Hosts) Start(ctx context.Context) error {
	defer h.shut()
	return h.player.Start(ctx)
}

func (h *Hosts) shut() {
	close(h.closed)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lookers = slices.DeleteFunc(h.lookers, func(other *Hosts) bool { return other == h })
	if len(h.lookers) > 0 {
		return
	}
	var stops sync.WaitGroup
	for _, host := range h.known {
		stops.Go(host.shut)
	}
	stops.Wait()
}

// Host returns the host of a BareMetalHost. A test may configure it before the object exists.
func (h *Hosts) Host(key client.ObjectKey) *Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[key] == nil {
		h.known[key] = &Host{hosts: h, key: key, model: bmo.Host{Waits: h.waits}}
	}
	return h.known[key]
}

func (h *Hosts) enqueue(key client.ObjectKey) {
	h.mu.Lock()
	lookers := slices.Clone(h.lookers)
	h.mu.Unlock()
	for _, looker := range lookers {
		looker.look(key)
	}
}

func (h *Hosts) look(key client.ObjectKey) {
	news := event.GenericEvent{Object: &bmov1alpha1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
	}}
	select {
	case h.news <- news:
	case <-h.closed:
	}
}

// Host is the real state of one host with its BMC, whatever its BareMetalHost says. Package bmo decides what happens to it; Host adds a
// clock and a kubelet.
//
// Every setting takes effect at once, stays until the next call, and enqueues the host for the Bare Metal Operator. (The real one may not
// reconcile a host for hours after an error.)
type Host struct {
	hosts *Hosts
	key   client.ObjectKey

	// mu guards the fields below. It is never held during a request to a kubelet or an API server.
	mu     sync.Mutex
	model  bmo.Host
	timer  *time.Timer
	closed bool

	// A turn is the time between two power changes. A boot that began in an earlier turn is void.
	turn    int
	history History
	carried *Kubelet
	mute    int
}

// Take sets how long the host takes from now on.
func (h *Host) Take(times Times) { h.set(func(m *bmo.Host) { m.Times = times }) }

// Mute makes the next boots bring up no kubelet: all of them if the number is negative, none if it is zero.
func (h *Host) Mute(boots int) { h.set(func(*bmo.Host) { h.mute = boots }) }

func (h *Host) set(change func(*bmo.Host)) {
	h.mu.Lock()
	change(&h.model)
	h.follow()
	h.mu.Unlock()
	h.hosts.enqueue(h.key)
}

// silence stops the kubelet and waits for its last request, so that it is silent before a client can see that the host is off.
func (h *Host) silence() {
	if kubelet := h.Kubelet(); kubelet != nil {
		kubelet.Stop()
	}
}

// tick advances the model to now.
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

func (h *Host) reconcile(bmh *bmov1alpha1.BareMetalHost) bmo.Pass {
	now := time.Now()
	h.tick(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	pass := h.model.Reconcile(bmh, now)
	h.follow()
	return pass
}

// follow applies the changes of the model: the kubelet starts and stops with the power. The caller holds mu.
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

// Carry puts a kubelet on the host's disk. It starts with each boot, now if the power is on, and stops when the power goes off.
// Deprovisioning removes it.
func (h *Host) Carry(kubelet *Kubelet) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.carried = kubelet
	if h.model.Powered() {
		h.boot()
	}
}

// Key returns the name of the BareMetalHost.
func (h *Host) Key() client.ObjectKey { return h.key }

// Kubelet returns the kubelet on the host, or nil.
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

// History returns all power changes so far.
func (h *Host) History() History {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.history)
}

// boot starts the kubelet after the boot time. The caller holds mu.
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

// wipe removes the kubelet. The caller holds mu; the host is off or about to be.
func (h *Host) wipe() {
	if h.carried != nil {
		go h.carried.Retire() // Retire waits for the last request
	}
	h.carried = nil
}

// shut stops the timer and the kubelet.
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

// Power is a change of the power of a host.
type Power = bmo.Power

// The changes of the power.
const (
	On    = bmo.On
	Off   = bmo.Off
	Reset = bmo.Reset
)

// PowerChange is a real power change of a host, even if BMO does not know it.
type PowerChange = bmo.Change

// History is all power changes of a host, oldest first.
type History []PowerChange

// Since returns the changes at or after a time.
func (h History) Since(moment time.Time) History {
	return slices.DeleteFunc(slices.Clone(h), func(c PowerChange) bool { return c.At.Before(moment) })
}
