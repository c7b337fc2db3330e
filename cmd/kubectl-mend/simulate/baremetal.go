package simulate

import (
	"context"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/explain"
)

// How long a host takes from when BMO is asked until its power is seen to have changed. BMO looks at it once a minute, and at once when asked.
const (
	switchingOff = 30 * time.Second
	switchingOn  = 60 * time.Second
)

// power is what is known of a host besides what it says of itself.
type power struct {
	// switching says that it is being switched, boots counts how often it was; booting says that its node is not back from the last one.
	switching, booting bool
	boots              int
}

// bareMetal makes hosts obey their annotations, as BMO does.
func (o *outside) bareMetal(ctx context.Context) error {
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
		if o.power[key] == nil {
			o.power[key] = &power{}
		}
		is := host.PowerOf(h)
		if is.Deaf != "" || is.Fails || o.power[key].switching {
			continue
		}
		switch off := o.wantedOff(h); {
		case off && is.On:
			o.power[key].switching = true
			o.in(switchingOff, func(ctx context.Context) error { return o.switchHost(ctx, key, false) })
		case !off && !is.On:
			o.power[key].switching = true
			o.in(switchingOn, func(ctx context.Context) error { return o.switchHost(ctx, key, true) })
		}
	}
	return nil
}

// wantedOff reports whether anybody wants a host off, be it for a moment.
func (o *outside) wantedOff(h *bmov1alpha1.BareMetalHost) bool {
	if !h.Spec.Online {
		return true
	}
	for key := range h.Annotations {
		if key == infrav1.RebootAnnotation && h.Status.PoweredOn || strings.HasPrefix(key, infrav1.RebootAnnotation+"/") {
			return true
		}
	}
	return false
}

// switchHost switches a host, if that is still wanted.
func (o *outside) switchHost(ctx context.Context, key client.ObjectKey, on bool) error {
	is := o.power[key]
	is.switching = false
	h := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, key, h); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read BareMetalHost %s: %w", key, err)
	}
	if o.wantedOff(h) == on || host.PowerOf(h).Deaf != "" {
		return nil
	}
	h.Status.PoweredOn = on
	if err := o.client.Status().Update(ctx, h); err != nil {
		return fmt.Errorf("switch BareMetalHost %s: %w", key, err)
	}
	about := explain.Ref{Kind: "BareMetalHost", Namespace: h.Namespace, Name: h.Name}
	if !on {
		o.eventLog.assumed(about, "PoweredOff", "The host is off")
		return o.wentOff(ctx, h)
	}
	is.boots++
	is.booting = true
	boot := is.boots
	o.in(o.BootTakes, func(ctx context.Context) error { return o.boot(ctx, key, boot) })
	o.eventLog.assumed(about, "PoweredOn", "The host is on")
	return nil
}

// wentOff makes the node of a host silent, and takes away what asked for no more than that it be off once.
func (o *outside) wentOff(ctx context.Context, h *bmov1alpha1.BareMetalHost) error {
	if _, once := h.Annotations[infrav1.RebootAnnotation]; once {
		delete(h.Annotations, infrav1.RebootAnnotation)
		if err := o.client.Update(ctx, h); err != nil {
			return fmt.Errorf("answer BareMetalHost %s: %w", h.Name, err)
		}
	}
	o.power[client.ObjectKeyFromObject(h)].booting = false
	m, err := o.machineOn(ctx, h)
	if err != nil || m == nil {
		return err
	}
	if p, has := placeOf(m); has {
		return o.silence(ctx, p)
	}
	return nil
}

// boot brings the node of a host back, unless the host has been switched off since, or a reboot does not help.
func (o *outside) boot(ctx context.Context, key client.ObjectKey, boot int) error {
	is := o.power[key]
	if is.boots != boot || !is.booting {
		return nil
	}
	is.booting = false
	h := &bmov1alpha1.BareMetalHost{}
	if err := o.client.Get(ctx, key, h); err != nil {
		return client.IgnoreNotFound(err)
	}
	m, err := o.machineOn(ctx, h)
	if err != nil || m == nil {
		return err
	}
	p, has := placeOf(m)
	if !has || o.Hard && o.faults[p] {
		return nil
	}
	delete(o.faults, p)
	if err := o.ready(ctx, p, fmt.Sprintf("boot-%d-of-%s", boot, key.Name)); err != nil {
		return err
	}
	o.eventLog.assumed(p.ref(), "NodeRecovers", "The node is Ready again after the boot")
	return nil
}

// off reports whether the host of a node is off, or has not booted yet.
func (o *outside) off(ctx context.Context, p place) (bool, error) {
	if len(o.kindsOnMetal()) == 0 {
		return false, nil
	}
	list := &bmov1alpha1.BareMetalHostList{}
	if err := o.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list BareMetalHosts: %w", err)
	}
	for i := range list.Items {
		h := &list.Items[i]
		is := o.power[client.ObjectKeyFromObject(h)]
		if is == nil || h.Status.PoweredOn && !is.booting {
			continue
		}
		m, err := o.machineOn(ctx, h)
		if err != nil {
			return false, err
		}
		if m == nil {
			continue
		}
		if at, has := placeOf(m); has && at == p {
			return true, nil
		}
	}
	return false, nil
}

// hostOf is the host of a machine, shared; nil if it has none.
func (o *outside) hostOf(ctx context.Context, m *clusterv1.Machine) (*bmov1alpha1.BareMetalHost, error) {
	if len(o.kindsOnMetal()) == 0 {
		return nil, nil
	}
	found, err := o.bmhs().Of(ctx, m)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return found.Host, nil
}

// machineOn is the machine on a host; nil if there is none.
func (o *outside) machineOn(ctx context.Context, h *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, error) {
	m, err := o.bmhs().MachineOf(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("find the machine on BareMetalHost %s: %w", h.Name, err)
	}
	return m, nil
}

func (o *outside) bmhs() *host.Hosts { return &host.Hosts{Client: o.client, Live: o.client} }
