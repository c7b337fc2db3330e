package machinehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Plan is what follows from the facts.
type Plan struct {
	// Needs are facts without which the plan is not final: read them, and decide again.
	Needs      Needs
	Population budget.Population
	Grant      budget.Grant
	Storm      budget.StormStep
	// Conditions are those of the check to set, or, if they have no status, to remove; all others stand. One without a time is as it is
	// from now on, if that is news. Reach is WorkloadClusterReachable, Allowed is RemediationAllowed, whether they are among them or not.
	Conditions     []metav1.Condition
	Reach, Allowed metav1.Condition
	// AllRequested says that no remediation request is outstanding that was to be made.
	AllRequested bool
	// Restriction is the reason of Allowed if the limits keep a machine from being remediated, or cannot be read.
	Restriction string
	// Decisions are about Facts.Targets, in the same order.
	Decisions []*Decision
	// Open are the places of those about which there is something to decide. All others are about machines that are healthy, and do
	// nothing.
	Open []int
	// Recheck is the first moment at which time alone starts a remediation or changes the grant; zero if it never does. VerdictsUntil is
	// the first one at which time alone changes what is known of a machine.
	Recheck, VerdictsUntil time.Time
	// JustSeen says that a remediation waits for the changes that come with the one that was seen first.
	JustSeen bool
	Memory   Memory
}

// Decision is the part of a plan that is about one machine.
type Decision struct {
	Target  *Target
	Verdict health.Verdict
	// InFlight says that a remediation was begun and is not over.
	InFlight bool
	// Waits says that nothing about the machine itself blocks its remediation: it starts as soon as the limits allow it.
	Waits bool
	// Tried says that it is the machine's turn, so that a request is made for it if the template allows that.
	Tried bool
	// Blockers is everything that keeps a remediation from starting, in the order in which a person would ask. It starts exactly if there
	// are none and none is in flight.
	Blockers []Blocker
	// Step is what is done about the machine, and Conditions are those to set on it or, if they have no status, to remove. The message of a
	// failed health check is made when it is written, in two flavours.
	Step       Step
	Conditions []metav1.Condition
	// AwaitsTurn says that its failure is contradicted, and that it is not its turn.
	AwaitsTurn bool
	// SettlesAt is until when it may be the first of many that fail, or recover, in the same moment; zero if it is not put off for that.
	SettlesAt time.Time
	// Spare is what was found for a remediation that waits for a spare host, or that a spare host lets start; nil if it needs none.
	Spare *Spare
}

// Starts reports whether a remediation of the machine starts now. A machine that nothing blocks and that has none in flight is always
// tried, so this is more than it takes; a decision that was never made starts nothing.
func (decision *Decision) Starts() bool { return decision.Tried && len(decision.Blockers) == 0 }

// Acts reports whether decision begins a remediation, ends one, or marks the machine unhealthy, which was not.
func (decision *Decision) Acts() bool {
	marks := Failed(decision.Target.Machine) == nil && decision.Sets(HealthCheckSucceeded, metav1.ConditionFalse)
	return marks || decision.Starts() || decision.Step == DeleteRequest
}

// leftToCycle reports whether the machine is unhealthy and left to a power cycle that the check did not request.
func (decision *Decision) leftToCycle() bool {
	return decision.Target.Cycle != nil && decision.Verdict.State == health.Unhealthy && !Deleting(decision.Target.Machine)
}

// Blocker is a rule that keeps a remediation from starting, with its words; of one that is not told they are empty.
type Blocker struct {
	Rule Reason
	rule.Blocker
}

// BlockedBy is what blocks decision by that rule; nil if it does not.
func (decision *Decision) BlockedBy(by Reason) *Blocker {
	i := slices.IndexFunc(decision.Blockers, func(blocker Blocker) bool { return blocker.Rule == by })
	if i < 0 {
		return nil
	}
	return &decision.Blockers[i]
}

// Blocked reports whether decision is blocked by that rule.
func (decision *Decision) Blocked(by Reason) bool { return decision.BlockedBy(by) != nil }
