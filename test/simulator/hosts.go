package simulator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

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

const (
	// hostWorkers is how many hosts are reconciled in parallel.
	hostWorkers = 20
	// conflicted is the requeue after a conflict: the cache is about to show what was written.
	conflicted = 5 * time.Millisecond
)

// operator plays the controller of the Bare Metal Operator.
type operator struct {
	*Hosts
	events events.EventRecorder
}

func (o *operator) setUp(manager ctrl.Manager) error {
	o.events = manager.GetEventRecorder("simulated-baremetal-operator")
	finalizers := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return !equality.Semantic.DeepEqual(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
	}}
	err := ctrl.NewControllerManagedBy(manager).
		Named("baremetalhost").
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, finalizers))).
		WatchesRawSource(source.Channel(o.news, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: hostWorkers}).
		Complete(o)
	if err != nil {
		return fmt.Errorf("set up the simulated bare metal operator: %w", err)
	}
	return nil
}

// Reconcile reconciles one BareMetalHost, as BMO does: it updates the status from the real state, and then takes one step of the model.
//
// Like BMO it reads from a cache, and writes whole objects: of two writers one has a conflict, and retries.
func (o *operator) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, request.NamespacedName, bmh); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if movedAway(bmh) {
		return ctrl.Result{}, nil
	}
	before := bmh.DeepCopy()
	pass := o.Host(request.NamespacedName).reconcile(bmh)
	if pass.Failed {
		return ctrl.Result{RequeueAfter: pass.After}, nil
	}
	if err := o.save(ctx, pass, bmh, before); err != nil {
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: conflicted}, nil
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if pass.Event != "" {
		o.events.Eventf(bmh, nil, corev1.EventTypeWarning, eventOf(pass.Event), "Manage", "%s", bmh.Status.ErrorMessage)
	}
	if pass.Again {
		return ctrl.Result{RequeueAfter: time.Nanosecond}, nil // the next reconcile, without a back-off
	}
	return ctrl.Result{RequeueAfter: pass.After}, nil
}

// movedAway reports that clusterctl has moved an object, and deletes it here: it is about to go. Neither BMO nor CAPM3 knows that
// annotation. By chance they see the object once more in between, without a finalizer: they would add theirs, and then delete what is
// behind it. That race is between clusterctl and them, and none of our tests is decided by it.
//
// Until then BMO goes on as ever: clusterctl replaces all annotations, and so takes away the pause and what holds the host off.
func movedAway(object client.Object) bool {
	_, moved := object.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return moved && (len(object.GetFinalizers()) == 0 || !object.GetDeletionTimestamp().IsZero())
}

// save writes what a reconcile has changed: the metadata first, and each by a whole update.
func (o *operator) save(ctx context.Context, pass bmo.Pass, bmh, before *bmov1alpha1.BareMetalHost) error {
	status := bmh.Status
	if pass.Object {
		bmh.Status = before.Status
		if err := o.client.Update(ctx, bmh); err != nil {
			return fmt.Errorf("write host %s: %w", client.ObjectKeyFromObject(bmh), err)
		}
	}
	if !pass.Status {
		return nil
	}
	bmh.Status = status
	if err := o.client.Status().Update(ctx, bmh); err != nil {
		return fmt.Errorf("write the status of host %s: %w", client.ObjectKeyFromObject(bmh), err)
	}
	return nil
}

// eventOf is the reason of the event by which BMO reports an error. (baremetalhost_controller.go recordActionFailure)
func eventOf(kind bmov1alpha1.ErrorType) string {
	return map[bmov1alpha1.ErrorType]string{
		bmov1alpha1.ProvisionedRegistrationError: "ProvisionedRegistrationError", bmov1alpha1.RegistrationError: "RegistrationError",
		bmov1alpha1.ProvisioningError: "ProvisioningError", bmov1alpha1.PowerManagementError: "PowerManagementError",
		bmov1alpha1.ServicingError: "ServicingError",
	}[kind]
}
