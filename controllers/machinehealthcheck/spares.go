package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// Hosts begins to watch BareMetalHosts when the first check waits for one. (package remediationrequest)
type Hosts interface {
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	Notify(state remediationrequest.Watcher, h handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request])
}

var hostKind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// The rights to read hosts and Metal3Machines are those of package host, in the role of the feature that power-cycles hosts. Without that
// role a check that waits for a spare host knows none, and waits until its deadline.
const (
	// unreadAgain is how soon hosts are tried to be read again that could not be. Nothing tells when they can.
	unreadAgain = time.Minute
	// readers is how many Metal3Machines are read at the same time.
	readers = 8
	// claimLasts is how long the replacement of a machine that is gone is waited for, where its owner makes it only then.
	// (KubeadmControlPlane)
	claimLasts = 10 * time.Minute
	// claimShown is how long the caches may not show that an owner was asked.
	claimShown = 30 * time.Second
)

// errNoHosts is what a reader says that was not given any way to read hosts.
var errNoHosts = errors.New("this reader does not read hosts")

// spares is what the checks of this process know of each other that wait for spare hosts. A process that knows nothing finds the same in
// what is stored, but for the moment between a write and the event of it.
type spares struct {
	mu sync.Mutex
	// waiting are the checks a remediation of which waits for a spare host, by namespace.
	waiting map[string]map[string]bool
	// claims are the remediations that were begun, by the UIDs of the machines, and made is how many there ever were in a namespace.
	claims map[types.UID]*claim
	made   map[string]int
}

// claim is a remediation that was begun and whose replacement may not be observed yet.
type claim struct {
	namespace string
	owner     types.UID
	at        time.Time
	wants     host.Wants
	gone      time.Time // when the machine was first found to be gone; zero before
}

// wait notes whether check waits for a spare host. It is noted before the hosts are read: one that is freed in between enqueues the check.
func (s *spares) wait(check types.NamespacedName, waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := s.waiting[check.Namespace]
	switch {
	case waits && waiting == nil:
		if s.waiting == nil {
			s.waiting = map[string]map[string]bool{}
		}
		s.waiting[check.Namespace] = map[string]bool{check.Name: true}
	case waits:
		waiting[check.Name] = true
	default:
		delete(waiting, check.Name)
	}
}

// waitingIn are the checks of a namespace that wait for a spare host.
func (s *spares) waitingIn(namespace string) []reconcile.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	checks := make([]reconcile.Request, 0, len(s.waiting[namespace]))
	for name := range s.waiting[namespace] {
		checks = append(checks, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	return checks
}

// claim claims spare hosts for machines whose remediation begins, unless another check has claimed one in the namespace since state was
// observed: then nothing is claimed, and the hosts have to be read again.
func (s *spares) claim(state *observed, plan *machines.Plan) bool {
	begins := map[*machines.Target]bool{}
	for _, i := range plan.Open {
		if d := plan.Decisions[i]; d.Starts() && d.Spare != nil {
			begins[state.Targets[i]] = true
		}
	}
	if len(begins) == 0 {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made[state.Check.Namespace] != state.spares.made {
		return false
	}
	if s.claims == nil {
		s.claims, s.made = map[types.UID]*claim{}, map[string]int{}
	}
	s.made[state.Check.Namespace]++
	for t := range begins {
		is := &claim{namespace: state.Check.Namespace, at: state.Now, wants: state.spares.wants[t.Machine.UID]}
		if owner := metav1.GetControllerOf(t.Machine); owner != nil {
			is.owner = owner.UID
		}
		s.claims[t.Machine.UID] = is
	}
	return true
}

// madeIn is how many claims there ever were in a namespace.
func (s *spares) madeIn(namespace string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[namespace]
}

// claimed are the claims in a namespace that count beside what is observed of its machines. Those that are over are forgotten.
func (s *spares) claimed(namespace string, there map[types.UID]*clusterv1.Machine, now time.Time) map[types.UID]claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[types.UID]claim{}
	for id, is := range s.claims {
		if is.namespace != namespace {
			continue
		}
		m := there[id]
		if m == nil && is.gone.IsZero() {
			is.gone = now
		}
		switch {
		case m != nil && machines.OwnerOf(m) != machines.NotAsked:
			continue // it is observed
		case m != nil && !now.Before(is.at.Add(claimShown)), m == nil && !now.Before(is.gone.Add(claimLasts)):
			delete(s.claims, id)
			continue
		}
		all[id] = *is
	}
	return all
}

// observedSpares is what a reconcile has read of spare hosts.
type observedSpares struct {
	made  int                      // as spares.made was before the hosts were read
	wants map[types.UID]host.Wants // of the machines that were read
}

// observeSpares reads which hosts the replacements of the machines that wait could take, and which of those others will take.
func (r *Reconciler) observeSpares(ctx context.Context, state *observed, plan *machines.Plan) {
	state.Spares, state.Read.Spares = machines.Spares{}, true
	state.spares = observedSpares{wants: map[types.UID]host.Wants{}, made: r.spares.madeIn(state.Check.Namespace)}
	if !state.Explains {
		r.spares.wait(client.ObjectKeyFromObject(state.Check), true)
	}
	inNamespace, hosts, err := r.machinesAndHosts(ctx, state.Check.Namespace)
	if err != nil {
		state.Spares.Unread, state.Spares.Reported = err.Error(), state.Explains && errors.Is(err, explain.ErrUnread)
		if errors.Is(err, errListing) {
			state.lookAgainIn(syncingRequests)
		} else {
			state.lookAgainIn(unreadAgain)
		}
		return
	}
	there := make(map[types.UID]*clusterv1.Machine, len(inNamespace))
	for _, machine := range inNamespace {
		there[machine.UID] = machine
	}
	claims := r.spares.claimed(state.Check.Namespace, there, state.Now)
	for _, target := range state.Targets {
		delete(claims, target.Machine.UID) // its write failed: else the check would wait for the cache
	}
	expecting := expected(inNamespace, hosts, claims)
	var own []*clusterv1.Machine
	for _, i := range plan.Open {
		if plan.Decisions[i].Spare != nil {
			own = append(own, state.Targets[i].Machine)
		}
	}
	state.Spares.Fits, state.Spares.Failed = map[types.UID][]string{}, map[types.UID]string{}
	r.readWants(ctx, state, own, expecting)
	for _, machine := range own {
		if wants, read := state.spares.wants[machine.UID]; read {
			state.Spares.Fits[machine.UID] = wants.Fitting(hosts)
		}
	}
	for _, waiting := range expecting {
		state.Spares.Expected = append(state.Spares.Expected, waiting.wants.Fitting(hosts))
	}
	for _, found := range hosts {
		if host.Free(found) {
			state.Spares.Free++
		}
	}
}

// machinesAndHosts are those of a namespace. They are shared: read only.
func (r *Reconciler) machinesAndHosts(ctx context.Context, namespace string) ([]*clusterv1.Machine, []*bmov1alpha1.BareMetalHost, error) {
	if r.Hosts == nil {
		return nil, nil, errNoHosts
	}
	if ready, err := r.Hosts.Ready(ctx, hostKind); err != nil {
		return nil, nil, err
	} else if !ready {
		return nil, nil, errListing
	}
	list, hosts := &clusterv1.MachineList{}, &bmov1alpha1.BareMetalHostList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the machines in %s: %w", namespace, err)
	}
	if err := r.Client.List(ctx, hosts, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list the hosts in %s: %w", namespace, err)
	}
	inNamespace := make([]*clusterv1.Machine, len(list.Items))
	for i := range list.Items {
		inNamespace[i] = &list.Items[i]
	}
	free := make([]*bmov1alpha1.BareMetalHost, len(hosts.Items))
	for i := range hosts.Items {
		free[i] = &hosts.Items[i]
	}
	return inNamespace, free, nil
}

// expecting is a machine that will be put on a host: one that has none yet, or the replacement of one.
type expecting struct {
	machine *clusterv1.Machine // the one whose Metal3Machine says what it wants; nil if that is known
	wants   host.Wants
}

// expected are the machines that will take hosts: those on bare metal without one, and the replacements that owners were asked for and have
// not made.
func expected(inNamespace []*clusterv1.Machine, hosts []*bmov1alpha1.BareMetalHost, claims map[types.UID]claim) []expecting {
	onto := make(map[string]bool, len(hosts))
	for _, bmh := range hosts {
		onto[host.Consumer(bmh)] = true
	}
	var expected []expecting
	siblings := map[types.UID][]*clusterv1.Machine{}
	for _, machine := range inNamespace {
		if !machines.OnHost(machine) {
			continue
		}
		if owner := metav1.GetControllerOf(machine); owner != nil {
			siblings[owner.UID] = append(siblings[owner.UID], machine)
		}
		_, claimed := claims[machine.UID]
		if !machines.Deleting(machine) && !claimed && !asked(machine) && !onto[machine.Spec.InfrastructureRef.Name] {
			expected = append(expected, expecting{machine: machine, wants: host.AnyHost})
		}
	}
	for owner, owned := range siblings {
		expected = append(expected, replacements(owned, claims, owner)...)
	}
	for _, c := range claims { // of owners that have no machine left, until they make one
		if _, known := siblings[c.owner]; !known {
			expected = append(expected, expecting{wants: c.wants})
		}
	}
	return expected
}

// asked reports whether the owner of machine was asked to replace it and does not refuse to.
func asked(machine *clusterv1.Machine) bool { return machines.OwnerOf(machine) == machines.Asked }

// replacements are the machines that an owner will make for those that it was asked to replace. Claims of machines that are gone count too.
func replacements(owned []*clusterv1.Machine, claims map[types.UID]claim, owner types.UID) []expecting {
	facts, wanted := make([]machines.Sibling, 0, len(owned)), make([]expecting, 0, len(owned))
	there := make(map[types.UID]bool, len(owned))
	for _, machine := range owned {
		there[machine.UID] = true
		sibling := machines.Sibling{Created: machine.CreationTimestamp.Time, Deleting: machines.Deleting(machine)}
		wants := expecting{machine: machine, wants: host.AnyHost}
		if c, claimed := claims[machine.UID]; claimed {
			sibling.Asked, wants = c.at, expecting{wants: c.wants}
		} else if asked(machine) {
			sibling.Asked = machines.ConditionOf(machine, clusterv1.MachineOwnerRemediatedCondition).LastTransitionTime.Time
		}
		facts, wanted = append(facts, sibling), append(wanted, wants)
	}
	for id, c := range claims {
		if c.owner == owner && !there[id] {
			facts, wanted = append(facts, machines.Sibling{Created: c.at, Asked: c.at, Deleting: true}), append(wanted, expecting{wants: c.wants})
		}
	}
	toCome := machines.ToCome(facts)
	sibling := make([]expecting, 0, len(toCome))
	for _, i := range toCome {
		sibling = append(sibling, wanted[i])
	}
	return sibling
}

// readWants reads what machines want of their hosts. What cannot be read of one of the check's own leaves it unknown; another one is taken
// to want any host.
func (r *Reconciler) readWants(ctx context.Context, state *observed, own []*clusterv1.Machine, others []expecting) {
	reader := r.Live
	if reader == nil {
		reader = r.Client
	}
	wants, errs := make([]host.Wants, len(own)), make([]error, len(own))
	var work errgroup.Group
	work.SetLimit(readers)
	for i, machine := range own {
		work.Go(func() error {
			wants[i], errs[i] = host.WantsOf(ctx, reader, r.Client, machine)
			return nil
		})
	}
	for i := range others {
		if machine := others[i].machine; machine != nil {
			work.Go(func() error {
				if wanted, err := host.WantsOf(ctx, reader, r.Client, machine); err == nil {
					others[i].wants = wanted
				}
				return nil
			})
		}
	}
	_ = work.Wait() // errors are in errs
	for i, machine := range own {
		if errs[i] == nil {
			state.spares.wants[machine.UID] = wants[i]
		} else {
			state.Spares.Failed[machine.UID] = errs[i].Error()
			state.lookAgainIn(unreadAgain)
		}
	}
}

// checksOfHost maps a host to the checks that wait for one.
func (r *Reconciler) checksOfHost(_ context.Context, h client.Object) []reconcile.Request {
	return r.spares.waitingIn(h.GetNamespace())
}

// checksOfMachineOrSpare maps a machine to its checks, and one on bare metal to those too that wait for a spare host: it may need none any
// more that it was counted for.
func (r *Reconciler) checksOfMachineOrSpare(ctx context.Context, machine client.Object) []reconcile.Request {
	checks := r.checksOfMachine(ctx, machine)
	if m, ok := machine.(*clusterv1.Machine); ok && machines.OnHost(m) {
		for _, waiting := range r.spares.waitingIn(m.Namespace) {
			if !slices.Contains(checks, waiting) {
				checks = append(checks, waiting)
			}
		}
	}
	return checks
}

// fitting passes to its handler changes of hosts that decide which machines could be put on them. BMO writes many others.
type fitting struct {
	handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request]
}

// Update implements handler.TypedEventHandler.
func (f fitting) Update(ctx context.Context, e event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost], q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	if !host.FitsTheSame(e.ObjectOld, e.ObjectNew) {
		f.TypedEventHandler.Update(ctx, e, q)
	}
}
