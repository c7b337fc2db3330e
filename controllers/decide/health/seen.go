package health

import (
	"slices"
	"time"
)

// clockSlack is how much a condition's lastTransitionTime and what this process saw may differ: the time a kubelet takes to post a change.
const clockSlack = 10 * time.Second

// Seen is what this process last saw of an object's conditions. Each signal has the time since when its status counts, because
// lastTransitionTime is not reliable: a kubelet that boots with a clock of 2020 has been NotReady for years, with a clock that is ahead the
// transition is hours in the future, and a custom reporter may leave the field empty.
type Seen struct {
	Object  string    // UID of the object
	At      time.Time // zero if the conditions were not read before, or were read for other rules
	Signals []Signal
}

// Next returns now with the time since when each signal counts, where s is what was seen before.
//
// A signal counts from its lastTransitionTime, or from now, if that time is missing, in the future, older than the object, or older than s
// although s did not have the signal. While the status stays the same, later values of lastTransitionTime are ignored, unless the process
// was blind since s: then the status may have changed twice.
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
	// Unsure means that the manager is connecting, lists the Nodes for the first time, or one probe failed. Nodes cannot be judged, but the
	// connection does not count as lost yet.
	Unsure Link = iota
	// Up means that the last probe was answered and the cache is filled.
	Up
	// Down means that the cluster failed to answer at least twice.
	Down
)

// Outage is the last time span in which a workload cluster was out of reach; zero if there was none.
type Outage struct {
	Began time.Time // zero if the manager was started during the outage
	Ended time.Time // when the workload cluster was reached again
	Now   bool      // this is the first reconcile since Ended
}

// Lasted returns the length of an outage in the first reconcile after it; zero later, or if its beginning is not known, or if the clock was
// set back.
func (o Outage) Lasted() time.Duration {
	if !o.Now || o.Began.IsZero() {
		return 0
	}
	return max(o.Ended.Sub(o.Began), 0)
}

// Through returns s with the signals delayed because of an outage, where before is what the last reconcile saw. The outage does not count:
// its length is added to a signal that counted when the outage began. A signal that is first seen afterwards counts from when its writer
// (the kubelet, or a controller that reads the workload cluster) has surely checked it again.
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
