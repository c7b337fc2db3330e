package workload

import "time"

const (
	// lostWithin is how long a request without an answer counts. Answers in between change nothing: a server that answers every other request holds
	// as many workers.
	lostWithin = time.Minute
	// firstPause and longestPause are how long a cluster is left alone before the next trial.
	firstPause, longestPause = 10 * time.Second, time.Minute
	// calm is how long after a pause the next failure has to come for the pauses to begin anew.
	calm = 10 * time.Minute
)

// pause is how long something lasts that was caused by a failure, and until when.
type pause struct {
	lasts time.Duration
	until time.Time
}

// next is the pause after another failure at now: twice as long, unless all was well for a while.
func (p pause) next(now time.Time) pause {
	lasts := firstPause
	if p.lasts > 0 && now.Sub(p.until) < calm {
		lasts = min(2*p.lasts, longestPause)
	}
	return pause{lasts: lasts, until: now.Add(lasts)}
}

// circuit decides whether one workload cluster is asked. It is open after two requests without an answer within a minute: nothing is sent
// but a trial after each pause, whose answer closes it.
type circuit struct {
	open   bool
	trial  bool      // the trial is under way
	missed time.Time // when the last request ended that had no answer in time, as far as it counts
	pause  pause
}

// rests reports whether nothing is sent at now, not even a trial.
func (c *circuit) rests(now time.Time) bool { return c.open && (c.trial || now.Before(c.pause.until)) }

// end notes that a request has ended at now: answered, or without an answer in time. trial says that it was one.
func (c *circuit) end(now time.Time, answered, trial bool) {
	switch {
	case trial && answered:
		c.open, c.trial, c.missed = false, false, time.Time{}
	case trial:
		c.trial, c.pause = false, c.pause.next(now)
	case answered, c.open: // what was sent before it opened says nothing new
	case c.missed.IsZero() || now.Sub(c.missed) >= lostWithin:
		c.missed = now
	default:
		c.open, c.pause = true, c.pause.next(now)
	}
}
