package simulate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/baremetal/host"
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
	// boots counts how often it was booted; booting says that its node is not back from the last one.
	boots   int
	booting bool
}

// next is when anything happens to the host by itself; zero if nothing does.
func (b *bareMetal) next() time.Time { return health.Earliest(b.looks.Next(), b.model.Next()) }

// asked reports whether anything is asked of a host that is not so. Else BMO would look at it once a minute, and do nothing.
func asked(h *bmov1alpha1.BareMetalHost) bool {
	reboot, _ := bmo.RebootAsked(h.Annotations, false)
	return reboot || h.Status.PoweredOn != h.Spec.Online
}

// hosts has the Bare Metal Operator look at the hosts of which anything is asked.
func (o *environment) hosts(ctx context.Context) error {
	if len(o.kindsOnMetal()) == 0 {
		return nil
	}
	list := &bmov1alpha1.BareMetalHostList{}
	if err := o.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list BareMetalHosts: %w", err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		key := client.ObjectKeyFromObject(h)
		b := o.metal[key]
		if b == nil && !asked(h) {
			continue
		}
		if b == nil {
			b = o.newHost(h)
			o.metal[key] = b
		}
		if err := o.operate(ctx, b, h); err != nil {
			return err
		}
	}
	return nil
}

// newHost is a host as it was read. What is on its disk is not simulated, and a record does not have all that decides it: the provisioning state
// stays as it is.
func (o *environment) newHost(h *bmov1alpha1.BareMetalHost) *bareMetal {
	state := h.Status.Provisioning.State
	b := &bareMetal{model: bmo.Host{
		Waits: bmo.Real(), Times: bmo.Times{PowerOff: switchingOff, PowerOn: switchingOn}, NoConditions: len(h.Status.Conditions) == 0, Pinned: &state,
	}}
	b.model.Install(h.Status.PoweredOn, o.clock.Now())
	return b
}

// dueHosts lets happen what is due of hosts by itself.
func (o *environment) dueHosts(ctx context.Context) error {
	now := o.clock.Now()
	var due []client.ObjectKey
	for key, b := range o.metal {
		if next := b.next(); !next.IsZero() && !next.After(now) {
			due = append(due, key)
		}
	}
	slices.SortFunc(due, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	for _, key := range due {
		h := &bmov1alpha1.BareMetalHost{}
		if err := o.client.Get(ctx, key, h, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
			delete(o.metal, key)
			continue
		} else if err != nil {
			return fmt.Errorf("read BareMetalHost %s: %w", key, err)
		}
		if err := o.operate(ctx, o.metal[key], h); err != nil {
			return err
		}
	}
	return nil
}

// operate lets happen what is due of a host, and has the Bare Metal Operator look at it, if it would. A host whose
// power it does not manage, or cannot, stays as it is.
func (o *environment) operate(ctx context.Context, b *bareMetal, h *bmov1alpha1.BareMetalHost) error {
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
		if err := o.state.Put(next); err != nil {
			return fmt.Errorf("change BareMetalHost %s: %w", h.Name, err)
		}
		if h = next; done.Again || done.After < b.model.Waits.Poll { // else it would find the host as it is now
			b.looks.Note(done, now)
		}
	}
	return o.follow(ctx, b, h)
}

// follow does what comes of a change of the power: what runs on the host stops with it, and boots with it.
func (o *environment) follow(ctx context.Context, b *bareMetal, h *bmov1alpha1.BareMetalHost) error {
	about, key := explain.Ref{Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}, client.ObjectKeyFromObject(h)
	for _, change := range b.model.Changes() {
		switch change.To {
		case bmo.Off:
			o.eventLog.assumed(about, "PoweredOff", "The host is off")
		case bmo.Reset:
			o.eventLog.assumed(about, "Rebooted", "The host is reset")
		default:
			o.eventLog.assumed(about, "PoweredOn", "The host is on")
		}
		if change.To != bmo.Off {
			b.boots++
			boot := b.boots
			o.in(o.BootTakes, func(ctx context.Context) error { return o.boot(ctx, key, boot) })
		}
		b.booting = change.To != bmo.Off
		if change.To == bmo.On {
			continue
		}
		if p, has, err := o.nodeOn(ctx, h); err != nil {
			return err
		} else if has {
			if err := o.silence(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// boot brings the node of a host back, unless the host has been switched since, or a reboot does not help.
func (o *environment) boot(ctx context.Context, key client.ObjectKey, boot int) error {
	b := o.metal[key]
	if b == nil || b.boots != boot || !b.booting {
		return nil
	}
	b.booting = false
	h := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, key, h); err != nil {
		return client.IgnoreNotFound(err)
	}
	p, has, err := o.nodeOn(ctx, h)
	if err != nil || !has || o.Hard && o.faults[p] {
		return err
	}
	delete(o.faults, p)
	if err := o.ready(p, fmt.Sprintf("boot-%d-of-%s", boot, key.Name)); err != nil {
		return err
	}
	o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again after the boot")
	return nil
}

// off reports whether the host of a node is off, or has not booted yet.
func (o *environment) off(ctx context.Context, p nodeKey) (bool, error) {
	for key, b := range o.metal {
		if b.model.Powered() && !b.booting {
			continue
		}
		h := &bmov1alpha1.BareMetalHost{}
		if err := o.client.Get(ctx, key, h, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return false, fmt.Errorf("read BareMetalHost %s: %w", key, err)
		}
		if at, has, err := o.nodeOn(ctx, h); err != nil || has && at == p {
			return has && at == p, err
		}
	}
	return false, nil
}

// freeHost gives up the host of a machine that is deleted, which is off then.
func (o *environment) freeHost(ctx context.Context, m *clusterv1.Machine) error {
	if len(o.kindsOnMetal()) == 0 {
		return nil
	}
	found, err := o.bmhs().Of(ctx, m)
	if err != nil || found.Host == nil {
		return client.IgnoreNotFound(err)
	}
	h := found.Host.DeepCopy()
	h.Spec.ConsumerRef, h.Spec.Image, h.Spec.Online = nil, nil, h.Spec.DisablePowerOff
	h.Status.Provisioning.State, h.Status.PoweredOn = bmov1alpha1.StateAvailable, false
	delete(o.metal, client.ObjectKeyFromObject(h))
	if err := o.state.Put(h); err != nil {
		return fmt.Errorf("free BareMetalHost %s: %w", h.Name, err)
	}
	return nil
}

// nodeOn is the node of the machine on a host; false if there is none.
func (o *environment) nodeOn(ctx context.Context, h *bmov1alpha1.BareMetalHost) (nodeKey, bool, error) {
	m, err := o.bmhs().MachineOf(ctx, h)
	if err != nil {
		return nodeKey{}, false, fmt.Errorf("find the machine on BareMetalHost %s: %w", h.Name, err)
	}
	if m == nil {
		return nodeKey{}, false, nil
	}
	p, has := nodeKeyOf(m)
	return p, has, nil
}

func (o *environment) bmhs() *host.Hosts { return &host.Hosts{Client: o.client, Live: o.client} }
