package explain

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
