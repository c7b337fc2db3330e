package escalation

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Decide returns what comes next for a node that is unhealthy now.
//
// The step we are on is the highest one with a request, whatever is known of those below: what remediators take off their requests and
// what a lost status forgot makes no step be skipped or taken twice. From there on, the first of these that holds:
//
//  1. the step was given up: a remediator that was not notified of it is notified first, then the next step is started;
//  2. the remediator has failed or stopped, or its time has passed: it is given up, also if the request is being deleted or is gone,
//     so that the ladder does not depend on how fast something is deleted;
//  3. the request is being deleted: its end is waited for, since its name can be used once only;
//  4. the request is gone: the step is started again;
//  5. the remediator is waited for.
//
// A request is given up in two writes, its annotation and the check's status. Either of them alone counts as given up, so a crash
// between the two cannot undo it. After the annotation alone, the next reconcile finds it there, starts the next step, and the status is
// rebuilt from it. After the status alone, the next pass finds Notified missing and gives up again (NotNotified), before the next step starts:
// two remediators that both think it is their turn would fight over one node. Annotation first is the better order all the same,
// since a status can be lost. A remediator that takes the annotation off knew of it, and to put it back for ever would be a quarrel
// without end: below the step we are on nobody is notified again, and on the last one for a minute only (NotifiedAgainFor).
//
// A single step without a timeout is no ladder (spec.remediationTemplate): it is never given up and never exhausted, since nothing
// could follow, and an annotation that medik8s' operator left there after 30 minutes gives up nothing (weakness W13).
func Decide(steps []Step, requests []Request, now time.Time) Decision {
	here, asked := highest(len(steps), requests)
	switch {
	case len(steps) == 0:
		return Decision{Do: Exhausted, Reason: NoTemplateLeft, Why: "The check names no template."}
	case here < 0:
		return Decision{Do: Start, Reason: FirstStep, Why: steps[0].Name + " is the first step."}
	case len(steps) == 1 && steps[0].Timeout <= 0:
		return alone(steps[0], latest(asked))
	}
	if slices.ContainsFunc(asked, Request.givenUp) {
		return afterGivingUp(steps, here, asked, now)
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

// latest returns the one request to go by: one that exists before one that is gone, then the youngest. There is more than one when a
// request was made again and the status still remembers the old one.
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

// afterGivingUp returns the step on a step that was given up. One of its requests is enough for that, or else a copy that somebody made would
// begin the step anew.
func afterGivingUp(steps []Step, here int, asked []Request, now time.Time) Decision {
	name, last := steps[here].Name, here == len(steps)-1
	if slices.ContainsFunc(asked, Request.unaware) {
		s := Decision{Do: GiveUp, Step: here, Notify: true, Reason: NotNotified, Why: name + " was given up, and does not know of it."}
		if last {
			s.Recheck = lastGivenUp(asked).Add(NotifiedAgainFor)
		}
		if !last || now.Before(s.Recheck) {
			return s
		}
	}
	if last {
		return Decision{Do: Exhausted, Step: here, Reason: NoTemplateLeft, Why: name + " was given up, and no template is left to try."}
	}
	return Decision{Do: Start, Step: here + 1, Reason: NextStep, Why: name + " was given up, " + steps[here+1].Name + " is next."}
}

func lastGivenUp(asked []Request) time.Time {
	return slices.MaxFunc(asked, func(a, b Request) int { return a.GivenUp.Compare(b.GivenUp) }).GivenUp
}

func (r Request) givenUp() bool { return r.Notified || !r.GivenUp.IsZero() }

// unaware reports whether r has a remediator that would go on, for all it knows, if r was given up.
func (r Request) unaware() bool { return !r.Gone && !r.Notified && r.Succeeded != Yes }

// began is when a step was begun. A request that is made again has the time that the first one had left: or else a remediator that deletes
// what it is asked could hold the ladder up for ever.
func began(asked []Request) time.Time {
	return slices.MinFunc(asked, func(a, b Request) int { return a.Started.Compare(b.Started) }).Started
}

// current returns the step on a step that was not given up.
func current(step Step, here int, asked []Request, now time.Time) Decision {
	s, r := Decision{Step: here}, latest(asked)
	since := began(asked)
	for _, e := range ends(step, r, since) {
		if now.Before(e.due) {
			s.Recheck = health.Earliest(s.Recheck, e.due)
			continue
		}
		return Decision{Do: GiveUp, Step: here, Notify: slices.ContainsFunc(asked, Request.unaware), Reason: e.reason, Why: e.why}
	}
	switch {
	case r.Gone:
		s.Do, s.Reason, s.Why = Start, Vanished, again(step)
	case r.Deleting:
		s.Reason, s.Why = AwaitingDeletion, deleted(step)
	case r.Succeeded == Yes:
		s.Reason, s.Why = AwaitingNode, step.Name+" says that it has succeeded, the node is waited for"+until(step, since)+"."
	default:
		s.Reason, s.Why = InProgress, step.Name+" is waited for"+until(step, since)+"."
	}
	return s
}

// alone returns the step for the only template of a check without a ladder.
func alone(step Step, r Request) Decision {
	s := Decision{Reason: NothingFollows}
	switch {
	case r.Gone:
		s.Do, s.Reason, s.Why = Start, Vanished, again(step)
	case r.Deleting:
		s.Reason, s.Why = AwaitingDeletion, deleted(step)
	case r.Succeeded == Yes:
		s.Reason, s.Why = AwaitingNode, step.Name+" says that it has succeeded, the node is waited for."
	case r.Notified: // said before the failure that it may well have caused
		s.Why = step.Name + " was told to stop, though not by this check; delete its request to have it tried again."
	case r.Succeeded == No:
		s.Why = step.Name + " says that it has failed, and the check names no other template."
	case r.stopped():
		s.Why = step.Name + " has stopped, and the check names no other template."
	default:
		s.Reason, s.Why = InProgress, step.Name+" is waited for, without end."
	}
	return s
}

func again(step Step) string {
	return "The request of " + step.Name + " was deleted, it is made again."
}
func deleted(step Step) string {
	return "The request of " + step.Name + " is being deleted, it is made again when it is gone."
}

func until(step Step, since time.Time) string {
	if step.Timeout <= 0 {
		return ""
	}
	return " until " + since.Add(step.Timeout).UTC().Format(time.RFC3339)
}

// end is a reason to give a request up, which holds from due on; a zero due holds at once.
type end struct {
	reason, why string
	due         time.Time
}

// ends returns what will end r, on a step that was begun at since, if nothing changes; the most telling reason first.
func ends(step Step, r Request, since time.Time) []end {
	var es []end
	switch {
	case r.Succeeded == No:
		es = append(es, end{Failed, step.Name + " says that it has failed.", time.Time{}})
	case r.stopped():
		why := fmt.Sprintf("%s stopped %s ago or longer and does not say whether it succeeded.", step.Name, StoppedFor)
		es = append(es, end{Stopped, why, r.stoppedSince().Add(StoppedFor)})
	}
	if step.Timeout > 0 {
		why := fmt.Sprintf("%s did not bring the node back within %s.", step.Name, step.Timeout)
		es = append(es, end{TimedOut, why, since.Add(step.Timeout)})
	}
	return es
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
