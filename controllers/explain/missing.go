package explain

import (
	"fmt"

	"github.com/kubemend/kubemend/controllers/decide/record"
)

// MissingCapacity is the capacity of remediations that are not over.
type MissingCapacity struct {
	Remediations int
	// Oldest is what is remediated for the longest time, and Due since when.
	Oldest, Due string
	// Reason is what that waits for, Message the same as a sentence.
	Reason, Message string
}

// String is m as a clause.
func (m MissingCapacity) String() string {
	s := fmt.Sprintf("the capacity of %s, since %s", m.Oldest, m.Due)
	if m.Remediations > 1 {
		s = fmt.Sprintf("the capacity of %d remediations; of %s since %s", m.Remediations, m.Oldest, m.Due)
	}
	switch {
	case m.Reason == record.Unread:
		return s + "; what it waits for is not known yet"
	case m.Message == "":
		return s + ": " + m.Reason
	}
	return s + ": " + m.Reason + ": " + m.Message
}

// MissingInAll is of how many remediations the capacity is missing, to go on behind other totals; empty if of none.
func MissingInAll(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " The capacity of 1 remediation is not back."
	}
	return fmt.Sprintf(" The capacity of %d remediations is not back.", n)
}
