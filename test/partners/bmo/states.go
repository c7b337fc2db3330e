package bmo

import (
	"maps"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// stateAsked returns the next state after one in which nothing is in progress. (hsm handleNone to handleProvisioned)
func (p *pass) stateAsked() bmov1alpha1.ProvisioningState {
	state, external := p.state(), p.bmh.Spec.ExternallyProvisioned
	switch state {
	case bmov1alpha1.StateNone:
		return bmov1alpha1.StateRegistering
	case bmov1alpha1.StateRegistering:
		if external {
			return bmov1alpha1.StateExternallyProvisioned
		}
		return bmov1alpha1.StateInspecting
	case bmov1alpha1.StateExternallyProvisioned:
		if !external {
			return bmov1alpha1.StateInspecting
		}
	case bmov1alpha1.StatePreparing:
		return bmov1alpha1.StateAvailable
	case bmov1alpha1.StateReady, bmov1alpha1.StateAvailable:
		if external {
			return bmov1alpha1.StateExternallyProvisioned
		}
		if p.bmh.NeedsProvisioning() {
			return bmov1alpha1.StateProvisioning
		}
	case bmov1alpha1.StateProvisioned:
		if p.unwanted() {
			return bmov1alpha1.StateDeprovisioning
		}
	}
	return state
}

// unwanted reports whether the image on the host's disk shall be removed. (hsm imageProvisioningCancelled)
func (p *pass) unwanted() bool {
	if p.bmh.Status.Provisioning.Image.URL == "" {
		return false // the host is pinned to this state and never had an image
	}
	return p.bmh.Spec.Image == nil || p.bmh.Spec.Image.URL != p.bmh.Status.Provisioning.Image.URL
}

// work reconciles a host that is neither provisioned nor available. (hsm handle...)
func (p *pass) work() Pass {
	if p.busy != p.state() {
		p.busy, p.since = p.state(), p.now
	}
	switch p.state() {
	case bmov1alpha1.StateInspecting:
		return p.worked(bmov1alpha1.StatePreparing)
	case bmov1alpha1.StateProvisioning:
		return p.deploy()
	case bmov1alpha1.StateDeprovisioning:
		return p.undeploy()
	}
	next := p.stateAsked()
	if next == p.state() {
		return rests
	}
	p.cleared()
	return p.enters(next)
}

// clearReboots deletes the reboot annotations that BMO removes when the provisioning state changes. (bmh clearRebootAnnotations)
func (p *pass) clearReboots() bool {
	before := len(p.bmh.Annotations)
	maps.DeleteFunc(p.bmh.Annotations, func(key, _ string) bool {
		return key == bmov1alpha1.RebootAnnotationPrefix || p.ClearsAllReboots && isReboot(key)
	})
	return len(p.bmh.Annotations) != before
}

// deploy writes the image to the disk. The next state changes the power. (bmh actionProvisioning)
func (p *pass) deploy() Pass {
	if p.bmh.Spec.Image == nil {
		return p.enters(bmov1alpha1.StateDeprovisioning)
	}
	if p.Faults.IgnoresOn || p.Faults.Unreachable {
		return after(p.Waits.Long)
	}
	done := p.worked(bmov1alpha1.StateProvisioned)
	if p.state() == bmov1alpha1.StateProvisioned {
		p.bmh.Status.Provisioning.Image = *p.bmh.Spec.Image
	}
	return done
}

// worked ends a state in which a ramdisk worked, after it has removed reboot annotations. (bmh actionInspecting, actionProvisioning)
func (p *pass) worked(then bmov1alpha1.ProvisioningState) Pass {
	if p.clearReboots() {
		return Pass{Object: true, Again: true}
	}
	return p.enters(then)
}

// undeploy powers the host off and wipes its disk. (bmh actionDeprovisioning, ironic Deprovision)
func (p *pass) undeploy() Pass {
	if p.clearReboots() {
		return Pass{Object: true, Again: true}
	}
	if p.node.power == On && !p.bmh.Spec.DisablePowerOff {
		if done, ends := p.turnOff(); ends {
			return done
		}
	}
	if left := p.since.Add(p.Times.Deprovisioning).Sub(p.now); left > 0 {
		return after(left)
	}
	p.wiped = true
	p.bmh.Status.Provisioning.Image = bmov1alpha1.Image{}
	p.cleared()
	p.bmh.Status.ErrorCount = 0
	if p.bmh.Spec.ExternallyProvisioned {
		return p.enters(bmov1alpha1.StateExternallyProvisioned)
	}
	return p.enters(bmov1alpha1.StateAvailable)
}

// turnOff powers the host off hard, and reports whether that ends the reconcile.
func (p *pass) turnOff() (Pass, bool) {
	n := &p.node
	switch force := p.bmh.Status.ErrorType == bmov1alpha1.ProvisioningError; {
	case n.power == Off:
		return Pass{}, false
	case n.target == Off:
		return after(p.Waits.Short), true
	case n.failure != "" && !force:
		return p.failed(bmov1alpha1.ProvisioningError, n.failure), true
	}
	p.asked = true
	p.order(Off, p.now)
	return again.saving(p.cleared()), true
}

// steady reconciles a provisioned host. (bmh actionManageSteadyState)
func (p *pass) steady() Pass {
	if next := p.stateAsked(); next != p.state() && p.Pinned == nil {
		return p.enters(next)
	}
	if p.Faults.AdoptionFails {
		// BMO tries again in each reconcile that finds the error in the status, and removes the error meanwhile. (ironic Adopt)
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

// managePower copies the power that Ironic knows to the status, and orders a change if another power is wanted. (bmh manageHostPower)
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
	wanted = wanted && !(Deployed(p.state()) && RebootAsked(p.bmh.Annotations))
	if s.PoweredOn == wanted {
		return after(p.Waits.Poll)
	}
	return p.change(OrderFor(p.bmh, wanted))
}

// beforePower handles what comes before a power change: data images, completed reboots, firmware.
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
	// Only later does BMO check whether a reboot annotation keeps the host off.
	mayService := provisioned && !s.PoweredOn && wanted
	if mayService || s.OperationalStatus == bmov1alpha1.OperationalStatusServicing || s.ErrorType == bmov1alpha1.ServicingError {
		return p.service()
	}
	return Pass{}, false
}

// change makes Ironic change the power. (bmh manageHostPower; ironic PowerOn, PowerOff, changePower)
func (p *pass) change(to Power) Pass {
	s, n := &p.bmh.Status, &p.node
	force := s.ErrorType == bmov1alpha1.PowerManagementError
	done := Pass{}
	refused := ""
	switch {
	case n.servicing:
		done = after(p.Waits.Short)
	case n.target == to: // BMO waits; for a reset Ironic answers that the node is locked, and BMO tries again
		done = after(p.Waits.Short)
	case n.target == "" && n.failure != "" && !force:
		refused = n.failure
	case p.Faults.Races && n.power != "" && to != Reset:
		// The change ends between the read and the order: BMO orders nothing, and records the wanted power as the current one.
		p.become(to, false, p.now)
		n.power, n.synced = to, p.now
		s.PoweredOn, s.ErrorCount = p.bmh.Spec.Online, 0
		return after(p.Waits.Poll).saving(true)
	default:
		p.asked = true
		p.order(to, p.now)
		done = again
	}
	if to == Reset {
		// BMO takes the reboot for carried out even if it has failed, because it checks for the error later.
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

// service writes pending firmware before anything else happens to the power of a host that is off, even if an annotation keeps the host
// off. (bmh doServiceIfNeeded, ironic servicing.go)
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

// OrderFor returns the order to a BMC that brings a host to the wanted power.
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

// Deployed reports whether a host in that state has an image. Then a reboot annotation needs no force.
func Deployed(state bmov1alpha1.ProvisioningState) bool {
	return state == bmov1alpha1.StateProvisioned || state == bmov1alpha1.StateExternallyProvisioned
}

// RebootAsked reports whether an annotation asks for a reboot. (bmh hasRebootAnnotation)
func RebootAsked(annotations map[string]string) bool {
	for key := range annotations {
		if isReboot(key) {
			return true
		}
	}
	return false
}

func isReboot(key string) bool {
	return key == bmov1alpha1.RebootAnnotationPrefix || strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/")
}
