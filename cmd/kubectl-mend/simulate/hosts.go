package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/partners/bmo"
)

// How long a host takes from when its BMC gets the order until its power has changed.
const (
	switchingOff = 30 * time.Second
	switchingOn  = 60 * time.Second
)

// bareMetal is a host, with the Bare Metal Operator and Ironic.
type bareMetal struct {
	model bmo.Host
	looks bmo.Looks
	// boots counts how often it was booted; booting says that its node is not Ready since the last one.
	boots   int
	booting bool
}

// next is when anything happens to the host by itself; zero if nothing does.
func (b *bareMetal) next() time.Time { return health.Earliest(b.looks.Next(), b.model.Next()) }

// asked reports whether a change of a host is requested. Else BMO would reconcile it once a minute, and do nothing.
func asked(h *bmov1alpha1.BareMetalHost) bool {
	reboot, _ := bmo.RebootAsked(h.Annotations, false)
	return reboot || h.Status.PoweredOn != h.Spec.Online
}

// hosts has the Bare Metal Operator reconcile the hosts of which a change is requested.
func (o *environment) hosts(ctx context.Context) {
	if len(o.kindsOnMetal()) == 0 {
		return
	}
	for _, h := range snapshot.All[bmov1alpha1.BareMetalHost](o.snapshot, "") {
		key := client.ObjectKeyFromObject(h)
		b := o.metal[key]
		if b == nil && !asked(h) {
			continue
		}
		if b == nil {
			b = o.newHost(h)
			o.metal[key] = b
		}
		o.operate(ctx, b, h)
	}
}

// newHost is a host as it was read. What is on its disk is not simulated, and a record does not have all that decides it: the
// provisioning state stays as it is.
func (o *environment) newHost(h *bmov1alpha1.BareMetalHost) *bareMetal {
	state := h.Status.Provisioning.State
	b := &bareMetal{model: bmo.Host{
		Waits: bmo.Real(), Times: bmo.Times{PowerOff: switchingOff, PowerOn: switchingOn}, NoConditions: len(h.Status.Conditions) == 0, Pinned: &state,
	}}
	b.model.Install(h.Status.PoweredOn, o.clock.Now())
	return b
}

// dueHosts makes happen what is due of hosts by itself.
func (o *environment) dueHosts(ctx context.Context) {
	now := o.clock.Now()
	var due []client.ObjectKey
	for key, b := range o.metal {
		if next := b.next(); !next.IsZero() && !next.After(now) {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range due {
		if h := snapshot.One[bmov1alpha1.BareMetalHost](o.snapshot, key); h != nil {
			o.operate(ctx, o.metal[key], h)
		} else {
			delete(o.metal, key)
		}
	}
}

// operate makes happen what is due of a host, and has the Bare Metal Operator reconcile it, if it would. A host whose power it
// does not manage, or cannot, stays as it is.
func (o *environment) operate(ctx context.Context, b *bareMetal, h *bmov1alpha1.BareMetalHost) {
	now := o.clock.Now()
	b.model.Advance(now)
	if is := host.PowerOf(h); is.Unmanaged == "" && !is.Fails && b.looks.Due(h, now) {
		next := h.DeepCopy()
		done := b.model.Reconcile(next, now)
		if !done.Object {
			next.ObjectMeta = h.ObjectMeta
		}
		if !done.Status {
			next.Status = h.Status
		}
		o.put(next)
		if h = next; done.Again || done.After < b.model.Waits.Poll { // else it would find the host as it is now
			b.looks.Note(done, now)
		}
	}
	o.follow(ctx, b, h)
}

// powerEvents are the events of changes of the power.
var powerEvents = map[bmo.Power]struct{ reason, text string }{
	bmo.Off:   {"PoweredOff", explain.HostOff},
	bmo.Reset: {"Rebooted", "The host is reset"},
	bmo.On:    {"PoweredOn", "The host is on"},
}

// follow does what a change of the power entails: what runs on the host stops with it, and boots with it.
func (o *environment) follow(ctx context.Context, b *bareMetal, h *bmov1alpha1.BareMetalHost) {
	key := client.ObjectKeyFromObject(h)
	for _, change := range b.model.Changes() {
		event := powerEvents[change.To]
		o.eventLog.assumed(refOf("BareMetalHost", h), event.reason, event.text)
		if b.booting = change.To != bmo.Off; b.booting {
			b.boots++
			boot := b.boots
			o.in(o.BootTakes, func(ctx context.Context) { o.boot(ctx, key, boot) })
		}
		if p, has := o.nodeOn(ctx, h); has && change.To != bmo.On {
			o.turn(p, NodeSilent)
		}
	}
}

// boot makes the node of a host Ready, unless the power has changed since, or a reboot does not help.
func (o *environment) boot(ctx context.Context, key client.ObjectKey, boot int) {
	b := o.metal[key]
	if b == nil || b.boots != boot || !b.booting {
		return
	}
	b.booting = false
	h := snapshot.One[bmov1alpha1.BareMetalHost](o.snapshot, key)
	if h == nil {
		return
	}
	if p, has := o.nodeOn(ctx, h); has && !(o.Hard && o.faults[p]) {
		delete(o.faults, p)
		o.ready(p, fmt.Sprintf("boot-%d-of-%s", boot, key.Name))
		o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again after the boot")
	}
}

// off reports whether the host of a node is off, or has not booted yet.
func (o *environment) off(ctx context.Context, p nodeKey) bool {
	for key, b := range o.metal {
		if b.model.Powered() && !b.booting {
			continue
		}
		if h := snapshot.One[bmov1alpha1.BareMetalHost](o.snapshot, key); h != nil {
			if at, has := o.nodeOn(ctx, h); has && at == p {
				return true
			}
		}
	}
	return false
}

// freeHost deprovisions the host of a machine that is deleted, which is off then.
func (o *environment) freeHost(ctx context.Context, m *clusterv1.Machine) {
	if len(o.kindsOnMetal()) == 0 && !o.countsHosts(m.Namespace) {
		return
	}
	found, err := o.bmhs().Of(ctx, m)
	o.note(client.IgnoreNotFound(err))
	if err != nil || found.Host == nil {
		return
	}
	h := found.Host.DeepCopy()
	h.Spec.ConsumerRef, h.Spec.Image, h.Spec.Online = nil, nil, h.Spec.DisablePowerOff
	h.Status.Provisioning.State, h.Status.PoweredOn = bmov1alpha1.StateAvailable, false
	delete(o.metal, client.ObjectKeyFromObject(h))
	o.put(h)
}

// nodeOn is the node of the machine on a host; false if there is none.
func (o *environment) nodeOn(ctx context.Context, h *bmov1alpha1.BareMetalHost) (nodeKey, bool) {
	m, err := o.bmhs().MachineOf(ctx, h)
	o.note(err)
	if m == nil {
		return nodeKey{}, false
	}
	return nodeKeyOf(m)
}

func (o *environment) bmhs() *host.Hosts { return &host.Hosts{Client: o.client, Live: o.client} }
