// Package bmo is the Bare Metal Operator (BMO), Ironic, and one host with its BMC behind them, as a model: it has no clock, no client and
// no goroutine. Its user moves the time (Advance), gives it the BareMetalHost as the API server has it (Reconcile), and writes what the
// pass has changed, or does not: BMO may die in between.
//
// A rule cites the function that it stands for. Those of BMO are of commit 02aa5059e (v0.14.0-rc.0-37): "bmh" is
// internal/controller/metal3.io/baremetalhost_controller.go, "hsm" host_state_machine.go, "result" action_result.go beside it, "ironic" the
// package pkg/provisioner/ironic. "conductor" is Ironic's own ironic/conductor, with the defaults of its configuration, which Metal3's
// image keeps but for power_state_change_timeout. What the original does wrong, late, or not at all, the model does too.
package bmo

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Power is what the power of a host is changed to.
type Power string

// What the power of a host can be changed to. Reset is off and on in one, so short that the host is never seen off.
const (
	On    Power = "on"
	Off   Power = "off"
	Reset Power = "reset"
)

// Change is one change that really happened to the power of a host, known or not.
type Change struct {
	At time.Time
	To Power
	// Hard tells that the operating system was not asked.
	Hard bool
	// Ramdisk tells that the host boots a ramdisk, and not what is on its disk.
	Ramdisk bool
}

// Times are how long a host takes. What takes no time is done at once.
type Times struct {
	PowerOff, PowerOn time.Duration
	// Boot is from when the power is on until the kubelet starts.
	Boot time.Duration
	// Registering is how long Ironic takes to verify the BMC of a host that it does not know.
	Registering time.Duration
	// Inspecting, Provisioning and Deprovisioning are how long the host stays in these states. One that takes no time is passed
	// without being seen.
	Inspecting, Provisioning, Deprovisioning time.Duration
	// Servicing is how long the ramdisk takes to write firmware.
	Servicing time.Duration
}

// Waits are how long BMO and Ironic wait before they look again.
type Waits struct {
	// Poll is after a reconcile with nothing to do. (bmh manageHostPower, steadyStateResult)
	Poll time.Duration
	// Error is after the first error that was recorded; each further one doubles it, nine times. BMO takes half of that to all of it, at
	// random; here it is always all of it. (result calculateBackoff)
	Error time.Duration
	// Short is while Ironic is busy; Long, while a ramdisk is at work. (ironic shortRetryDelay, longRetryDelay)
	Short, Long time.Duration
	// NotReady is while Ironic does not answer. (bmh provisionerNotReadyRetryDelay)
	NotReady time.Duration
	// Credentials is while the Secret of the BMC is missing. (bmh hostErrorRetryDelay)
	Credentials time.Duration
	// Detached is between two looks at a detached host. (bmh unmanagedRetryDelay)
	Detached time.Duration
	// Serviced is after servicing has ended. (bmh subResourceNotReadyRetryDelay)
	Serviced time.Duration
	// Sync is how old Ironic's own copy of the power may be. (conductor sync_power_state_interval)
	Sync time.Duration
	// Recovery is how often Ironic tries a BMC again that it has given up. (conductor power_failure_recovery_interval)
	Recovery time.Duration
	// Change is how long Ironic waits for a host to follow an order. (ironic-image power_state_change_timeout)
	Change time.Duration
	// Errors is how often the wait after an error, Error at first, is doubled, but for one. (result maxBackOffCount)
	Errors int
	// Reset is the least that a reset takes. As long as it does Ironic has the node locked, and refuses another one: BMO, whose cache may
	// not show yet that it has taken the ask away, would order it twice else. (ironic changePower, 409)
	Reset time.Duration
}

// Real are the waits of BMO and of Ironic as Metal3 configures it.
func Real() Waits {
	return Waits{
		Poll: time.Minute, Error: 2 * time.Minute, Short: 3 * time.Second, Long: 10 * time.Second, NotReady: 30 * time.Second,
		Credentials: 10 * time.Second, Detached: 10 * time.Minute, Serviced: time.Minute, Sync: time.Minute, Recovery: 5 * time.Minute,
		Change: 2 * time.Minute, Reset: 5 * time.Second, Errors: 9,
	}
}

// firstRetry and lastRetry are how long BMO waits after a reconcile that has failed, first and at most. (controller-runtime's rate limiter)
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 1000 * time.Second
)

// Credentials are what is wrong with what BMO knows of the BMC.
type Credentials string

const (
	// Missing have no Secret. (bmh credentialsErrorResult)
	Missing Credentials = "missing"
	// Wrong are refused by the BMC. (bmh registerHost)
	Wrong Credentials = "wrong"
)

// Faults are what is wrong, until it is no longer.
type Faults struct {
	// Stopped says that BMO does not run.
	Stopped bool
	// Crashes says that BMO dies in the next reconcile in which it asks Ironic for anything, after it has asked and before it writes. It is
	// Stopped then.
	Crashes bool
	// NotReady says that Ironic does not answer BMO, which knows that; Errors, that Ironic answers with errors. Neither is written
	// anywhere.
	NotReady, Errors bool

	// Credentials are what is wrong with those of the BMC. A host that has been registered with good ones goes on until they change.
	Credentials Credentials
	// AdoptionFails says that Ironic does not take a host that was provisioned. (ironic Adopt)
	AdoptionFails bool
	// DataImageFails says that an image of data is to be attached to the host, and cannot be. (bmh handleDataImageActions)
	DataImageFails bool
	// Firmware says that firmware is to be written at the next reboot: there is a HostUpdatePolicy that allows it, and a setting that
	// differs. It is no longer once it was written.
	Firmware bool
	// ServicingFails says that it cannot be.
	ServicingFails bool

	// Unreachable says that the BMC does not answer.
	Unreachable bool
	// IgnoresOff and IgnoresOn say that the BMC accepts such orders and does not follow them. It does late, if Ironic still waits for that
	// when this ends. A reset is both.
	IgnoresOff, IgnoresOn bool
	// Refuses is what the BMC answers to every order; it is followed if this is empty.
	Refuses string
	// Stale says that the BMC follows orders, and goes on to tell the power as it was.
	Stale bool
	// Races says that a change of power ends between the moment in which BMO reads it and that in which it wants to order it, so that
	// there is nothing to order, and the power that is wanted is noted as the power that is. (bmh manageHostPower, last lines)
	Races bool
}

// Host is one host: what is really so, what Ironic knows of it, and what is wrong. It is not safe for concurrent use.
type Host struct {
	Waits  Waits
	Times  Times
	Faults Faults

	// Pinned keeps the host in a provisioning state, whatever is asked of it.
	Pinned *bmov1alpha1.ProvisioningState
	// ClearsAllReboots makes inspecting, provisioning and deprovisioning delete every reboot annotation, as BMO does up to 0.13. Since
	// 0.14 they delete the one without a suffix alone. (bmh clearRebootAnnotations)
	ClearsAllReboots bool
	// NoConditions says that BMO writes no conditions, as before 0.13. (bmh computeConditions)
	NoConditions bool

	hardware hardware
	node     node
	// busy is the state in which a ramdisk is at work, since when.
	busy  bmov1alpha1.ProvisioningState
	since time.Time

	// failures is how many passes have failed in a row.
	failures int

	changes []Change
	wiped   bool
}

// Powered tells whether the power is really on.
func (h *Host) Powered() bool { return h.hardware.on }

// InRamdisk tells whether what runs is a ramdisk, and not what is on the disk.
func (h *Host) InRamdisk() bool { return h.hardware.on && h.hardware.ramdisk }

// Changes returns what has happened to the power since it was last asked for, oldest first.
func (h *Host) Changes() []Change {
	changes := h.changes
	h.changes = nil
	return changes
}

// Wiped reports whether the disk was wiped since that was last asked for.
func (h *Host) Wiped() bool {
	wiped := h.wiped
	h.wiped = false
	return wiped
}

// Install makes the host be one that Ironic knows, with that power: it was provisioned long ago.
func (h *Host) Install(on bool, now time.Time) {
	h.hardware.on = on
	h.node = node{known: true, power: powerOf(on), synced: now}
}

// GoesOff reports whether the power goes by now. The kubelet is stopped before that.
func (h *Host) GoesOff(now time.Time) bool {
	return h.hardware.order != "" && h.hardware.order != On && !h.hardware.ends.After(now)
}

// Press changes the power by hand, without a trace.
func (h *Host) Press(to Power, now time.Time) { h.become(to, true, false, now) }

// Stranded reports whether a ramdisk runs on the host that is known to no component any more, because Ironic has lost its database
// meanwhile.
func (h *Host) Stranded() bool { return h.hardware.on && h.hardware.ramdisk && !h.node.servicing }

// LoseDatabase makes Ironic forget the host, as one does whose database goes with its pod. It registers it anew when BMO asks for it.
func (h *Host) LoseDatabase() { h.node = node{} }
