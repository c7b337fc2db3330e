package health

import (
	"slices"
	"time"
)

// clockSlack is by how much a stamp and what this process saw may differ: as long as a kubelet takes to post a change.
const clockSlack = 10 * time.Second

// Look is a look of this process at the conditions of an object, and what it saw there before. Their stamps are of clocks of
// others: a kubelet that boots
// with the clock of 2020 says that it is not ready for years, one that is ahead that it will not be ready for hours, and a
// homemade reporter says nothing.
type Look struct {
	Now time.Time
	// Created is when the object was made, if no condition can be older; zero if one can.
	Created time.Time
	// Before is when this process last looked at the object, Rules what it looked for, and Was what it saw. They are zero at its first look.
	Before time.Time
	Rules  []Rule
	Was    []Signal
	// Blind says that a condition may have turned twice since then, unseen.
	Blind bool
}

// Dated are signals, each since when its status counts: since its stamp, unless that is missing or contradicts what this process
// saw. Then it counts from this
// look, and goes on to. The same status under another stamp is no turn.
func (l Look) Dated(signals []Signal) []Signal {
	dated := slices.Clone(signals)
	for i := range dated {
		l.date(&dated[i])
	}
	return dated
}

func (l Look) date(s *Signal) {
	earliest, ahead := l.Created, l.Now.Add(clockSlack)
	if l.lookedFor(s) {
		earliest = l.Before
	}
	turned := l.Blind && s.Since.After(l.Before.Add(clockSlack)) && !s.Since.After(ahead)
	for i := range l.Was {
		if was := &l.Was[i]; !turned && was.Source == s.Source && was.Type == s.Type && was.Status == s.Status {
			s.Since, s.Undated, earliest = was.Since, was.Undated, time.Time{}
		}
	}
	if s.Since.IsZero() || s.Since.After(ahead) || s.Since.Add(clockSlack).Before(earliest) {
		s.Since, s.Undated = l.Now, true
	}
}

// lookedFor reports whether this process would have seen s before.
func (l Look) lookedFor(s *Signal) bool {
	for i := range l.Rules {
		if l.Rules[i].matches(*s) {
			return true
		}
	}
	return false
}
