// Package bmo is a model of the Bare Metal Operator (BMO), Ironic, and one host with its BMC. It has no clock, no client and no goroutine.
// The caller advances the time (Advance), passes the BareMetalHost from the API server (Reconcile), and writes the changes, or not: BMO may
// die in between.
//
// Each rule cites the function that it models. Those of BMO are of commit 02aa5059e (v0.14.0-rc.0-37): "bmh" is
// internal/controller/metal3.io/baremetalhost_controller.go, "hsm" host_state_machine.go and "result" action_result.go beside it, "ironic"
// the package pkg/provisioner/ironic. "conductor" is Ironic's ironic/conductor with its default configuration, of which Metal3's image
// changes only power_state_change_timeout. The model repeats what the original does wrong, late, or not at all. It leaves out what no test
// asks for: every reboot is hard and without force, and the deleteAction of a detached host is ignored.
package bmo

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// Power is a change of the power of a host.
type Power string

// The changes of the power. Reset is off and on in one operation, too short for anybody to see the host off.
const (
	On    Power = "on"
	Off   Power = "off"
	Reset Power = "reset"
)

// Change is a real change of the power of a host, even if no program knows of it.
type Change struct {
	At time.Time
	To Power
	// Ramdisk means that the host boots a ramdisk and not its disk.
	Ramdisk bool
}

// Times are how long a host takes for each step. A step of zero takes no time.
type Times struct {
	PowerOff, PowerOn time.Duration
	// Boot is the time from power on until the kubelet starts.
	Boot time.Duration
	// Registering is how long Ironic takes to verify the BMC of a new host.
	Registering time.Duration
	// Deprovisioning is how long the host stays in this state. Inspecting and provisioning take no time.
	Deprovisioning time.Duration
	// Servicing is how long the ramdisk takes to write firmware.
	Servicing time.Duration
}

// Waits are how long BMO and Ironic wait before they act again.
type Waits struct {
	// Poll is the wait after a reconcile with nothing to do. (bmh manageHostPower, steadyStateResult)
	Poll time.Duration
	// Error is the wait after the first recorded error; it doubles with each further error, up to the ninth. BMO waits at random for half
	// to all of it, the model always for all of it. (result calculateBackoff)
	Error time.Duration
	// Short is the wait while Ironic is busy, Long the wait while a ramdisk works. (ironic shortRetryDelay, longRetryDelay)
	Short, Long time.Duration
	// NotReady is the wait while Ironic does not answer. (bmh provisionerNotReadyRetryDelay)
	NotReady time.Duration
	// Credentials is the wait while the Secret of the BMC is missing. (bmh hostErrorRetryDelay)
	Credentials time.Duration
	// Detached is the wait between two reconciles of a detached host. (bmh unmanagedRetryDelay)
	Detached time.Duration
	// Serviced is the wait after servicing. (bmh subResourceNotReadyRetryDelay)
	Serviced time.Duration
	// Sync is how often Ironic reads the power. (conductor sync_power_state_interval)
	Sync time.Duration
	// Recovery is how often Ironic tries a BMC again after it has given up. (conductor power_failure_recovery_interval)
	Recovery time.Duration
	// Change is how long Ironic waits until a host follows an order. (ironic-image power_state_change_timeout)
	Change time.Duration
	// Errors is the number of errors up to which the wait after an error doubles. (result maxBackOffCount)
	Errors int
	// Reset is the minimal time of a reset. Meanwhile Ironic has the node locked and refuses another reset, which BMO would otherwise order
	// if its cache still had the annotation that BMO has removed. (ironic changePower, 409)
	Reset time.Duration
}

// Real returns the waits of BMO, and of Ironic in Metal3's configuration.
func Real() Waits {
	return Waits{
		Poll: time.Minute, Error: 2 * time.Minute, Short: 3 * time.Second, Long: 10 * time.Second, NotReady: 30 * time.Second,
		Credentials: 10 * time.Second, Detached: 10 * time.Minute, Serviced: time.Minute, Sync: time.Minute, Recovery: 5 * time.Minute,
		Change: 2 * time.Minute, Reset: 5 * time.Second, Errors: 9,
	}
}

// firstRetry and lastRetry are the first and the longest wait after a failed reconcile. (controller-runtime's rate limiter)
const (
	firstRetry = 5 * time.Millisecond
	lastRetry  = 1000 * time.Second
)

// Credentials is what is wrong with the credentials of the BMC.
type Credentials string

const (
	// Missing means that there is no Secret. (bmh credentialsErrorResult)
	Missing Credentials = "missing"
	// Wrong means that the BMC refuses them. (bmh registerHost)
	Wrong Credentials = "wrong"
)

// Faults are the current faults.
type Faults struct {
	// Stopped means that BMO does not run.
	Stopped bool
	// Crashes makes BMO die in the next reconcile in which it asks Ironic for a change, after the request and before its write. It is then
	// Stopped.
	Crashes bool
	// NotReady means that Ironic does not answer and BMO knows it; Errors means that Ironic answers with errors. BMO writes neither of them
	// anywhere.
	NotReady, Errors bool

	// Credentials is what is wrong with the credentials. A host that was registered with good ones is not affected until they change.
	Credentials Credentials
	// AdoptionFails means that Ironic does not adopt a provisioned host. (ironic Adopt)
	AdoptionFails bool
	// DataImageFails means that a data image cannot be attached to the host. (bmh handleDataImageActions)
	DataImageFails bool
	// Firmware means that firmware is written at the next reboot: a HostUpdatePolicy allows it, and a setting differs. The model clears it
	// afterwards.
	Firmware bool
	// ServicingFails means that writing firmware fails.
	ServicingFails bool

	// Unreachable means that the BMC does not answer.
	Unreachable bool
	// IgnoresOff and IgnoresOn mean that the BMC accepts such orders and does not follow them. If the fault ends while Ironic still waits,
	// the BMC follows late. A reset counts as both.
	IgnoresOff, IgnoresOn bool
	// Refuses is the error with which the BMC answers every order; empty if it follows orders.
	Refuses string
	// Stale means that the BMC follows orders but keeps reporting the old power.
	Stale bool
	// Races means that a power change ends after BMO has read the power and before it orders a change: BMO then orders nothing, and records
	// the wanted power as the current one. (bmh manageHostPower, last lines)
	Races bool
}

// Host is one host: its real state, what Ironic knows, and its faults. It is not safe for concurrent use.
type Host struct {
	Waits  Waits
	Times  Times
	Faults Faults

	// Pinned keeps the host in a provisioning state, whatever its object asks for.
	Pinned *bmov1alpha1.ProvisioningState
	// ClearsAllReboots makes inspecting, provisioning and deprovisioning delete every reboot annotation, as BMO does up to 0.13. Since 0.14
	// they delete only the one without a suffix. (bmh clearRebootAnnotations)
	ClearsAllReboots bool
	// NoConditions means that BMO writes no conditions, as before 0.13. (bmh computeConditions)
	NoConditions bool

	hardware hardware
	node     node
	// busy is the state in which a ramdisk works, and since is when it began.
	busy  bmov1alpha1.ProvisioningState
	since time.Time

	// failures is how many reconciles have failed in a row.
	failures int

	changes []Change
	wiped   bool
}

// Powered reports whether the power is really on.
func (h *Host) Powered() bool { return h.hardware.on }

// InRamdisk reports whether the host runs a ramdisk and not its disk.
func (h *Host) InRamdisk() bool { return h.hardware.on && h.hardware.ramdisk }

// Changes returns the power changes since its last call, oldest first.
func (h *Host) Changes() []Change {
	changes := h.changes
	h.changes = nil
	return changes
}

// Wiped reports whether the disk was wiped since its last call.
func (h *Host) Wiped() bool {
	wiped := h.wiped
	h.wiped = false
	return wiped
}

// Install makes the host known to Ironic with this power, as if it had been provisioned long ago.
func (h *Host) Install(on bool, now time.Time) {
	h.hardware.on = on
	h.node = node{known: true, power: powerOf(on), synced: now}
}

// GoesOff reports whether the power goes off by now. The caller stops the kubelet before that.
func (h *Host) GoesOff(now time.Time) bool {
	return h.hardware.order != "" && h.hardware.order != On && !h.hardware.ends.After(now)
}

// Press changes the power by hand. Nothing records it.
func (h *Host) Press(to Power, now time.Time) { h.become(to, false, now) }

// Stranded reports whether a ramdisk runs that no program knows of, because Ironic has lost its database.
func (h *Host) Stranded() bool { return h.hardware.on && h.hardware.ramdisk && !h.node.servicing }

// LoseDatabase makes Ironic forget the host, as if its database were deleted with its pod. Ironic registers it again when BMO asks for it.
func (h *Host) LoseDatabase() { h.node = node{} }
