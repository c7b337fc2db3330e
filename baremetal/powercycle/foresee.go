package powercycle

import (
	"strings"
	"time"
)

// Foresee returns the first moment after now at which time alone changes the step for f, and that step: nothing happens to the facts until
// then, and of what is remembered only what a pass at now leaves behind. The moment is zero if only an event changes anything, and also if
// the step does not wait: what comes of it is not foreseen.
func Foresee(f Facts, p Policy, now time.Time) (at time.Time, next Step) {
	step := Next(f, p, now)
	if step.Do != Wait {
		return time.Time{}, Step{}
	}
	f.Memory = After(f, step, now)
	for at = step.Again; !at.IsZero(); at = next.Again {
		if next = Next(f, p, at); !next.same(step) {
			return at, next
		}
	}
	return time.Time{}, Step{}
}

// same reports whether two steps are one, whenever they look again.
func (s Step) same(as Step) bool {
	return s.Do == as.Do && s.Next == as.Next && s.Reason == as.Reason && s.Why == as.Why
}

// Causes returns the reason of the step whose sentence a cause begins with (see Memory.Cause): that which led to the end, or to the
// hand-over. It is empty if there is no such step, as when what was remembered could not be read.
func Causes(cause string) (reason string) {
	longest := 0
	for state, rows := range rowsOf {
		for _, r := range rows {
			if leads := r.next != state && (r.next.Final() || r.next == HandingOver); leads && len(r.why) > longest && strings.HasPrefix(cause, r.why) {
				reason, longest = r.reason, len(r.why)
			}
		}
	}
	return reason
}
