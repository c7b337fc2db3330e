package workload

import (
	"slices"
	"time"
)

const (
	// AnswerWithin is the one deadline of all that a reconcile of a check or of a power cycle reads live from a workload cluster.
	AnswerWithin = 10 * time.Second
	// atOnce is how many requests to one workload cluster are under way at the same time.
	atOnce = 5
	// mostWaiting is how many requests to all clusters may be older than queueWithin: half as many as there are workers of power cycles, by default.
	mostWaiting = 10
	// queueWithin is how old a request may be until the next one is no longer queued behind it: a worker that waits for a slow cluster is missing
	// elsewhere.
	queueWithin = time.Second
	// late is from when on an answer counts as none. Who answers only just in time holds workers as who does not answer.
	late = AnswerWithin / 2
	// lostWithin is how long a request without an answer counts. Answers in between change nothing: a server that answers every other request holds
	// as many workers.
	lostWithin = time.Minute
	// firstPause and longestPause are how long a cluster is left alone before the next trial.
	firstPause, longestPause = 10 * time.Second, time.Minute
	// calm is how long after a circuit closed it has to open again for the pause to begin anew.
	calm = 10 * time.Minute
)

// circuit decides whether one workload cluster is asked. It is a value: admit says what is to be done, and begin and end return what is then.
type circuit struct {
	// begun is when each of the requests that are under way began, in order.
	begun []time.Time
	// unanswered is when each request of the last minute ended that had no answer in time, in order, as far as they count.
	unanswered []time.Time
	// until is when an open circuit lets one request try; zero if it is closed.
	until time.Time
	// pause is how long it was, or will be, left alone; trial says that the trial is under way, since when closed is.
	pause  time.Duration
	trial  bool
	closed time.Time
}

// admission is what becomes of a request.
type admission int

const (
	// goes: it is sent.
	goes admission = iota
	// queues: it waits until another one ends, or until the moment that comes with it.
	queues
	// refused: it fails at once.
	refused
)

// admit decides what becomes of a request at now. Of one that queues it says when to decide again, should none have ended until then.
func (c circuit) admit(now time.Time) (admission, time.Time) {
	switch {
	case c.rests(now):
		return refused, time.Time{}
	case c.open(), len(c.begun) < atOnce:
		return goes, time.Time{}
	case now.Before(c.begun[0].Add(queueWithin)):
		return queues, c.begun[0].Add(queueWithin)
	}
	return refused, time.Time{}
}

// open reports whether the circuit is open: nothing goes but a trial.
func (c circuit) open() bool { return !c.until.IsZero() }

// rests reports whether nothing goes at now, not even a trial.
func (c circuit) rests(now time.Time) bool { return c.open() && (c.trial || now.Before(c.until)) }

// begin is the circuit once a request was sent at now, which admit allowed.
func (c circuit) begin(now time.Time) circuit {
	c.begun = append(slices.Clone(c.begun), now)
	c.trial = c.open()
	return c
}

// end is the circuit once a request that was sent at began has ended at now: answered, or without an answer in time. trial says that it was one.
func (c circuit) end(began, now time.Time, answered, trial bool) circuit {
	c.begun = slices.Clone(c.begun)
	if at := slices.IndexFunc(c.begun, began.Equal); at >= 0 {
		c.begun = slices.Delete(c.begun, at, at+1)
	}
	switch {
	case trial && answered:
		return circuit{begun: c.begun, pause: c.pause, closed: now}
	case trial:
		c.trial, c.pause = false, min(2*c.pause, longestPause)
		c.until = now.Add(c.pause)
	case answered, c.open(): // what was sent before it opened says nothing new
	default:
		c = c.missed(now)
	}
	return c
}

// missed is the circuit once a request had no answer: open if it is the second one within a minute.
func (c circuit) missed(now time.Time) circuit {
	c.unanswered = append(slices.Clone(c.unanswered), now)
	c.unanswered = slices.DeleteFunc(c.unanswered, func(at time.Time) bool { return now.Sub(at) >= lostWithin })
	if len(c.unanswered) < lost {
		return c
	}
	if c.pause == 0 || now.Sub(c.closed) >= calm {
		c.pause = firstPause
	} else {
		c.pause = min(2*c.pause, longestPause)
	}
	c.unanswered, c.until = nil, now.Add(c.pause)
	return c
}
