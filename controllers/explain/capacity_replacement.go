package explain

import (
	"fmt"

	"github.com/kubemend/kubemend/controllers/decide/capacity"
)

// Replacement is which machine replaces which, and by what that was found; of a guess it says "probably". It is empty if there is none.
func Replacement(old string, r capacity.Replacement) string {
	if r.Name == "" {
		return ""
	}
	if !r.Guess() {
		return fmt.Sprintf("Machine %s replaces Machine %s", r.Name, old)
	}
	return fmt.Sprintf("Machine %s probably replaces Machine %s (%s)", r.Name, old, foundBy[r.By])
}

// foundBy is by what it was found which machine replaces which, where that is a guess.
var foundBy = map[capacity.Evidence]string{
	capacity.Remembered: "by the RemediationRecord of that machine",
	capacity.SameHost:   "it has the same host",
	capacity.Alone:      "it is the only one that its owner has made since",
	capacity.ByOrder:    "by the order in which machines were lost and made",
}

// Predecessor is the machine that another was made for, as a fact about that one; of a guess it says "probably". It is empty if that is not known.
func Predecessor(r capacity.Replacement) string {
	if r.Name == "" || !r.Guess() {
		return r.Name
	}
	return fmt.Sprintf("probably %s (%s)", r.Name, foundBy[r.By])
}

// lost is that a machine is gone; of one that its owner lacks the name need not be known.
func lost(s *capacity.Story) string {
	if s.Old == "" {
		return "a machine is missing"
	}
	return "Machine " + s.Old + " is gone"
}
