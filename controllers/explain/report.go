package explain

import "fmt"

// What reports say of records.
const (
	// NoRecordsKept is that there are no RemediationRecords, since their kind is not installed.
	NoRecordsKept = "RemediationRecords are not installed, so no remediation was recorded."
)

// RemediationsCounted is how many remediations a report counts; since is empty if it is all of them.
func RemediationsCounted(begun, open, notBegun int, since string) string {
	s := fmt.Sprintf("Remediations%s: %d", sinceWhen(since), begun)
	if open > 0 {
		s += fmt.Sprintf(", %d of them open", open)
	}
	if notBegun > 0 {
		s += fmt.Sprintf("; %d decided and not begun", notBegun)
	}
	return s + "."
}

func sinceWhen(since string) string {
	if since == "" {
		return ""
	}
	return " since " + since
}

// FailuresCompared is how many failures a shadow report compares.
func FailuresCompared(n int, since string) string {
	return fmt.Sprintf("Failures%s that kubemend observed: %d.", sinceWhen(since), n)
}

// Comparison is what kubemend would have done beside what was done, as a line of a shadow report says it.
func Comparison(is string) string {
	return map[string]string{
		"Both":         "kubemend would have begun, and others did",
		"OnlyKubemend": "only kubemend would have begun",
		"OnlyOthers":   "only others began",
		"HealedBefore": "healed by themselves before kubemend would have begun",
		"HealedAfter":  "healed by themselves after kubemend would have begun",
		"Unknown":      "of which it is not known how they went on",
	}[is]
}

// FailuresThatDiffer is the heading of the failures of a shadow report.
func FailuresThatDiffer(all bool) string {
	if all {
		return "All failures:"
	}
	return "Failures that differ (all: -o wide):"
}

// RecordDecided is that a remediation was decided, and by what.
func RecordDecided(observed bool, cause string, check Ref, user string) string {
	s := "remediation decided"
	if observed {
		s = "kubemend would remediate, and only observes"
	}
	switch {
	case user != "":
		s += ", requested by " + user
	case check.Name != "":
		s += " for " + check.String()
	}
	if cause != "" {
		s += ": " + cause
	}
	return s
}

// RecordBegun is that a remediation was begun, and who began it.
func RecordBegun(by string) string {
	if by == "" {
		return "remediation begun"
	}
	return "remediation begun by " + by
}

// RecordCapacityBack is that the capacity is back, and by which Machine if it is another one.
func RecordCapacityBack(replacement string, guessed bool) string {
	switch {
	case replacement == "":
		return "capacity is back"
	case guessed:
		return "capacity is back, probably by Machine " + replacement
	}
	return "capacity is back by Machine " + replacement
}

// RecordEnded is how a remediation has ended, and who ended it.
func RecordEnded(outcome, by string) string {
	s := "remediation ended: " + outcome
	if by != "" {
		s += ", by " + by
	}
	return s
}
