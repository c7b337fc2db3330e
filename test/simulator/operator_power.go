package simulator

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// errorsCounted bounds how long the wait after an error grows, as in BMO.
const errorsCounted = 9

// managePower follows the power of the host, and changes it if it is not as asked. It is called with mu held.
func (h *Host) managePower(bmh *bmov1alpha1.BareMetalHost) outlook {
	if !h.hidden && h.powered != bmh.Status.PoweredOn {
		bmh.Status.PoweredOn = h.powered
		if bmh.Status.ErrorType == bmov1alpha1.PowerManagementError {
			clearError(bmh)
		}
		return outlook{again: true}
	}
	if _, asked := bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix]; asked && !bmh.Status.PoweredOn {
		delete(bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		return outlook{again: true}
	}
	reboot, hard := RebootAsked(bmh.Annotations, !deployed(bmh.Status.Provisioning.State))
	wanted := bmh.Spec.Online && !reboot
	if bmh.Status.PoweredOn == wanted || h.changing {
		return outlook{after: h.hosts.options.Poll}
	}
	if failure := h.order(OrderFor(bmh, wanted), hard || bmh.Status.ErrorCount > 0); failure != "" {
		return h.fail(bmh, bmov1alpha1.PowerManagementError, failure)
	}
	if OrderFor(bmh, wanted) == Reset {
		// Done is done: the request that BMO may clear is cleared, and any other is followed again in the next pass.
		delete(bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		return outlook{after: h.hosts.options.Pace}
	}
	if !h.changing {
		return outlook{after: h.hosts.options.Pace}
	}
	return outlook{after: h.hosts.options.Poll}
}

// OrderFor is what a BMC is asked for to bring a host where it is wanted.
func OrderFor(bmh *bmov1alpha1.BareMetalHost, on bool) Power {
	switch {
	case on:
		return On
	case bmh.Spec.DisablePowerOff:
		return Reset
	default:
		return Off
	}
}

// deployed are the states in which a reboot annotation needs no force.
func deployed(state bmov1alpha1.ProvisioningState) bool {
	return state == bmov1alpha1.StateProvisioned || state == bmov1alpha1.StateExternallyProvisioned
}

// fail records an error, and says when to try again.
func (h *Host) fail(bmh *bmov1alpha1.BareMetalHost, kind bmov1alpha1.ErrorType, message string) outlook {
	bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
	bmh.Status.ErrorType, bmh.Status.ErrorMessage = kind, message
	bmh.Status.ErrorCount++
	return outlook{after: h.hosts.options.Retry << (min(bmh.Status.ErrorCount, errorsCounted) - 1)}
}

func clearError(bmh *bmov1alpha1.BareMetalHost) {
	bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
	bmh.Status.ErrorType, bmh.Status.ErrorMessage, bmh.Status.ErrorCount = "", "", 0
}

// RebootAsked tells whether any annotation asks for a reboot, with force if that is needed, and whether any of those
// asks for a hard one. A value that cannot be read asks for a soft one.
func RebootAsked(annotations map[string]string, forced bool) (asked, hard bool) {
	for key, value := range annotations {
		if !isReboot(key) {
			continue
		}
		arguments := bmov1alpha1.RebootAnnotationArguments{}
		if json.Unmarshal([]byte(value), &arguments) != nil {
			arguments = bmov1alpha1.RebootAnnotationArguments{}
		}
		if forced && !arguments.Force {
			continue
		}
		asked = true
		hard = hard || arguments.Mode == bmov1alpha1.RebootModeHard
	}
	return asked, hard
}

func isReboot(key string) bool {
	return key == bmov1alpha1.RebootAnnotationPrefix || strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/")
}

// clearReboots deletes the reboot annotations that do not outlive a change of the provisioning state.
func (h *Host) clearReboots(bmh *bmov1alpha1.BareMetalHost) {
	maps.DeleteFunc(bmh.Annotations, func(key, _ string) bool {
		return key == bmov1alpha1.RebootAnnotationPrefix || h.clearsAll && isReboot(key)
	})
}

// detached tells whether BMO leaves the host alone, and what shall become of it when it is deleted meanwhile.
func detached(bmh *bmov1alpha1.BareMetalHost) (is, goes bool) {
	value, annotated := bmh.Annotations[bmov1alpha1.DetachedAnnotation]
	if !annotated {
		return false, false
	}
	arguments := struct {
		DeleteAction string `json:"deleteAction"`
		Force        bool   `json:"force"` // BMO 0.13 has it, and the types that we use have not
	}{}
	_ = json.Unmarshal([]byte(value), &arguments) // any other value asks for nothing special
	switch bmh.Status.Provisioning.State {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
	default:
		if !arguments.Force {
			return false, false
		}
	}
	return true, arguments.DeleteAction == bmov1alpha1.DetachedDeleteActionDelete
}

// leaveAlone is a pass over a host that is detached.
func leaveAlone(bmh *bmov1alpha1.BareMetalHost) {
	clearError(bmh)
	bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusDetached
}

// remaining is how much of a duration is left; not positive when it is over.
func remaining(since time.Time, takes time.Duration, now time.Time) time.Duration {
	return since.Add(takes).Sub(now)
}
