package nodes

import (
	"time"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Plan is what follows from the facts.
type Plan struct {
	Disabled   Disabled
	Population budget.Population
	Limits     budget.Limits
	Grant      budget.Grant
	Storm      budget.StormStep
	// Blockers is all that keeps anything new from starting, in the order in which it is reported. What has begun goes on.
	Blockers []Blocker
	// Decisions are about Facts.Nodes, in the same order; Order are the places of those about which something is done, in that order.
	Decisions []Decision
	Order     []int
	// Recheck is the first moment at which time alone changes the plan, NextDeadline the first at which it makes a node unhealthy; zero if
	// none.
	Recheck, NextDeadline time.Time
	Memory                Memory
}

// Blocker is why nothing new starts, as the check reports it; the zero Blocker if it may.
func (p *Plan) Blocker() Blocker { return headOf(p.Blockers) }

func headOf(blockers []Blocker) Blocker {
	if len(blockers) == 0 {
		return Blocker{}
	}
	return blockers[0]
}

// Minimum is how many nodes have to be healthy.
func (p *Plan) Minimum() int { return p.Population.Total() - p.Limits.AtMost }

// Decision is the part of a plan that is about one node.
type Decision struct {
	Verdict health.Verdict
	// Left says that the node is left to the MachineHealthCheck that ends such nodes, however it is.
	Left bool
	// Class is what the limits count it as; empty if they do not. InFlight says that they count a remediation of it.
	Class    budget.Class
	InFlight bool
	// Missing says that a remediation took the node away and nothing has replaced it yet, since MissedSince.
	Missing     bool
	MissedSince time.Time

	// Blockers is everything that keeps a remediation from starting, in the order in which it is asked. It starts exactly if there are none.
	Blockers []Blocker
	// Start is the step that starts, Would the one that starts when nothing blocks it any more; -1 if none does. Nothing says why none would.
	Start, Would int
	Nothing      Reason
	PassedOver   []int
	// GaveUp is what the escalation gives up first, Answer what it decides then; zero if it was not asked.
	GaveUp escalation.Decision
	Answer Answer

	Requests []RequestState // of Node.Requests
	// What is done about requests, by their places in Node.Requests: End those that are over, Flag (as old), Delay (the healthy delay begins),
	// Resume (it was begun in vain), Stop (the node is gone, and the remediator has to be notified), Adopt (a new failure begins with what is
	// left of the last one) and GiveUp (they have had their chance, and Notify says that their remediator has to be notified).
	End, Flag, Delay, Resume, Stop, Adopt, GiveUp []int
	Notify                                        bool
	Delayed                                       bool // the healthy delay goes on
	// Unconfirm says that the confirmation of a person that the node is healthy has served its purpose.
	Unconfirm bool
	Lease     LeaseAction
	Term      Term // of the lease that is taken or renewed
	// Remember are the requests that are gone and say something of the escalation still, by their places in Node.Gone.
	Remember []int
	// Recheck is the first moment at which time alone changes the decision, Next the first that users want to know of.
	Recheck time.Time
	Next    Moment
}

// Starts reports whether a remediation starts.
func (d *Decision) Starts() bool { return d.Start >= 0 }

// Blocker is the first blocker that there is to report; the zero Blocker if there is none.
func (d *Decision) Blocker() Blocker { return headOf(d.Blockers) }

// RequestState is what is decided of a request besides what is done about it.
type RequestState struct {
	// Counted is from when on the time of its step counts: its creation, or later if a new failure begins with it.
	Counted time.Time
	// Over says that it is being deleted because the node was healthy, or gone, since, and that nothing is done about the node since then.
	Over bool
	// Recovered says that it had succeeded when its node was seen healthy.
	Recovered bool
}

// Former reports whether the request was made before the node was healthy, or gone, the last time.
func (s RequestState) Former(r *Request) bool { return s.Over || s.Counted.After(r.Started()) }

// What is what happens at a moment.
type What string

// What happens to a node at moments that users want to know of.
const (
	DelayEnds     What = "HealthyDelayEnds"
	NodeStaysAway What = "NodeStaysAway"
	AskedAgain    What = "ReadAgain"
	StepExpires   What = "StepTimesOut"
)

// Moment is when something happens, and what. Text says it.
type Moment struct {
	At   time.Time
	What What
	Text string
}

// LeaseAction is what to do about a lease.
type LeaseAction int

// What is done about a lease.
const (
	KeepLease LeaseAction = iota
	TakeLease             // it has no holder, or none that still counts
	RenewLease
	DropLease
)

// Reason names a blocker.
type Reason string

// What keeps anything new from starting. Where the condition RemediationAllowed says the same, it has the same reason.
const (
	CheckDisabled Reason = "HealthCheckDisabled"
	Paused        Reason = "PauseRequested"
	Upgrading     Reason = "ClusterUpgrading"
)

// What keeps the remediation of one node from starting, in the order in which it is asked. The last three are also why nothing would start.
const (
	NotUnhealthy       Reason = "NotUnhealthy"
	NodeGone           Reason = "NodeGone"
	NotSelected        Reason = "NotSelected"
	MachineUnread      Reason = "MachineUnread"
	TemplateOfMachines Reason = "TemplateOfMachines"
	TemplateElsewhere  Reason = "TemplateInOtherNamespace"
	EtcdAtRisk         Reason = "EtcdAtRisk"
	EtcdUnread         Reason = "EtcdUnread"
	EtcdBudgets        Reason = "EtcdDisruptionBudgets"
	NoTemplate         Reason = "NoTemplate"
	NoTemplateLeft     Reason = "NoTemplateLeft"
	NoneFollows        Reason = "NoTemplateFollows" // that can be about the node
)
