package simulator

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// advance is one pass over a host that is not paused and not being deleted. It changes what BMO says of the host, and
// deletes the annotations that BMO deletes.
func (h *Host) advance(bmh *bmov1alpha1.BareMetalHost, now time.Time) outlook {
	h.mu.Lock()
	defer h.mu.Unlock()
	if is, _ := detached(bmh); is {
		leaveAlone(bmh)
		return outlook{}
	}
	if status := bmh.Status.OperationalStatus; status == "" || status == bmov1alpha1.OperationalStatusDetached {
		bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
	}
	for {
		next, wait := h.nextState(bmh, now)
		if next == bmh.Status.Provisioning.State {
			if wait != (outlook{}) {
				return wait
			}
			break
		}
		bmh.Status.Provisioning.State = next
	}
	switch bmh.Status.Provisioning.State {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateAvailable:
		return h.managePower(bmh)
	default:
		return outlook{}
	}
}

// nextState is the provisioning state that comes next, or the same one, with how long it still lasts if time ends it.
func (h *Host) nextState(bmh *bmov1alpha1.BareMetalHost, now time.Time) (bmov1alpha1.ProvisioningState, outlook) {
	state := bmh.Status.Provisioning.State
	if h.pinned != nil {
		return *h.pinned, outlook{}
	}
	if state != h.state {
		h.state, h.since = state, now
	}
	switch state {
	case bmov1alpha1.StateInspecting:
		return h.work(bmh, h.times.Inspecting, bmov1alpha1.StatePreparing, now)
	case bmov1alpha1.StateProvisioning:
		return h.deploy(bmh, now)
	case bmov1alpha1.StateDeprovisioning:
		return h.undeploy(bmh, now)
	default:
		return stateAsked(bmh), outlook{}
	}
}

// stateAsked is the state that comes next after one in which nothing is being done.
func stateAsked(bmh *bmov1alpha1.BareMetalHost) bmov1alpha1.ProvisioningState {
	state, external := bmh.Status.Provisioning.State, bmh.Spec.ExternallyProvisioned
	switch state {
	case bmov1alpha1.StateNone:
		return bmov1alpha1.StateRegistering
	case bmov1alpha1.StateRegistering, bmov1alpha1.StateExternallyProvisioned:
		if external {
			return bmov1alpha1.StateExternallyProvisioned
		}
		return bmov1alpha1.StateInspecting
	case bmov1alpha1.StatePreparing:
		return bmov1alpha1.StateAvailable
	case bmov1alpha1.StateReady, bmov1alpha1.StateAvailable:
		if external {
			return bmov1alpha1.StateExternallyProvisioned
		}
		if bmh.NeedsProvisioning() {
			return bmov1alpha1.StateProvisioning
		}
	case bmov1alpha1.StateProvisioned:
		if unwanted(bmh) {
			return bmov1alpha1.StateDeprovisioning
		}
	}
	return state
}

// unwanted tells whether what is on the host's disk shall go.
func unwanted(bmh *bmov1alpha1.BareMetalHost) bool {
	if bmh.Status.Provisioning.Image.URL == "" {
		return false // pinned to this state: there never was anything
	}
	return bmh.Spec.Image == nil || bmh.Spec.Image.URL != bmh.Status.Provisioning.Image.URL
}

// work is a state in which a ramdisk is at work: it takes its time, begins anew if a reboot is forced, and takes
// reboot annotations away.
func (h *Host) work(
	bmh *bmov1alpha1.BareMetalHost, takes time.Duration, then bmov1alpha1.ProvisioningState, now time.Time,
) (bmov1alpha1.ProvisioningState, outlook) {
	if forced, _ := RebootAsked(bmh.Annotations, true); forced {
		h.since = now
	}
	h.clearReboots(bmh)
	if left := remaining(h.since, takes, now); left > 0 {
		return bmh.Status.Provisioning.State, outlook{after: left}
	}
	return then, outlook{}
}

// deploy ends with an image on the disk. The power is a matter of the state that comes next.
func (h *Host) deploy(bmh *bmov1alpha1.BareMetalHost, now time.Time) (bmov1alpha1.ProvisioningState, outlook) {
	if bmh.Spec.Image == nil {
		return bmov1alpha1.StateDeprovisioning, outlook{}
	}
	if h.dead {
		return bmov1alpha1.StateProvisioning, outlook{after: h.hosts.options.Poll}
	}
	next, wait := h.work(bmh, h.times.Provisioning, bmov1alpha1.StateProvisioned, now)
	if next == bmov1alpha1.StateProvisioned {
		bmh.Status.Provisioning.Image = *bmh.Spec.Image
	}
	return next, wait
}

// undeploy switches the host off and wipes its disk.
func (h *Host) undeploy(bmh *bmov1alpha1.BareMetalHost, now time.Time) (bmov1alpha1.ProvisioningState, outlook) {
	h.clearReboots(bmh)
	if h.powered && !bmh.Spec.DisablePowerOff {
		if h.changing {
			return bmov1alpha1.StateDeprovisioning, outlook{after: h.hosts.options.Poll}
		}
		if failure := h.order(Off, true); failure != "" {
			return bmov1alpha1.StateDeprovisioning, h.fail(bmh, bmov1alpha1.ProvisioningError, failure)
		}
		return bmov1alpha1.StateDeprovisioning, outlook{after: h.hosts.options.Poll}
	}
	if left := remaining(h.since, h.times.Deprovisioning, now); left > 0 {
		return bmov1alpha1.StateDeprovisioning, outlook{after: left}
	}
	h.wipe()
	bmh.Status.Provisioning.Image = bmov1alpha1.Image{}
	if bmh.Status.ErrorCount > 0 {
		clearError(bmh)
	}
	if bmh.Spec.ExternallyProvisioned {
		return bmov1alpha1.StateExternallyProvisioned, outlook{}
	}
	return bmov1alpha1.StateAvailable, outlook{}
}

// remove is a pass over a host that is being deleted: it goes when it is off, or when it cannot be switched off.
func (h *Host) remove(bmh *bmov1alpha1.BareMetalHost) outlook {
	h.mu.Lock()
	defer h.mu.Unlock()
	is, goes := detached(bmh)
	if is && !goes {
		leaveAlone(bmh)
		return outlook{}
	}
	if !is && h.powered && !bmh.Spec.DisablePowerOff && !h.dead {
		bmh.Status.Provisioning.State = bmov1alpha1.StatePoweringOffBeforeDelete
		if h.changing || h.order(Off, true) == "" {
			return outlook{after: h.hosts.options.Poll}
		}
	}
	if !is {
		h.wipe()
	}
	controllerutil.RemoveFinalizer(bmh, bmov1alpha1.BareMetalHostFinalizer)
	return outlook{}
}
