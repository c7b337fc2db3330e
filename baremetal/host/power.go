package host

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Power is what a host says of its power.
type Power struct {
	// Wanted says that its owner wants it on.
	Wanted bool
	// HeldBy is the annotation by which somebody who is no remediation keeps it off; empty if nobody does.
	HeldBy string
	// On is what was last seen.
	On bool
	// NoPowerOff says that it can only be rebooted.
	NoPowerOff bool
	// Deaf says why BMO does not act on what we ask now; empty if it does.
	Deaf string
	// Fails says that BMO reports that it cannot manage the power.
	Fails bool
	// Trouble is the error that BMO reports; empty if there is none.
	Trouble string
}

// PowerOf returns what host says of its power.
func PowerOf(host *bmov1alpha1.BareMetalHost) Power {
	if host == nil {
		return Power{Deaf: "there is no host"}
	}
	p := Power{
		Wanted: host.Spec.Online, HeldBy: heldByHand(host), On: host.Status.PoweredOn, NoPowerOff: host.Spec.DisablePowerOff, Deaf: deaf(host),
		Fails: host.Status.ErrorType == bmov1alpha1.PowerManagementError,
	}
	if host.Status.OperationalStatus == bmov1alpha1.OperationalStatusError || host.Status.ErrorType != "" {
		p.Trouble = fmt.Sprintf("%s: %s", host.Status.ErrorType, host.Status.ErrorMessage)
	}
	return p
}

// Same reports whether two answers differ in nothing that a step is decided on.
func (p Power) Same(q Power) bool {
	return p.Wanted == q.Wanted && p.On == q.On && p.NoPowerOff == q.NoPowerOff && p.HeldBy == q.HeldBy && (p.Deaf == "") == (q.Deaf == "")
}

// deaf says why BMO does not act on a reboot annotation of host. It manages power in the two states of a host with an image on it,
// and stands back from one that is paused or detached. (BMO, actionManageSteadyState.)
func deaf(host *bmov1alpha1.BareMetalHost) string {
	if by, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return fmt.Sprintf("the host is paused (annotation %s: %q)", bmov1alpha1.PausedAnnotation, by)
	}
	if _, detached := host.Annotations[bmov1alpha1.DetachedAnnotation]; detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
		return "the host is detached"
	}
	switch state := host.Status.Provisioning.State; state {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return ""
	default:
		return fmt.Sprintf("the host is %q, and its power is managed only when it is %q or %q",
			state, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned)
	}
}

// SlimHost is the transform of the cache of hosts. It drops what nobody here reads: hardware details, images, firmware, networks,
// labels, and annotations that are neither ours nor about power. A host of 30 KiB becomes one of less than 1 KiB.
func SlimHost(obj any) (any, error) {
	h, ok := obj.(*bmov1alpha1.BareMetalHost)
	if !ok {
		return obj, nil
	}
	slim := &bmov1alpha1.BareMetalHost{TypeMeta: h.TypeMeta}
	slim.Name, slim.Namespace, slim.UID, slim.ResourceVersion = h.Name, h.Namespace, h.UID, h.ResourceVersion
	slim.CreationTimestamp, slim.DeletionTimestamp = h.CreationTimestamp, h.DeletionTimestamp
	for key, value := range h.Annotations {
		if relevant(key) {
			if slim.Annotations == nil {
				slim.Annotations = map[string]string{}
			}
			slim.Annotations[key] = value
		}
	}
	slim.Spec.Online, slim.Spec.ConsumerRef, slim.Spec.DisablePowerOff = h.Spec.Online, h.Spec.ConsumerRef, h.Spec.DisablePowerOff
	slim.Status.PoweredOn, slim.Status.OperationalStatus = h.Status.PoweredOn, h.Status.OperationalStatus
	slim.Status.ErrorType, slim.Status.ErrorMessage = h.Status.ErrorType, h.Status.ErrorMessage
	slim.Status.Provisioning.State = h.Status.Provisioning.State
	return slim, nil
}
