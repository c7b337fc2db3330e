package bmo

import (
	"encoding/json"
	"maps"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// stateAsked is the state that comes next after one in which nothing is being done. (hsm handleNone to handleProvisioned)
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

// unwanted tells whether what is on the host's disk shall go. (hsm imageProvisioningCancelled)
func (p *pass) unwanted() bool {
	if p.bmh.Status.Provisioning.Image.URL == "" {
		return false // pinned to this state: there never was anything
	}
	return p.bmh.Spec.Image == nil || p.bmh.Spec.Image.URL != p.bmh.Status.Provisioning.Image.URL
}

// work reconciles a host that is not in service. (hsm handle...)
func (p *pass) work() Pass {
	if p.busy != p.state() {
		p.busy, p.since = p.state(), p.now
	}
	switch p.state() {
	case bmov1alpha1.StateInspecting:
		return p.ramdisk(p.Times.Inspecting, bmov1alpha1.StatePreparing)
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

// ramdisk is a state in which a ramdisk is at work: it takes its time, begins anew if a reboot is forced, and takes reboot annotations
// away. (bmh actionInspecting, actionProvisioning)
func (p *pass) ramdisk(takes time.Duration, then bmov1alpha1.ProvisioningState) Pass {
	if forced, _ := RebootAsked(p.bmh.Annotations, true); forced {
		p.since = p.now
	}
	if p.clearReboots() {
		return Pass{Object: true, Again: true}
	}
	if left := p.left(takes); left > 0 {
		return after(left)
	}
	return p.enters(then)
}

func (p *pass) left(takes time.Duration) time.Duration { return p.since.Add(takes).Sub(p.now) }

// clearReboots deletes the reboot annotations that do not outlive a change of the provisioning state. (bmh clearRebootAnnotations)
func (p *pass) clearReboots() bool {
	before := len(p.bmh.Annotations)
	maps.DeleteFunc(p.bmh.Annotations, func(key, _ string) bool {
		return key == bmov1alpha1.RebootAnnotationPrefix || p.ClearsAllReboots && isReboot(key)
	})
	return len(p.bmh.Annotations) != before
}

// deploy ends with an image on the disk. The power is a matter of the state that comes next. (bmh actionProvisioning)
func (p *pass) deploy() Pass {
	if p.bmh.Spec.Image == nil {
		return p.enters(bmov1alpha1.StateDeprovisioning)
	}
	if p.Faults.IgnoresOn || p.Faults.Unreachable {
		return after(p.Waits.Long)
	}
	done := p.ramdisk(p.Times.Provisioning, bmov1alpha1.StateProvisioned)
	if p.state() == bmov1alpha1.StateProvisioned {
		p.bmh.Status.Provisioning.Image = *p.bmh.Spec.Image
	}
	return done
}

// undeploy switches the host off and wipes its disk. (bmh actionDeprovisioning, ironic Deprovision)
func (p *pass) undeploy() Pass {
	if p.clearReboots() {
		return Pass{Object: true, Again: true}
	}
	if p.node.power == On && !p.bmh.Spec.DisablePowerOff {
		if done, ends := p.turnOff(bmov1alpha1.ProvisioningError); ends {
			if !p.bmh.DeletionTimestamp.IsZero() && p.bmh.Status.ErrorCount > deletesAfter {
				return p.enters(bmov1alpha1.StatePoweringOffBeforeDelete)
			}
			return done
		}
	}
	if left := p.left(p.Times.Deprovisioning); left > 0 {
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

// turnOff switches the host off the hard way, and reports whether that ends the pass.
func (p *pass) turnOff(kind bmov1alpha1.ErrorType) (Pass, bool) {
	n := &p.node
	switch force := p.bmh.Status.ErrorType == kind; {
	case n.power == Off:
		return Pass{}, false
	case n.target == Off:
		return after(p.Waits.Short), true
	case n.failure != "" && !force:
		return p.failed(kind, n.failure), true
	}
	p.asked = true
	p.order(Off, true, p.now)
	return again.saving(p.cleared()), true
}

// beginsToDelete takes the host to the state in which it is deleted. (hsm checkInitiateDelete)
func (p *pass) beginsToDelete() bool {
	if p.bmh.DeletionTimestamp.IsZero() {
		return false
	}
	arguments, asked := p.detachedBy()
	detached := p.bmh.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached
	state := p.state()
	if state != bmov1alpha1.StateDeleting && (asked || detached) {
		if !asked || arguments.DeleteAction == bmov1alpha1.DetachedDeleteActionDelay {
			return false
		}
		p.bmh.Status.Provisioning.State = bmov1alpha1.StateDeleting
		return true
	}
	next := bmov1alpha1.StatePoweringOffBeforeDelete
	switch state {
	case bmov1alpha1.StateRegistering, bmov1alpha1.StateUnmanaged, bmov1alpha1.StateNone:
		next = bmov1alpha1.StateDeleting
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned:
		next = bmov1alpha1.StateDeprovisioning
	case bmov1alpha1.StateDeprovisioning, bmov1alpha1.StatePoweringOffBeforeDelete:
		if p.bmh.Status.ErrorType != bmov1alpha1.RegistrationError || p.bmh.Status.ErrorCount <= deletesAfter {
			return false
		}
		next = bmov1alpha1.StateDeleting
	case bmov1alpha1.StateDeleting:
		return false
	}
	p.bmh.Status.Provisioning.State = next
	return true
}

// deletesAfter is how many errors keep a host from being deleted. (hsm retryCount)
const deletesAfter = 3

// powerOffBeforeDelete is the last reconcile but one. (hsm handlePoweringOffBeforeDelete)
func (p *pass) powerOffBeforeDelete() Pass {
	if !p.bmh.Spec.DisablePowerOff {
		if done, ends := p.turnOff(bmov1alpha1.PowerManagementError); ends && p.bmh.Status.ErrorCount <= deletesAfter {
			return done
		}
	}
	p.bmh.Status.PoweredOn = false
	return p.enters(bmov1alpha1.StateDeleting)
}

// delete lets the object go. (bmh actionDeleting)
func (p *pass) delete() Pass {
	p.node = node{}
	if !controllerutil.RemoveFinalizer(p.bmh, bmov1alpha1.BareMetalHostFinalizer) {
		return rests
	}
	return Pass{Object: true}
}

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
