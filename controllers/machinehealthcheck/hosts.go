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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/spare"
	"github.com/kubemend/kubemend/controllers/enqueue"
	"github.com/kubemend/kubemend/controllers/explain"
)

const (
	// hostsWithin is how long a reconcile waits for the hosts of its machines.
	hostsWithin = 5 * time.Second
	// hostAgain is how soon a host that blocks a remediation is read again: no event says when the block ends.
	hostAgain = time.Minute
)

// observeHosts reads the hosts of the machines whose decision needs one. If kubemend has no right to read hosts, or their kinds are not
// installed, the owner is asked without it. After another error the machine waits ten minutes at most, because no owner should replace a
// machine on an externally provisioned host.
func (r *Reconciler) observeHosts(ctx context.Context, state *observed, plan *Plan) {
	asking, done := context.WithTimeout(ctx, hostsWithin)
	defer done()
	for _, decision := range plan.Open {
		target := decision.Target
		if !decision.NeedsHost(&state.Facts) {
			continue
		}
		target.Host = &Host{}
		switch found, err := r.Metal.Of(asking, target.Machine); {
		case errors.Is(err, explain.ErrUnread), apierrors.IsForbidden(err), meta.IsNoMatchError(err):
		case err != nil:
			target.Host.UnreadUntil = state.unreadUntil(hostKind.GroupKind(), err)
		default:
			if target.Host.Paused = found.Paused; found.Is == powercycle.HostOurs {
				target.Host.Name, target.Host.External, target.Host.Serviced = found.Host.Name, found.Host.External, found.Host.Serviced
			}
			if target.Host.External || target.Host.Serviced || target.Host.Paused {
				state.lookAgainIn(hostAgain)
			}
		}
	}
}

// HostWatch starts to watch BareMetalHosts when a check first needs them.
type HostWatch interface {
	Ready(ctx context.Context, kind schema.GroupVersionKind) (bool, error)
	Source(h handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request]) source.Source
}

var hostKind = bmov1alpha1.GroupVersion.WithKind("BareMetalHost")

// The rights to read hosts and Metal3Machines are in package host, in the role for power cycles of hosts. Without that role, a check that
// waits for a spare host finds none and waits until its deadline.
const (
	// unreadAgain is how soon hosts that could not be read are read again: no event says when they can be.
	unreadAgain = time.Minute
	// begunAgain is how soon hosts are read again if remediations of other checks, which may fail to begin, count on them.
	begunAgain = time.Second
	// readers is how many Metal3Machines are read at the same time.
	readers = 8
)

// waitingIn returns the checks of a namespace with a remediation that waits for a spare host.
func (r *Reconciler) waitingIn(namespace string) []reconcile.Request {
	var checks []reconcile.Request
	r.spares.Range(func(key, _ any) bool {
		if check := key.(types.NamespacedName); check.Namespace == namespace {
			checks = append(checks, reconcile.Request{NamespacedName: check})
		}
		return true
	})
	return checks
}

// observeSpares reads which hosts the replacements of the waiting machines could take, and which hosts other machines could take first.
func (r *Reconciler) observeSpares(ctx context.Context, state *observed, plan *Plan) {
	state.Spares, state.Read.Spares = Spares{Fits: map[types.UID][]string{}, Failed: map[types.UID]string{}}, true
	key := client.ObjectKeyFromObject(state.Check)
	r.spares.Store(key, true) // before the hosts are read, so that a host released meanwhile enqueues the check
	places, begun := r.Ledger.Given(placesOf(key))
	if state.given = places; len(begun) > 0 {
		state.lookAgainIn(begunAgain)
	}
	list := &clusterv1.MachineList{}
	hosts, err := r.hostsIn(ctx, state.Check.Namespace)
	if err == nil {
		err = r.Client.List(ctx, list, client.InNamespace(state.Check.Namespace), client.UnsafeDisableDeepCopy)
	}
	if err != nil {
		state.Spares.Unread = err.Error()
		if errors.Is(err, errListing) {
			state.lookAgainIn(syncingRequests)
		} else {
			state.lookAgainIn(unreadAgain)
		}
		return
	}
	for _, found := range hosts {
		if spare.Free(found) {
			state.Spares.Free++
		}
	}
	var own []*clusterv1.Machine
	for _, decision := range plan.Open {
		if decision.Spare != nil {
			own = append(own, decision.Target.Machine)
		}
	}
	others := expected(pointers(list.Items), hosts, begun)
	wants, errs := r.readWants(ctx, slices.Concat(own, others))
	for i, machine := range own {
		if errs[i] == nil {
			state.Spares.Fits[machine.UID] = wants[i].Fitting(hosts)
		} else {
			state.Spares.Failed[machine.UID] = errs[i].Error()
			state.lookAgainIn(unreadAgain)
		}
	}
	for _, wanted := range wants[len(own):] { // zero Wants fit any host
		state.Spares.Expected = append(state.Spares.Expected, wanted.Fitting(hosts))
	}
}

// hostsIn returns the hosts of a namespace. They are shared: read only.
func (r *Reconciler) hostsIn(ctx context.Context, namespace string) ([]*bmov1alpha1.BareMetalHost, error) {
	if ready, err := r.Hosts.Ready(ctx, hostKind); err != nil {
		return nil, err
	} else if !ready {
		return nil, errListing
	}
	list := &bmov1alpha1.BareMetalHostList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the hosts in %s: %w", namespace, err)
	}
	return pointers(list.Items), nil
}

// hostsByMachine has the hosts of machines as the watch of hosts reports them, by the namespace and name of the Metal3Machine.
type hostsByMachine struct{ sync.Map }

func (hosts *hostsByMachine) note(bmh *bmov1alpha1.BareMetalHost) { hosts.Store(consumerOf(bmh), bmh) }

// drop forgets bmh, unless another host is reported for its machine by now.
func (hosts *hostsByMachine) drop(bmh *bmov1alpha1.BareMetalHost) {
	if known, _ := hosts.Load(consumerOf(bmh)); known != nil && known.(*bmov1alpha1.BareMetalHost).Name == bmh.Name {
		hosts.CompareAndDelete(consumerOf(bmh), known)
	}
}

// of returns the host of machine; an empty one if it has none, or none was reported.
func (hosts *hostsByMachine) of(machine *clusterv1.Machine) *bmov1alpha1.BareMetalHost {
	known, _ := hosts.Load(client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.InfrastructureRef.Name})
	if bmh, reported := known.(*bmov1alpha1.BareMetalHost); reported && OnHost(machine) {
		return bmh
	}
	return &noHost
}

var noHost bmov1alpha1.BareMetalHost // one for all machines: read only

func consumerOf(bmh *bmov1alpha1.BareMetalHost) client.ObjectKey {
	return client.ObjectKey{Namespace: bmh.Namespace, Name: spare.Consumer(bmh)}
}

// expected returns the machines that stand for those that will take hosts: machines on bare metal without a host, and machines that an
// owner was asked to replace and has not replaced yet. It misses owners that have lost a machine and not created another one.
func expected(inNamespace []*clusterv1.Machine, hosts []*bmov1alpha1.BareMetalHost, begun map[types.UID]time.Time) []*clusterv1.Machine {
	onto := make(map[string]bool, len(hosts))
	for _, bmh := range hosts {
		onto[spare.Consumer(bmh)] = true
	}
	var expected []*clusterv1.Machine
	siblings := map[types.UID][]Sibling{}
	for _, machine := range inNamespace {
		if !OnHost(machine) {
			continue
		}
		sibling := Sibling{machine, begun[machine.UID]}
		if OwnerOf(machine) == Asked {
			sibling.Asked = Since(ConditionOf(machine, OwnerRemediated))
		}
		if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
			siblings[owner.UID] = append(siblings[owner.UID], sibling)
		}
		if !Deleting(machine) && sibling.Asked.IsZero() && !onto[machine.Spec.InfrastructureRef.Name] {
			expected = append(expected, machine)
		}
	}
	for _, ofOwner := range siblings {
		expected = append(expected, ToCome(ofOwner)...)
	}
	return expected
}

func (r *Reconciler) readWants(ctx context.Context, list []*clusterv1.Machine) ([]spare.Wants, []error) {
	reader := r.Live
	if reader == nil {
		reader = r.Client
	}
	wants, errs := make([]spare.Wants, len(list)), make([]error, len(list))
	var work errgroup.Group
	work.SetLimit(readers)
	for i, machine := range list {
		work.Go(func() error {
			wants[i], errs[i] = host.WantsOf(ctx, reader, r.Client, machine)
			return nil
		})
	}
	_ = work.Wait() // errors are in errs
	return wants, errs
}

// checksOfHost returns the checks that wait for a spare host, or all of the namespace if a policy groups machines by labels of hosts.
func (r *Reconciler) checksOfHost(ctx context.Context, bmh client.Object) []reconcile.Request {
	if r.Ledger.Active(ctx) && r.Ledger.OfHosts() {
		return r.checks(ctx, anyCheck, client.InNamespace(bmh.GetNamespace()))
	}
	return r.waitingIn(bmh.GetNamespace())
}

// checksOfMachineOrSpare returns the checks of a machine. For a machine on bare metal it adds the checks that wait for a spare host, since
// the machine may not need a host any more.
func (r *Reconciler) checksOfMachineOrSpare(ctx context.Context, obj client.Object) []reconcile.Request {
	checks := r.checksOfMachine(ctx, obj)
	if OnHost(obj.(*clusterv1.Machine)) {
		for _, waiting := range r.waitingIn(obj.GetNamespace()) {
			if !slices.Contains(checks, waiting) {
				checks = append(checks, waiting)
			}
		}
	}
	return checks
}

// hostEvents notes the hosts of machines, and passes on only the changes that decide which machines fit a host. BMO makes many others.
func (r *Reconciler) hostEvents() handler.TypedEventHandler[*bmov1alpha1.BareMetalHost, reconcile.Request] {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	passOn := enqueue.FirstAtOnce[*bmov1alpha1.BareMetalHost](&r.merging, r.checksOfHost)
	return handler.TypedFuncs[*bmov1alpha1.BareMetalHost, reconcile.Request]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[*bmov1alpha1.BareMetalHost], q queue) {
			r.hosts.note(e.Object)
			passOn.Create(ctx, e, q)
		},
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[*bmov1alpha1.BareMetalHost], q queue) {
			r.hosts.note(e.ObjectNew)
			if consumerOf(e.ObjectOld) != consumerOf(e.ObjectNew) {
				r.hosts.drop(e.ObjectOld)
			}
			if !spare.FitsTheSame(e.ObjectOld, e.ObjectNew) {
				passOn.Update(ctx, e, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[*bmov1alpha1.BareMetalHost], q queue) {
			r.hosts.drop(e.Object)
			passOn.Delete(ctx, e, q)
		},
	}
}
