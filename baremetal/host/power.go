package host

import (
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// PowerOf returns what host says of its power.
func PowerOf(host *bmov1alpha1.BareMetalHost) powercycle.Power {
	p := powercycle.Power{
		Wanted: host.Spec.Online, KeptOffBy: keptOffByHand(host), PoweredOn: host.Status.PoweredOn, NoPowerOff: host.Spec.DisablePowerOff,
		Unmanaged: unmanaged(host), External: host.Status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned,
		Serviced: host.Status.OperationalStatus == bmov1alpha1.OperationalStatusServicing || host.Status.ErrorType == bmov1alpha1.ServicingError,
		Fails:    host.Status.ErrorType == bmov1alpha1.PowerManagementError,
	}
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	_, detached := host.Annotations[bmov1alpha1.DetachedAnnotation] // the status shows one that is being attached again
	p.SetAside = paused || detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached
	if at := host.Status.LastUpdated; at != nil {
		p.Said = at.Time
	}
	if host.Status.OperationalStatus == bmov1alpha1.OperationalStatusError || host.Status.ErrorType != "" {
		p.Trouble = fmt.Sprintf("%s: %s", host.Status.ErrorType, host.Status.ErrorMessage)
	}
	manageable := meta.FindStatusCondition(host.Status.Conditions, bmov1alpha1.ManageableCondition)
	p.Provable = manageable != nil
	switch {
	case p.Provable && manageable.Status != metav1.ConditionTrue:
		p.Doubt = fmt.Sprintf("its condition %s is %s (%s)", manageable.Type, manageable.Status, manageable.Reason)
		p.Fails = p.Fails || manageable.Reason == bmov1alpha1.PowerFailureReason
	case p.Trouble != "":
		p.Doubt = p.Trouble
	case host.Status.OperationalStatus != bmov1alpha1.OperationalStatusOK:
		p.Doubt = fmt.Sprintf("its operational status is %q", host.Status.OperationalStatus)
	}
	return p
}

// unmanaged says why BMO does not act on a reboot annotation of host. It manages power in the two states of a host with an image on it,
// does nothing for one that is paused or detached, and does not get to the power of one whose registration fails: what it says of that
// power is what it was before. (BMO, actionManageSteadyState, ensureRegistered, checkDelayedHost.)
func unmanaged(host *bmov1alpha1.BareMetalHost) string {
	if by, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return fmt.Sprintf("the host is paused (annotation %s: %q)", bmov1alpha1.PausedAnnotation, by)
	}
	if _, detached := host.Annotations[bmov1alpha1.DetachedAnnotation]; detached || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
		return "the host is detached"
	}
	switch host.Status.ErrorType {
	case bmov1alpha1.RegistrationError, bmov1alpha1.ProvisionedRegistrationError, bmov1alpha1.DetachError:
		return fmt.Sprintf("the host has a %s, and its power is not read before that is over", host.Status.ErrorType)
	}
	if host.Status.OperationalStatus == bmov1alpha1.OperationalStatusDelayed {
		return "the host is delayed: its operator has too much to do"
	}
	switch state := host.Status.Provisioning.State; state {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return ""
	default:
		return fmt.Sprintf("the host is %q, and its power is managed only when it is %q or %q",
			state, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned)
	}
}

// SlimHost is the transform of the cache of hosts. It drops what is not read here: hardware details but the model, images, firmware,
// networks, and annotations that are neither ours nor about power. A host of 30 KiB becomes one of less than 1 KiB. Of its labels it keeps
// those that a hostSelector may name, which is all of them.
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
	slim.Labels, slim.Status.OperationHistory = h.Labels, h.Status.OperationHistory
	slim.Spec.Online, slim.Spec.ConsumerRef, slim.Spec.DisablePowerOff = h.Spec.Online, h.Spec.ConsumerRef, h.Spec.DisablePowerOff
	slim.Status.PoweredOn, slim.Status.OperationalStatus = h.Status.PoweredOn, h.Status.OperationalStatus
	slim.Status.ErrorType, slim.Status.ErrorMessage = h.Status.ErrorType, h.Status.ErrorMessage
	slim.Status.HardwareDetails = slimHardware(h.Status.HardwareDetails)
	slim.Status.Provisioning.State, slim.Status.LastUpdated = h.Status.Provisioning.State, h.Status.LastUpdated
	if manageable := meta.FindStatusCondition(h.Status.Conditions, bmov1alpha1.ManageableCondition); manageable != nil {
		slim.Status.Conditions = []metav1.Condition{{Type: manageable.Type, Status: manageable.Status, Reason: manageable.Reason}}
	}
	return slim, nil
}
