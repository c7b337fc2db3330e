package powercycle

import (
	"fmt"
	"time"
)

// Foresee returns the first moment after now at which time alone changes the step for f, and that step: nothing happens to the facts until
// then, and of what is remembered only what a reconcile at now stores. The moment is zero if only an event changes anything, and also if
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
	return s.Do == as.Do && s.Next == as.Next && s.Reason == as.Reason && s.Detail == as.Detail
}

// Outcome says what comes of a step that is taken on f, as a clause.
func (s Step) Outcome(f Facts, p Policy) string {
	why := lowered(s.Message())
	switch {
	case s.Do == BeginAttempt && f.Attempt == 0:
		return fmt.Sprintf("the first attempt begins (1 of %d)", p.Attempts())
	case s.Do == BeginAttempt:
		return fmt.Sprintf("the attempt has failed, and the next one begins (%d of %d)", f.Attempt+1, p.Attempts())
	case s.Do == AskPerson:
		return why + "; a warning asks you to act"
	case s.Do == Advance && s.Next == RequestingOwner:
		return why + ", and the owner of the machine is asked to replace it"
	case s.Do == Advance && s.Next == Failed:
		return why + ", and the remediation has failed"
	case s.Do == Advance && s.Next.Final():
		return why + ", and the remediation ends"
	case s.Do == Advance:
		return why + "; next comes " + string(s.Next)
	}
	return why
}
