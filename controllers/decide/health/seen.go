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
		signal := &now.Signals[i]
		before := slices.IndexFunc(s.Signals, signal.same)
		unseen := blind && signal.Since.After(s.At.Add(clockSlack)) && !signal.Since.After(ahead)
		switch {
		case before >= 0 && !unseen:
			signal.Since, signal.Late = s.Signals[before].Since, s.Signals[before].Late
		case signal.Since.IsZero(), signal.Since.After(ahead), signal.Since.Add(clockSlack).Before(Latest(created, s.At)):
			signal.Since, signal.Late = now.At, NotSinceStamp
		}
	}
	return now
}

func (s *Signal) same(other Signal) bool {
	return s.Source == other.Source && s.Type == other.Type && s.Status == other.Status
}

// Link is the state of the connection to a workload cluster.
type Link int

const (
	// Unsure means that an answer is awaited: the connection is being made, the nodes are being listed for the first time, or one probe went
	// unanswered. Nodes cannot be judged, but nothing is lost yet.
	Unsure Link = iota
	// Up means that the last probe was answered and the cache is filled.
	Up
	// Down means that the cluster failed to answer at least twice.
	Down
)

// Outage is the last time in which a workload cluster was out of reach; zero if it never was.
type Outage struct {
	// Ended is when it was reached again. Now says that this is the first look since, and Began since when it had been out of reach, which
	// a process that was started meanwhile does not know.
	Began, Ended time.Time
	Now          bool
}

// Lasted is how long an outage lasted that has ended now, and that was seen from its beginning; else zero, also if the clock was set back
// meanwhile.
func (o Outage) Lasted() time.Duration {
	if !o.Now || o.Began.IsZero() {
		return 0
	}
	return max(o.Ended.Sub(o.Began), 0)
}

// Through is what is seen now, where before was seen at the last look, given an outage. Time without contact does not count: its length is
// added to what was running when it began. What was first seen afterwards counts from when its writer, a kubelet or who looks into the
// cluster, has surely looked again.
func (s Seen) Through(before Seen, outage Outage) Seen {
	for i := range s.Signals {
		signal := &s.Signals[i]
		if signal.Source == OnMachine && !remote[signal.Type] || writtenBlind(*signal) {
			continue
		}
		ran := slices.ContainsFunc(before.Signals, func(other Signal) bool { return signal.same(other) && signal.Since.Equal(other.Since) })
		switch {
		case ran && !outage.Now:
		case ran && signal.Since.Before(outage.Began):
			signal.Since, signal.Late = signal.Since.Add(outage.Lasted()), ThroughOutage
		case signal.Since.Before(outage.Ended):
			signal.Since, signal.Late = outage.Ended.Add(Settling), NotSinceOutage
		}
	}
	return s
}
