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
		return alone(asked[0], now)
	}
	if slices.ContainsFunc(asked, Request.givenUp) {
		return afterGivingUp(len(steps), here, asked, now)
	}
	return current(steps[here], here, asked, now)
}

// highest returns the highest of n steps that has a request, with its requests, the one to go by first: one that exists before one that is
// gone (the status may remember one that was made again), then the youngest. The step is -1 if none has one.
func highest(n int, requests []Request) (step int, asked []Request) {
	step = -1
	for _, r := range requests {
		if r.Step < n {
			step = max(step, r.Step)
		}
	}
	asked = slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return r.Step != step || step < 0 })
	slices.SortStableFunc(asked, func(a, b Request) int {
		switch {
		case a.Gone == b.Gone:
			return b.Started.Compare(a.Started)
		case a.Gone:
			return 1
		}
		return -1
	})
	return step, asked
}

// afterGivingUp decides on a step of which one request was given up: a copy of it that a person made does not begin the step anew.
func afterGivingUp(steps, here int, asked []Request, now time.Time) Decision {
	last := here == steps-1
	if slices.ContainsFunc(asked, Request.unaware) {
		d := Decision{Do: GiveUp, Step: here, Notify: true, Reason: NotNotified}
		if last {
			givenUp := slices.MaxFunc(asked, func(a, b Request) int { return a.GivenUp.Compare(b.GivenUp) }).GivenUp
			d.Recheck = givenUp.Add(NotifiedAgainFor)
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

func (r Request) givenUp() bool { return r.Notified || !r.GivenUp.IsZero() }

// unaware reports whether r has a remediator that would go on, if r was given up.
func (r Request) unaware() bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }

// current returns the decision on a step that was not given up. A request that is made again has the time that was left: else a remediator
// that deletes its own requests would keep the node on the step.
func current(step Step, here int, asked []Request, now time.Time) Decision {
	r, d := asked[0], Decision{Step: here}
	d.Do, d.Reason = progress(r)
	if step.Timeout > 0 {
		began := slices.MinFunc(asked, func(a, b Request) int { return a.Started.Compare(b.Started) }).Started
		d.Expires = began.Add(step.Timeout)
	}
	stopped := r.stoppedSince().Add(StoppedFor)
	giveUp := Decision{Do: GiveUp, Step: here, Notify: slices.ContainsFunc(asked, Request.unaware)}
	switch {
	case r.Succeeded == No:
		giveUp.Reason = Failed
	case r.stopped() && !now.Before(stopped):
		giveUp.Reason = Stopped
	case step.Timeout > 0 && !now.Before(d.Expires) && r.Refused:
		giveUp.Reason = NeverMade
	case step.Timeout > 0 && !now.Before(d.Expires):
		giveUp.Reason = TimedOut
	default:
		d.Recheck = d.Expires
		if r.stopped() {
			d.Recheck = health.Earliest(d.Recheck, stopped)
		}
		return awaitingBoot(d, r, now)
	}
	return giveUp
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
