package explain

import (
	"fmt"
	"time"
)

// Why something was not read, as clauses.
const (
	NodesNotAsked              = "its nodes were not read"
	ControlPlaneNotInitialized = "its control plane is not initialized yet"
	NoAnswer                   = "no answer came in time"
)

// ClockDiffers is that the clock of this machine is ahead of that of the API server, or behind it if ahead is negative.
func ClockDiffers(ahead time.Duration) string {
	is := "ahead of"
	if ahead < 0 {
		ahead, is = -ahead, "behind"
	}
	return fmt.Sprintf("the clock of this machine is %s %s that of the API server, which is the one that counts here", ahead.Round(time.Second), is)
}

// Step is the step that is taken, with its reason if that is not the state.
func (r *Remediation) Step() string {
	if r.Reason == r.State {
		return r.Message
	}
	return r.Reason + ": " + r.Message
}

// Since is since when the remediation is in its state, and until when it may be.
func (r *Remediation) Since(at Moment) string {
	text := "In this state since " + at(r.StateSince.Time)
	if !r.Deadline.IsZero() {
		text += ", deadline " + at(r.Deadline.Time)
	}
	return text
}
