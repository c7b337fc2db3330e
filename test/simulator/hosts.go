package simulator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
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

// Hurried are waits in the proportions of the real ones, so that a suite need not wait for minutes. A story that depends on how slow they are
// has the real ones, and a clock of its own: see test/faults/hosts.
func Hurried() Waits {
	return Waits{
		Poll: time.Minute, Error: time.Second, Short: 50 * time.Millisecond, Long: 200 * time.Millisecond, NotReady: 500 * time.Millisecond,
		Credentials: 500 * time.Millisecond, Detached: 10 * time.Minute, Serviced: time.Second, Sync: time.Second, Recovery: 5 * time.Second,
		Change: 2 * time.Second, Soft: 3 * time.Second, Reset: time.Second, Errors: 4,
	}
}

// Hosts plays the Bare Metal Operator, Ironic, and the hosts behind them: every BareMetalHost of a management cluster.
//
// A BareMetalHost is what BMO knows of a host; a Host is the host itself. The two differ for as long as the host is
// paused or detached, and when its BMC cannot be read.
type Hosts struct {
	manager ctrl.Manager
	waits   Waits
	news    chan event.GenericEvent
	closed  chan struct{}
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
	manager, err := newManager(management)
	if err != nil {
		return nil, err
	}
	h := &Hosts{
		manager: manager,
		waits:   waits,
		news:    make(chan event.GenericEvent, newsRoom),
		closed:  make(chan struct{}),
		hall:    in,
	}
	if err := (&operator{Hosts: h, client: manager.GetClient()}).setUp(manager); err != nil {
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
	if err := h.manager.Start(ctx); err != nil {
		return fmt.Errorf("run the simulated hosts: %w", err)
	}
	return nil
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

// enqueue enqueues a host in all management clusters.
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
