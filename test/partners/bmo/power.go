package bmo

import (
	"encoding/json"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// steady reconciles a host with an image on it. (bmh actionManageSteadyState)
func (p *pass) steady() Pass {
	if next := p.stateAsked(); next != p.state() && p.Pinned == nil {
		return p.enters(next)
	}
	if p.Faults.AdoptionFails {
		// It is tried again with each reconcile that finds the error noted, and the error is removed meanwhile. (ironic Adopt)
		if p.bmh.Status.ErrorType == bmov1alpha1.ProvisionedRegistrationError && !p.node.adopting {
			p.node.adopting = true
			return after(p.Waits.Short).saving(p.cleared())
		}
		p.node.adopting = false
		return p.failed(bmov1alpha1.ProvisionedRegistrationError, "Host adoption failed: the image is gone")
	}
	if p.bmh.Status.ErrorType == bmov1alpha1.ProvisionedRegistrationError {
		return after(p.Waits.Short).saving(p.cleared())
	}
	return p.managePower()
}

// managePower follows the power of the host, as Ironic knows it, and orders another if it is not as asked. (bmh manageHostPower)
func (p *pass) managePower() Pass {
	s := &p.bmh.Status
	if p.node.power != "" && (p.node.power == On) != s.PoweredOn {
		s.PoweredOn = p.node.power == On
		if s.ErrorType == bmov1alpha1.PowerManagementError {
			p.cleared()
		}
		return saves
	}
	wanted := p.bmh.Spec.Online
	if done, ends := p.beforePower(); ends {
		return done
	}
	reboot, hard := RebootAsked(p.bmh.Annotations, !Deployed(p.state()))
	wanted = wanted && !reboot
	if s.PoweredOn == wanted {
		return after(p.Waits.Poll)
	}
	return p.change(OrderFor(p.bmh, wanted), hard || s.ErrorCount > 0)
}

// beforePower is what comes before anything is ordered: images, reboots that are done, firmware.
func (p *pass) beforePower() (done Pass, ends bool) {
	s, wanted := &p.bmh.Status, p.bmh.Spec.Online
	provisioned := Deployed(p.state())
	if provisioned && wanted && !s.PoweredOn && p.Faults.DataImageFails {
		return after(p.Waits.Long), true
	}
	if _, asked := p.bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix]; asked && !s.PoweredOn {
		delete(p.bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		return Pass{Object: true, Again: true}, true
	}
	// Whether a reboot annotation keeps the host off is asked only further down.
	mayService := provisioned && !s.PoweredOn && wanted
	if mayService || s.OperationalStatus == bmov1alpha1.OperationalStatusServicing || s.ErrorType == bmov1alpha1.ServicingError {
		return p.service()
	}
	return Pass{}, false
}

// change has Ironic change the power. (bmh manageHostPower; ironic PowerOn, PowerOff, changePower)
func (p *pass) change(to Power, hard bool) Pass {
	s, n := &p.bmh.Status, &p.node
	force := s.ErrorType == bmov1alpha1.PowerManagementError
	done := Pass{}
	refused := ""
	switch {
	case n.servicing:
		done = after(p.Waits.Short)
	case n.target == to: // it waits; or, for a reset, Ironic says that the node is locked, and BMO looks again
		done = after(p.Waits.Short)
	case n.target == "" && n.failure != "" && !force:
		refused = n.failure
	case p.Faults.Races && n.power != "" && to != Reset:
		// It ends between the read and the order: nothing has to be ordered, and what is wanted is noted as what is.
		p.become(to, hard, false, p.now)
		n.power, n.synced = to, p.now
		s.PoweredOn, s.ErrorCount = p.bmh.Spec.Online, 0
		return after(p.Waits.Poll).saving(true)
	default:
		p.asked = true
		p.order(to, hard, p.now)
		done = again
	}
	if to == Reset {
		// The ask is taken for carried out, also if it has failed: this comes before the error is looked at.
		if _, asked := p.bmh.Annotations[bmov1alpha1.RebootAnnotationPrefix]; asked {
			delete(p.bmh.Annotations, bmov1alpha1.RebootAnnotationPrefix)
			return Pass{Object: true, Again: true}
		}
	}
	if refused != "" {
		return p.failed(bmov1alpha1.PowerManagementError, refused)
	}
	if to == Reset && done.Again {
		done = after(p.Waits.Short)
	}
	return done.saving(p.cleared())
}

// service writes the firmware that is to be written, before anything else is done to the power of a host that is off, also of one that is
// held off. (bmh doServiceIfNeeded, ironic servicing.go)
func (p *pass) service() (done Pass, ends bool) {
	s, n := &p.bmh.Status, &p.node
	serviced := s.OperationalStatus == bmov1alpha1.OperationalStatusServicing
	if !p.Faults.Firmware && !serviced && s.ErrorType != bmov1alpha1.ServicingError {
		return Pass{}, false
	}
	if !serviced {
		p.status(bmov1alpha1.OperationalStatusServicing)
		return saves, true
	}
	retries := s.ErrorType == bmov1alpha1.ServicingError
	switch {
	case n.servicing:
		return after(p.Waits.Long).saving(p.clear(bmov1alpha1.OperationalStatusServicing)), true
	case n.broken && !retries:
		return p.failed(bmov1alpha1.ServicingError, "Servicing has failed"), true
	case p.Faults.Firmware:
		p.asked = true
		p.Host.service(p.now)
		return after(p.Waits.Long).saving(p.clear(bmov1alpha1.OperationalStatusServicing)), true
	}
	n.broken = false
	p.cleared()
	return after(p.Waits.Serviced).saving(true), true
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

// Deployed reports whether a host in that state has an image on it: a reboot annotation needs no force then.
func Deployed(state bmov1alpha1.ProvisioningState) bool {
	return state == bmov1alpha1.StateProvisioned || state == bmov1alpha1.StateExternallyProvisioned
}

// RebootAsked tells whether any annotation asks for a reboot, with force if that is needed, and whether any of those asks for a hard one. A
// value that cannot be read asks for a soft one. (bmh hasRebootAnnotation)
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
