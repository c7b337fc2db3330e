package escalation

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Decide returns what comes next for a node that is unhealthy now.
//
// The current step is the highest one with a request, whatever is known of those below: an annotation that a remediator removed, or a lost
// status, makes no step be skipped or taken twice. From there on, the first of these that holds:
//
//  1. the step was given up: a remediator that does not know is notified first, then the next step is started;
//  2. the remediator has failed or stopped, or its time has passed: it is given up, also if its request is being deleted or is gone;
//  3. the request is being deleted: its end is waited for, since its name can be used once only;
//  4. the request is gone, or could not be made: the step is started again;
//  5. the remediator is waited for.
//
// A request is given up by its annotation and then by the check's status, and either of them counts: a crash between the two undoes
// nothing. A remediator that removes the annotation knew of it, and gets it again on the last step only, for a minute (NotifiedAgainFor).
//
// A single step without a timeout (spec.remediationTemplate) is never given up: nothing could follow. (medik8s gives it up after 30
// minutes.)
func Decide(steps []Step, requests []Request, now time.Time) Decision {
	here, asked := highest(len(steps), requests)
	switch {
	case len(steps) == 0:
		return Decision{Do: Exhausted, Reason: NoTemplateLeft}
	case here < 0:
		return Decision{Do: Start, Reason: FirstStep}
	case len(steps) == 1 && steps[0].Timeout <= 0:
		return alone(latest(asked), now)
	}
	if slices.ContainsFunc(asked, Request.givenUp) {
		return afterGivingUp(len(steps), here, asked, now)
	}
	return current(steps[here], here, asked, now)
}

// highest returns the highest of n steps that has a request, with its requests; -1 if none has.
func highest(n int, requests []Request) (step int, asked []Request) {
	step = -1
	for _, r := range requests {
		if r.Step < 0 || r.Step >= n || r.Step < step {
			continue
		}
		if r.Step > step {
			step, asked = r.Step, nil
		}
		asked = append(asked, r)
	}
	return step, asked
}

// latest is the request to go by: one that exists before one that is gone (the status may remember one that was made again), then the
// youngest.
func latest(asked []Request) Request {
	l := asked[0]
	for _, r := range asked[1:] {
		if r.Gone != l.Gone {
			if l.Gone {
				l = r
			}
			continue
		}
		if r.Started.After(l.Started) {
			l = r
		}
	}
	return l
}

// afterGivingUp decides on a step of which one request was given up: a copy of it that a person made does not begin the step anew.
func afterGivingUp(steps, here int, asked []Request, now time.Time) Decision {
	last := here == steps-1
	if slices.ContainsFunc(asked, Request.unaware) {
		d := Decision{Do: GiveUp, Step: here, Notify: true, Reason: NotNotified}
		if last {
			d.Recheck = lastGivenUp(asked).Add(NotifiedAgainFor)
		}
		if !last || now.Before(d.Recheck) {
			return d
		}
	}
	if last {
		return Decision{Do: Exhausted, Step: here, Reason: NoTemplateLeft}
	}
	return Decision{Do: Start, Step: here + 1, Reason: NextStep}
}

func lastGivenUp(asked []Request) time.Time {
	return slices.MaxFunc(asked, func(a, b Request) int { return a.GivenUp.Compare(b.GivenUp) }).GivenUp
}

func (r Request) givenUp() bool { return r.Notified || !r.GivenUp.IsZero() }

// unaware reports whether r has a remediator that would go on, if r was given up.
func (r Request) unaware() bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }

// began is when a step was begun. A request that is made again has the time that was left: else a remediator that deletes its own blocks
// the rest.
func began(asked []Request) time.Time {
	return slices.MinFunc(asked, func(a, b Request) int { return a.Started.Compare(b.Started) }).Started
}

// current returns the decision on a step that was not given up.
func current(step Step, here int, asked []Request, now time.Time) Decision {
	since := began(asked)
	d := Decision{Step: here}
	d.Do, d.Reason = progress(latest(asked))
	if step.Timeout > 0 {
		d.Expires = since.Add(step.Timeout)
	}
	for _, e := range ends(step, latest(asked), since) {
		if !now.Before(e.due) {
			return Decision{Do: GiveUp, Step: here, Notify: slices.ContainsFunc(asked, Request.unaware), Reason: e.reason}
		}
		d.Recheck = health.Earliest(d.Recheck, e.due)
	}
	return awaitingBoot(d, latest(asked), now)
}

// awaitingBoot is d, which waits for a node whose remediator has succeeded and deleted its request no longer than a boot may take, where no
// timeout of the step ends that.
func awaitingBoot(d Decision, r Request, now time.Time) Decision {
	if !r.Gone || d.Do != Wait || !d.Recheck.IsZero() {
		return d
	}
	if d.Recheck = r.Started.Add(BootsFor); !now.Before(d.Recheck) {
		return Decision{Do: Start, Step: d.Step, Reason: Vanished}
	}
	return d
}

// progress returns what is done about a step whose current request is r, as long as nothing ends it.
func progress(r Request) (Action, string) {
	switch {
	case r.Refused:
		return Start, NotMade
	case r.Gone && r.Succeeded == Yes:
		return Wait, AwaitingNode
	case r.Gone:
		return Start, Vanished
	case r.Deleting:
		return Wait, AwaitingDeletion
	case r.Succeeded == Yes:
		return Wait, AwaitingNode
	}
	return Wait, InProgress
}

// alone returns the decision about the only template of a check without an escalation: nothing follows, however it ends.
func alone(r Request, now time.Time) Decision {
	d := Decision{}
	switch d.Do, d.Reason = progress(r); {
	case d.Reason != InProgress:
	case r.Notified: // the failure that is reported may well be its effect
		d.Reason = ToldToStop
	case r.Succeeded == No:
		d.Reason = Failed
	case r.stopped():
		d.Reason = Stopped
	}
	return awaitingBoot(d, r, now)
}

// end is a reason to give a request up, which holds from due on; a zero due holds at once.
type end struct {
	reason string
	due    time.Time
}

// ends returns what will end r, on a step that was begun at since, if nothing changes; the most telling reason first.
func ends(step Step, r Request, since time.Time) []end {
	var all []end
	switch {
	case r.Succeeded == No:
		all = append(all, end{reason: Failed})
	case r.stopped():
		all = append(all, end{Stopped, r.stoppedSince().Add(StoppedFor)})
	}
	timedOut := TimedOut
	if r.Refused {
		timedOut = NeverMade
	}
	if step.Timeout > 0 {
		all = append(all, end{timedOut, since.Add(step.Timeout)})
	}
	return all
}

// stopped reports whether r is not worked on by a remediator that never speaks of success. One that does speak of it is not judged by
// Processing: that gave up too early where a reboot is slow (NodeHealthCheck issue 208).
func (r Request) stopped() bool { return r.Succeeded == Unsaid && r.Processing == No }

// stoppedSince is never before the request was made: a condition that has no time of its own has stood since then at most.
func (r Request) stoppedSince() time.Time {
	if r.ProcessingSince.Before(r.Started) {
		return r.Started
	}
	return r.ProcessingSince
}
