package bmo

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Pass is the result of one reconcile of BMO.
type Pass struct {
	// Object means that the metadata of the BareMetalHost has changed, Status that its status has. BMO writes them with two whole updates,
	// the metadata first. If neither is set, nothing is written, whatever has changed in memory.
	Object, Status bool
	// Again means that BMO reconciles again at once. Otherwise it does after After, or not by itself if After is zero.
	Again bool
	After time.Duration
	// Failed means that nothing is written, and that BMO reconciles again after a wait that grows with each failure.
	Failed bool
}

var (
	rests = Pass{}
	again = Pass{Again: true}
	saves = Pass{Status: true, Again: true}
)

func after(d time.Duration) Pass { return Pass{After: d, Again: d == 0} }

// saving returns p, with Status set if dirty.
func (p Pass) saving(dirty bool) Pass {
	p.Status = p.Status || dirty
	return p
}

// pass is the state of one reconcile.
type pass struct {
	*Host
	bmh *bmov1alpha1.BareMetalHost
	now time.Time
	// asked is true if Ironic was asked for a change of the host.
	asked bool
}

// Reconcile reconciles bmh, as the API server has it, and changes it to what BMO would write. (bmh Reconcile)
func (h *Host) Reconcile(bmh *bmov1alpha1.BareMetalHost, now time.Time) Pass {
	h.Advance(now)
	if h.Faults.Stopped {
		return rests
	}
	if _, paused := bmh.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return rests
	}
	p := &pass{Host: h, bmh: bmh, now: now}
	done := p.reconcile()
	if p.asked && h.Faults.Crashes {
		h.Faults.Crashes, h.Faults.Stopped = false, true
		return rests
	}
	if done.Failed {
		done.After = min(firstRetry<<min(h.failures, 20), lastRetry)
		h.failures++
		return done
	}
	h.failures = 0
	if done.Status {
		at := metav1.NewTime(now)
		bmh.Status.LastUpdated = &at
	}
	return done
}

func (p *pass) reconcile() Pass {
	if done, ends := p.restore(); ends {
		return done
	}
	leaves := !p.bmh.DeletionTimestamp.IsZero()
	if !leaves && controllerutil.AddFinalizer(p.bmh, bmov1alpha1.BareMetalHostFinalizer) {
		return Pass{Object: true, Again: true}
	}
	managed := p.state() != bmov1alpha1.StateNone && p.state() != bmov1alpha1.StateUnmanaged
	if !leaves && managed && p.Faults.Credentials == Missing {
		// Each reconcile counts the error and writes the status, and does nothing else. (bmh credentialsErrorResult)
		p.record(bmov1alpha1.RegistrationError, "The BMC secret does not exist")
		return Pass{Status: true, After: p.Waits.Credentials}
	}
	if p.Faults.NotReady {
		return after(p.Waits.NotReady) // BMO writes nothing, so no client can notice it (bmh Reconcile, ErrNotReady)
	}
	if p.Faults.Errors {
		return Pass{Failed: true}
	}
	if leaves {
		return p.leave()
	}
	done := p.advance()
	if !done.Object && p.conditions() {
		done.Status = true
	}
	return done
}

// leave lets a deleted host go after it is powered off, which BMO tries four times. A detached host is not powered off. (hsm
// checkInitiateDelete, handlePoweringOffBeforeDelete; bmh actionDeleting)
func (p *pass) leave() Pass {
	detached := p.bmh.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached
	if !detached && !p.bmh.Spec.DisablePowerOff && p.bmh.Status.ErrorCount <= deletesAfter {
		if done, ends := p.turnOff(); ends {
			return done
		}
	}
	p.node = node{}
	return Pass{Object: controllerutil.RemoveFinalizer(p.bmh, bmov1alpha1.BareMetalHostFinalizer)}
}

// deletesAfter is the number of errors after which a deletion goes on regardless. (hsm retryCount)
const deletesAfter = 3

// restore restores the status of a host that was moved from another management cluster: clusterctl moves no status, so the client that
// paused the host stored it in an annotation. (bmh reconcileHostData)
func (p *pass) restore() (Pass, bool) {
	kept, has := p.bmh.Annotations[bmov1alpha1.StatusAnnotation]
	switch {
	case !has:
		return Pass{}, false
	case p.bmh.Status.LastUpdated.IsZero() && json.Unmarshal([]byte(kept), &p.bmh.Status) == nil:
		return saves, true
	}
	delete(p.bmh.Annotations, bmov1alpha1.StatusAnnotation)
	return Pass{Object: true, Again: true}, true
}

func (p *pass) state() bmov1alpha1.ProvisioningState { return p.bmh.Status.Provisioning.State }

// advance is BMO's state machine. (hsm ReconcileState)
func (p *pass) advance() Pass {
	if p.Pinned != nil && p.state() != *p.Pinned {
		p.bmh.Status.Provisioning.State = *p.Pinned
		p.status(bmov1alpha1.OperationalStatusOK)
		return saves
	}
	if p.Pinned != nil && !slices.Contains(mayBeDetached, p.state()) {
		return rests
	}
	if done, ends := p.detach(); ends {
		return done
	}
	if done, ends := p.register(); ends {
		return done
	}
	switch p.state() {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return p.steady()
	case bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		if next := p.stateAsked(); next != p.state() && p.Pinned == nil {
			return p.enters(next)
		}
		return p.managePower()
	}
	return p.work()
}

func (p *pass) enters(state bmov1alpha1.ProvisioningState) Pass {
	p.bmh.Status.Provisioning.State = state
	return saves
}

// status sets the operational status, and reports whether it has changed.
func (p *pass) status(is bmov1alpha1.OperationalStatus) bool {
	was := p.bmh.Status.OperationalStatus
	p.bmh.Status.OperationalStatus = is
	return was != is
}

// record writes an error to the status. (bmh setErrorMessage)
func (p *pass) record(kind bmov1alpha1.ErrorType, message string) {
	p.bmh.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
	p.bmh.Status.ErrorType, p.bmh.Status.ErrorMessage = kind, message
	p.bmh.Status.ErrorCount++
}

// failed ends a reconcile with an error in the status. (bmh recordActionFailure)
func (p *pass) failed(kind bmov1alpha1.ErrorType, message string) Pass {
	p.record(kind, message)
	wait := p.Waits.Error << (min(p.bmh.Status.ErrorCount, p.Waits.Errors) - 1)
	return Pass{Status: true, After: wait}
}

// clear removes the error but keeps the number of errors. (bmh clearErrorWithStatus)
func (p *pass) clear(status bmov1alpha1.OperationalStatus) bool {
	s := &p.bmh.Status
	dirty := p.status(status)
	dirty = dirty || s.ErrorType != "" || s.ErrorMessage != ""
	s.ErrorType, s.ErrorMessage = "", ""
	return dirty
}

func (p *pass) cleared() bool { return p.clear(bmov1alpha1.OperationalStatusOK) }

// conditions computes the condition Manageable, and reports whether it has changed. (bmh computeConditions)
func (p *pass) conditions() bool {
	if p.NoConditions {
		return false
	}
	c := metav1.Condition{
		Type: bmov1alpha1.ManageableCondition, Status: metav1.ConditionTrue, Reason: bmov1alpha1.ManageableReason,
		LastTransitionTime: metav1.NewTime(p.now),
	}
	checked := p.bmh.Status.OperationalStatus != bmov1alpha1.OperationalStatusDetached
	switch p.state() {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged:
		c.Status, c.Reason, checked = metav1.ConditionFalse, bmov1alpha1.NotManagedReason, false
	case bmov1alpha1.StateRegistering:
		c.Status, c.Reason, checked = metav1.ConditionFalse, bmov1alpha1.RegisteringReason, false
	}
	if checked && p.node.fault {
		c.Status, c.Reason = metav1.ConditionFalse, bmov1alpha1.PowerFailureReason
	}
	return meta.SetStatusCondition(&p.bmh.Status.Conditions, c)
}

// mayBeDetached are the states in which a host can be detached without force, because nothing is in progress. (hsm checkDetachedHost)
var mayBeDetached = []bmov1alpha1.ProvisioningState{
	bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateReady, bmov1alpha1.StateAvailable,
}

// detach makes Ironic forget a detached host, or ends the detachment. (hsm checkDetachedHost, bmh detachHost)
func (p *pass) detach() (Pass, bool) {
	if _, asked := p.bmh.Annotations[bmov1alpha1.DetachedAnnotation]; asked && slices.Contains(mayBeDetached, p.state()) {
		p.node = node{}
		return after(p.Waits.Detached).saving(p.status(bmov1alpha1.OperationalStatusDetached)), true
	}
	if p.bmh.Status.OperationalStatus == bmov1alpha1.OperationalStatusDetached {
		back := bmov1alpha1.OperationalStatusOK
		if p.bmh.Status.ErrorType != "" {
			back = bmov1alpha1.OperationalStatusError
		}
		p.status(back)
		return saves, true
	}
	return Pass{}, false
}

// register makes sure that Ironic knows the host and can use its BMC. (hsm ensureRegistered, bmh registerHost, ironic register.go)
func (p *pass) register() (Pass, bool) {
	switch p.state() {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged:
		return Pass{}, false
	}
	if p.Faults.Credentials == Wrong {
		return p.failed(bmov1alpha1.RegistrationError, "Failed to get the power state: the BMC refuses the credentials"), true
	}
	n := &p.node
	if !n.known {
		switch {
		case n.verified.IsZero():
			n.verified = p.now.Add(p.Times.Registering)
			return after(p.Waits.Short).saving(p.cleared()), true
		case p.now.Before(n.verified):
			return after(p.Waits.Short), true
		case p.Faults.Unreachable:
			n.verified = time.Time{}
			return p.failed(bmov1alpha1.RegistrationError, "Failed to get the power state: the BMC does not answer"), true
		}
		*n = node{known: true, power: powerOf(p.hardware.on), synced: p.now}
	}
	if p.bmh.Status.ErrorType == bmov1alpha1.RegistrationError {
		p.cleared()
		return saves, true
	}
	return Pass{}, false
}

// Looks says when BMO reconciles a host: when something that others write has changed, and when BMO has asked to be called again. The zero
// value has reconciled nothing. A caller with a work queue does not need it.
type Looks struct {
	heard string
	again time.Time
}

// Due reports whether BMO reconciles bmh now, and records that it does.
func (l *Looks) Due(bmh *bmov1alpha1.BareMetalHost, now time.Time) bool {
	spec, err := json.Marshal(bmh.Spec) // it has pointers, which differ between copies
	heard := fmt.Sprint(bmh.UID, bmh.Annotations, bmh.Finalizers, bmh.DeletionTimestamp, string(spec), err)
	if heard == l.heard && (l.again.IsZero() || now.Before(l.again)) {
		return false
	}
	l.heard, l.again = heard, time.Time{}
	return true
}

// Note records when BMO wants to reconcile again.
func (l *Looks) Note(done Pass, now time.Time) {
	switch {
	case done.Again:
		l.again = now
	case done.After > 0:
		l.again = now.Add(done.After)
	}
}

// Next returns when BMO wants to reconcile again; zero if it does not.
func (l *Looks) Next() time.Time { return l.again }

// Now makes BMO reconcile at a time.
func (l *Looks) Now(now time.Time) { l.again = now }

// Restart makes BMO reconcile everything again.
func (l *Looks) Restart() { l.heard = "" }

// Forget cancels the next reconcile of a deleted host.
func (l *Looks) Forget() { l.again = time.Time{} }
