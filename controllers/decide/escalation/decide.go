package escalation

import (
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Decide returns what to do next for a node that is unhealthy now.
//
// The current step is the highest one with a request, whatever the requests below say. So no step is skipped or taken twice if a
// remediator removes the annotation or the check's status is lost. The first of these rules that applies decides:
//
//  1. The step was given up: notify its remediator if the annotation is missing, then start the next step.
//  2. The remediator has failed or stopped, or the timeout has expired: give the step up, also if the request is being deleted or gone.
//  3. The request is being deleted: wait, because the next request of this step has the same name.
//  4. The request is gone, or could not be created: start the step again.
//  5. Otherwise wait for the remediator.
//
// To give a step up, the caller sets the annotation and then writes the check's status. Either of them is enough here, so a crash between
// the two writes does no harm. If a remediator removes the annotation, it is set again only on the last step, and only for a minute
// (NotifiedAgainFor).
//
// A single step without a timeout (spec.remediationTemplate) is never given up, because nothing could follow. (medik8s gives it up after
// 30 minutes.)
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

// highest returns the highest of n steps that has a request, or -1, and the requests of this step. The decisive request comes first:
// requests that exist before requests that are gone (the status may have one that was created again since), then the youngest.
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

// afterGivingUp decides on a step with a request that was given up. A copy of the request that a user created does not restart the step.
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

// unaware reports whether the remediator of r would go on working after r is given up: it has neither the annotation nor success.
func (r Request) unaware() bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }

// current returns the decision on a step that was not given up. The timeout begins with the first request: if each new request had the full
// timeout, a remediator that deletes its own requests would keep the node on this step forever.
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

// awaitingBoot returns d, but limits a wait for the node after success and deletion of the request to BootsFor, if there is no timeout.
func awaitingBoot(d Decision, r Request, now time.Time) Decision {
	if !r.Gone || d.Do != Wait || !d.Recheck.IsZero() {
		return d
	}
	if d.Recheck = r.Started.Add(BootsFor); !now.Before(d.Recheck) {
		return Decision{Do: Start, Step: d.Step, Reason: Vanished}
	}
	return d
}

// progress returns what to do on a step whose decisive request is r, as long as the step has neither failed nor timed out.
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

// alone returns the decision about the only template of a check without an escalation. Nothing follows, however the remediation ends.
func alone(r Request, now time.Time) Decision {
	d := Decision{}
	switch d.Do, d.Reason = progress(r); {
	case d.Reason != InProgress:
	case r.Notified: // a reported failure is likely the effect of the annotation
		d.Reason = ToldToStop
	case r.Succeeded == No:
		d.Reason = Failed
	case r.stopped():
		d.Reason = Stopped
	}
	return awaitingBoot(d, r, now)
}

// stopped reports whether Processing is False and Succeeded was never set. If a remediator sets Succeeded, Processing is ignored: otherwise
// steps with a slow reboot would be given up too early (NodeHealthCheck issue 208).
func (r Request) stopped() bool { return r.Succeeded == Unsaid && r.Processing == No }

// stoppedSince returns when Processing last changed, or r.Started if that is later: the condition may have no lastTransitionTime.
func (r Request) stoppedSince() time.Time {
	if r.ProcessingSince.Before(r.Started) {
		return r.Started
	}
	return r.ProcessingSince
}
