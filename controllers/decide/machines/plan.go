package machines

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Plan is what follows from the facts.
type Plan struct {
	// Needs are facts without which the plan is not final: read them, and decide again.
	Needs      Needs
	Population budget.Population
	Grant      budget.Grant
	Storm      budget.StormStep
	// Conditions are those of the check to set or to remove; all others stand. Reach is WorkloadClusterReachable, Allowed is RemediationAllowed, whether they
	// are among them or not.
	Conditions     []Condition
	Reach, Allowed Condition
	// AllRequested says that no remediation request is outstanding that was to be made.
	AllRequested bool
	// Restriction is the reason of Allowed if the limits keep a machine from being remediated, or cannot be read.
	Restriction string
	// Decisions are about Facts.Targets, in the same order.
	Decisions []*Decision
	// Open are the places of those about which there is something to decide. All others are about machines that are healthy, and do nothing.
	Open []int
	// Releases are those about Facts.Skipped, as far as there is something to do.
	Releases []*Decision
	// Recheck is the first moment at which time alone starts a remediation or changes the grant; zero if it never does. VerdictsUntil is the first
	// one at which time alone changes what is known of a machine.
	Recheck, VerdictsUntil time.Time
	// JustSeen says that a remediation waits for the changes that come with the one that was seen first.
	JustSeen bool
	Memory   Memory
}

// Decision is the part of a plan that is about one machine.
type Decision struct {
	Target  *Target
	Verdict health.Verdict
	// InFlight says that a remediation was begun and is not over, Begun that this process began it and that it cannot be observed yet.
	InFlight, Begun bool
	// Waits says that nothing about the machine itself blocks its remediation: it starts as soon as the limits allow it.
	Waits bool
	// Tried says that it is the machine's turn, so that a request is made for it if the template allows that.
	Tried bool
	// Blockers is everything that keeps a remediation from starting, in the order in which a person would ask. It starts exactly if there are
	// none and none is in flight.
	Blockers []Blocker
	// Step is what is done about the machine, and Conditions are those to set on it.
	Step       Step
	Conditions []Condition
	// Spare is what was found for a remediation that waits for a spare host, or that a spare host lets start; nil if it needs none.
	Spare *Spare
}

// Starts reports whether a remediation of the machine starts now. A machine that nothing blocks and that has none in flight is always tried, so
// this is more than it takes; a decision that was never made starts nothing.
func (d *Decision) Starts() bool { return d.Tried && len(d.Blockers) == 0 }

// Acts reports whether d begins a remediation, ends one, or marks the machine unhealthy, which was not.
func (d *Decision) Acts() bool {
	return d.Starts() || d.Step == DeleteRequest || !d.Target.Failed && d.Sets(HealthCheckSucceeded, conditionFalse)
}

// Blocker is one reason why a remediation does not start.
type Blocker struct {
	Reason Reason
	// Until is when time alone ends it; zero if it does not.
	Until time.Time
}

// Blocked reports whether d has a blocker of that reason.
func (d *Decision) Blocked(by Reason) bool {
	for _, b := range d.Blockers {
		if b.Reason == by {
			return true
		}
	}
	return false
}

// Reason names a blocker. Where a condition or an event says the same, it has the same reason.
type Reason string

// The blockers, in the order in which they are asked for.
const (
	// NotUnhealthy is a machine that nothing is held against, or nothing that counts.
	NotUnhealthy Reason = "NotUnhealthy"
	// MachineDeleting is a machine that is being deleted: there is nothing left to remediate.
	MachineDeleting Reason = "MachineBeingDeleted"
	// OlderCheckActs is a machine that an older check selects too.
	OlderCheckActs Reason = "OverlappingCheck"
	// NotActing is a check that kubemend does not act on.
	NotActing Reason = "NotActing"
	// ControlPlaneNotInitialized and InfrastructureNotReady are a Cluster whose machines are not judged yet.
	ControlPlaneNotInitialized Reason = "ControlPlaneNotInitialized"
	InfrastructureNotReady     Reason = "InfrastructureNotReady"
	// ClusterUnreachable is a workload cluster whose nodes cannot be read.
	ClusterUnreachable Reason = "WorkloadClusterUnreachable"
	// AwaitsClusterAPI is a machine that Cluster API has not looked at since a pause.
	AwaitsClusterAPI Reason = "AwaitsClusterAPI"
	// NodeNotSeen is a machine whose node the cache does not have, while the workload cluster could not be asked whether it exists.
	NodeNotSeen Reason = "NodeNotSeen"
	// WithinTimeout is a machine whose timeout has not expired, or that waits for its first node without one.
	WithinTimeout Reason = "WithinTimeout"
	// MachineUpdating is a machine that is being updated in place.
	MachineUpdating Reason = "MachineBeingUpdated"
	// PowerCycleInProgress is a machine whose host is power-cycled, which the check did not request.
	PowerCycleInProgress Reason = "RemediationUnderWay"
	// PowerCyclesUnread is a machine on a host while it is not known which power cycles are in progress.
	PowerCyclesUnread Reason = "PowerCyclesUnread"
	// JustSeen is a machine that may be the first of many that fail, or recover, in the same moment.
	JustSeen Reason = "JustSeen"
	// InvalidLimit is a check whose limits or cooldown cannot be read.
	InvalidLimit Reason = "InvalidLimit"
	// TooManyUnhealthy and TooFewUnhealthy are what the limits forbid.
	TooManyUnhealthy Reason = "TooManyUnhealthy"
	TooFewUnhealthy  Reason = "TooFewUnhealthy"
	// CoolingDown is the time after too many machines were not healthy.
	CoolingDown Reason = "CoolingDown"
	// NoneAtOnce is a check that allows no remediation to be in flight.
	NoneAtOnce Reason = "NoneAtOnce"
	// RemediationsInProgress is a machine that waits in the queue, since as many are in flight as may be.
	RemediationsInProgress Reason = "RemediationsInProgress"
	// FailureContradicted is a failed machine whose node is Ready, while the one before it is not back.
	FailureContradicted Reason = "FailureContradicted"
	// QueueUnread is a machine whose place in the queue is not known to a reader that has not read the other machines.
	QueueUnread Reason = "QueueUnread"
	// RequestInTheWay is a machine for which there is a request that is not the check's.
	RequestInTheWay Reason = "RequestInTheWay"
	// TemplateUnread, TemplateRefused, TemplateMissing and RequestsUnread are checks for which no request can be made.
	TemplateUnread  Reason = "TemplateUnread"
	TemplateRefused Reason = "TemplateRefused"
	TemplateMissing Reason = "TemplateMissing"
	RequestsUnread  Reason = "RequestsUnread"
	// TemplateUnusable is a machine for which no request can be made from the template as it is.
	TemplateUnusable Reason = "TemplateUnusable"
	// NoSpareHost is a machine on bare metal whose replacement would find no host, of a check that waits for one.
	NoSpareHost Reason = "NoSpareHost"
	// SpareHostsUnread is one of which that is not known.
	SpareHostsUnread Reason = "SpareHostsUnread"
)

// Unjudged reports whether r says why a machine could not be judged.
func (r Reason) Unjudged() bool {
	switch r {
	case ControlPlaneNotInitialized, InfrastructureNotReady, ClusterUnreachable, AwaitsClusterAPI, NodeNotSeen:
		return true
	}
	return false
}
