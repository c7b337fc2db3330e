package nodehealthcheck

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/explain"
)

// step is what one reconcile does about one node. It is decided before anything is done.
type step struct {
	target *target
	// end are requests that are over. flag are those that are counted as older than 48 hours.
	end, flag []*found
	// delay are requests that the healthy delay begins for, resume those that it was begun for in vain.
	delay, resume []*found
	// delayed says that the node is well, and that its requests are kept for the delay, or until a person confirms it.
	delayed bool
	// stop are requests whose node is gone: their remediators are told to stop, since some do not let go before that. adopt are requests of the
	// last time with which the present failure begins.
	stop, adopt []*found
	// giveUp are requests whose time is over, or which failed; tell says that their remediator has to be told.
	giveUp []*found
	tell   bool
	// start is the rung that begins; -1 if none does. Giving up comes first, and what that fails for does not begin.
	start int
	why   string // of giveUp, for people
	// passed says, for people, which steps right before start are passed over.
	passed []string
	lease  leasing
	term   term // of the lease that is taken or renewed
	// unconfirm says that the node's annotation by which a person confirmed that it is well has served its purpose.
	unconfirm bool
	// skipped is why nothing begins; nil if it does, or if there is nothing to begin.
	skipped *skip
	// climb is what the ladder answered; zero if it was not asked.
	climb escalation.Step
	// recheck is the first moment at which time alone changes the step; zero if none does. next is the first of them that users want to know of.
	recheck time.Time
	next    explain.Step
}

// idle reports whether s changes nothing, says nothing and waits for nothing.
func (s step) idle() bool {
	return len(s.end)+len(s.flag)+len(s.delay)+len(s.resume)+len(s.stop)+len(s.adopt)+len(s.giveUp) == 0 &&
		!s.delayed && s.start < 0 && s.lease == keepLease && !s.unconfirm && s.skipped == nil && s.recheck.IsZero()
}

// stepsOf decides the step of every target. Steps that change nothing are left out.
//
// What has begun is never held up by what the population allows: requests end, time out and follow each other, leases are renewed. Only
// what would add a node is.
func stepsOf(w *observed, s plan) []step {
	var steps []step
	for i := range w.targets {
		t := &w.targets[i]
		if next := stepFor(w, s, t); !next.idle() {
			steps = append(steps, next)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return comesFirst(w, a, b) })
	return steps
}

// comesFirst puts those first that begin something, and of these those that have been due for longest.
func comesFirst(w *observed, a, b step) int {
	return cmp.Or(cmp.Compare(begins(b), begins(a)), byAge(w, a, b))
}

func begins(s step) int {
	if s.start >= 0 {
		return 1
	}
	return 0
}

// byAge puts those first that have been due for longest.
func byAge(w *observed, a, b step) int {
	return a.target.verdict.OverdueSince(w.now).Compare(b.target.verdict.OverdueSince(w.now))
}
