package explain

import "github.com/kubemend/kubemend/controllers/decide/budget"

// CountsThen is that a pending target counts as unhealthy when its timeout expires.
func CountsThen(target *Target) string {
	if first := firstToExpire(target.Findings); first != nil {
		return "it counts as unhealthy unless " + first.Unless
	}
	return "it counts as unhealthy if nothing changes"
}

// StillBlocked is that a rule blocks a remediation also when the timeout has expired, or that it is not known what happens then.
func StillBlocked(blocker *Blocker) string {
	if blocker.Reason == MissingPermission {
		return "; the action then is not known with your rights"
	}
	text := "; its remediation is still blocked then by " + named(blocker)
	if blocker.EndsWhen != "" {
		text += ", until " + blocker.EndsWhen
	}
	return text
}

// Ended is the step that ends a blocker which time does not end. That fewer targets are unhealthy, nobody sees to but a person.
func Ended(blocker *Blocker) Step {
	if blocker.Reason == string(budget.TooMany) && blocker.Cause != string(budget.TooFew) { // of both kinds of checks
		text := "repair what the unhealthy ones have in common"
		if blocker.EndsWhen != "" { // what a manager wrote on a Machine does not have it
			text += "; remediation resumes when " + blocker.EndsWhen
		}
		return Step{Reason: blocker.Reason, Manual: true, Text: text}
	}
	return Step{Reason: blocker.Reason, Text: Resumes(blocker)}
}

// Resumes is when a blocker ends, as far as that can be said, else what it is.
func Resumes(blocker *Blocker) string {
	if blocker.EndsWhen != "" {
		return "blocked. Resumes when " + blocker.EndsWhen
	}
	return "blocked by " + named(blocker)
}

// named is the reason of a blocker, with its numbers or name.
func named(blocker *Blocker) string {
	if blocker.Detail == "" {
		return blocker.Name()
	}
	return blocker.Reason + " (" + blocker.Detail + ")"
}
