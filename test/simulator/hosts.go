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

// newsRoom is how many events about hosts may wait before their senders have to wait.
const newsRoom = 10_000

// Times are how long a host takes. What takes no time is done at once.
type Times = bmo.Times

// Waits are how long the Bare Metal Operator and Ironic wait before they reconcile again.
type Waits = bmo.Waits

// Hurried are waits in the proportions of the real ones, so that a suite need not wait for minutes. A story that depends on how slow they
// are has the real ones, and a clock of its own: see test/faults/hosts.
func Hurried() Waits {
	return Waits{
		Poll: time.Minute, Error: time.Second, Short: 50 * time.Millisecond, Long: 200 * time.Millisecond, NotReady: 500 * time.Millisecond,
		Credentials: 500 * time.Millisecond, Detached: 10 * time.Minute, Serviced: time.Second, Sync: time.Second,
		Recovery: 5 * time.Second,
		Change:   2 * time.Second, Reset: time.Second, Errors: 4,
	}
}

// Hosts plays the Bare Metal Operator, Ironic, and the hosts behind them: every BareMetalHost of a management cluster.
//
// A BareMetalHost is what BMO knows of a host; a Host is the host itself. The two differ for as long as the host is
// paused or detached, and when its BMC cannot be read.
type Hosts struct {
	player
	waits  Waits
	news   chan event.GenericEvent
	closed chan struct{}
	*hall
}

// hall is where the hosts are, whichever management cluster they belong to.
type hall struct {
	mu      sync.Mutex
	known   map[client.ObjectKey]*Host
	lookers []*Hosts
}

// NewHosts makes the hosts of a management cluster, as BMO 0.14 with these waits has them, which answer at once; Start starts them.
func NewHosts(management *rest.Config, waits Waits) (*Hosts, error) {
	return newHosts(management, waits, &hall{known: map[client.ObjectKey]*Host{}})
}

// SeenFrom are the same hosts, under the Bare Metal Operator of another management cluster, to which their objects may be moved.
// It is started by itself.
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

// Start runs the hosts until the context ends; then it also stops their kubelets, unless other Hosts continue them. It may be called once.
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

// Host is the host behind a BareMetalHost. It may be asked for, and its knobs turned, before there is such an object.
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

// Host is one host with its BMC: what is really so, whatever its BareMetalHost says. What becomes of it is decided by package bmo; here it
// has a clock, and a kubelet.
//
// Every knob takes effect at once, stays as it is until it is turned again, and enqueues the host for the Bare Metal Operator. (A real one
// may not reconcile it for hours after an error.)
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

func (h *Host) reconcile(bmh *bmov1alpha1.BareMetalHost) bmo.Pass {
	now := time.Now()
	h.tick(now)
	h.mu.Lock()
	defer h.mu.Unlock()
	pass := h.model.Reconcile(bmh, now)
	h.follow()
	return pass
}

// follow does what comes of a change of the model: what the host carries starts with the power and stops with it. It is called with mu
// held.
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

// Power is what the power of a host was changed to.
type Power = bmo.Power

// What the power of a host can be changed to.
const (
	On    = bmo.On
	Off   = bmo.Off
	Reset = bmo.Reset
)

// PowerChange is one change that really happened to the power of a host, whether BMO knows of it or not.
type PowerChange = bmo.Change

// History is all that has happened to the power of a host, oldest first.
type History []PowerChange

// Since is the part of the history that is not older than that.
func (h History) Since(moment time.Time) History {
	return slices.DeleteFunc(slices.Clone(h), func(c PowerChange) bool { return c.At.Before(moment) })
}
