package machinehealthcheck

import (
	"cmp"

	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Rule is one reason for which no remediation of a machine begins.
type Rule struct {
	Reason Reason
	asked  stage
	// Else says that the rule is asked only if the rule before it does not block, nor any of the rules whose Else that one is: so one
	// reason is given for what several rules would say.
	Else bool
	When func(*Case) bool
	// Words are what users are told: the message, what ends it, and what a person can do. Their reason is that of the rule unless they
	// have another one. A rule without words is not told.
	Words func(*Case) rule.Blocker
}

// stage is when a rule is asked.
type stage int

const (
	// ofEach rules are asked of each machine, before it is known how many wait.
	ofEach stage = iota
	// unlessBegun rules are too, but not while a remediation of the machine is in flight.
	unlessBegun
	// ofAll rules depend on the other machines, or on what was read once it was known which machines wait. They are not asked while a
	// remediation is in flight: it has begun, and the limits have counted it.
	ofAll
)

// Case is one machine with all that rules depend on. Of the plan it is the part that was decided so far.
type Case struct {
	*Facts
	*Decision
	plan *Plan
}

// ask adds to the blockers of decision the rules of the stage ofAll, or those of the stages before it.
func ask(facts *Facts, plan *Plan, decision *Decision, all bool) {
	c, blocked := &Case{Facts: facts, Decision: decision, plan: plan}, false
	for i := range rules {
		r := &rules[i]
		if (r.asked == ofAll) != all || r.asked != ofEach && decision.InFlight || r.Else && blocked {
			continue
		}
		if blocked = r.When(c); !blocked {
			continue
		}
		b := Blocker{Rule: r.Reason}
		if r.Words != nil {
			b.Blocker = r.Words(c)
			b.Reason = cmp.Or(b.Reason, string(r.Reason))
		}
		decision.Blockers = append(decision.Blockers, b)
	}
}
