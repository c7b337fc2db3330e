package health

import (
	"slices"
	"time"
)

// clockSlack is by how much a stamp and what this process saw may differ: as long as a kubelet takes to post a change.
const clockSlack = 10 * time.Second

// Seen are the conditions of an object at the last look of this process, each since when its status counts. Their stamps are of clocks of
// others: a kubelet that boots with the clock of 2020 says that it is not ready for years, one whose clock is ahead that it will not be for
// hours, and a homemade reporter says nothing.
type Seen struct {
	Object  string    // its UID
	At      time.Time // zero if there was no look before, or if it was for other conditions
	Signals []Signal
}

// Next is what is seen now, given the signals as they are written. Each counts from its stamp, or from now, if that is missing, older than
// the object, or contradicts s; and goes on to as long as the status is the same, whatever its stamp says then. Only if this process was
// blind since s does a new stamp count: the condition may have turned twice.
func (s Seen) Next(now Seen, created time.Time, blind bool) Seen {
	if s.Object != now.Object {
		s = Seen{}
	}
	now.Signals = slices.Clone(now.Signals)
	ahead := now.At.Add(clockSlack)
	for i := range now.Signals {
		is, earliest := &now.Signals[i], later(created, s.At)
		unseen := blind && is.Since.After(s.At.Add(clockSlack)) && !is.Since.After(ahead)
		for _, was := range s.Signals {
			if !unseen && was.Source == is.Source && was.Type == is.Type && was.Status == is.Status {
				is.Since, is.Undated, earliest = was.Since, was.Undated, time.Time{}
			}
		}
		if is.Since.IsZero() || is.Since.After(ahead) || is.Since.Add(clockSlack).Before(earliest) {
			is.Since, is.Undated = now.At, true
		}
	}
	return now
}
