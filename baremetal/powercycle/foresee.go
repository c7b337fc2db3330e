package powercycle

import "time"

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
