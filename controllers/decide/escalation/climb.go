package escalation

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// Climb returns the next step of a node that is unhealthy now.
//
// The rung we are on is the highest one with a request, whatever is known of those below: what remediators take off their requests and
// what a lost status forgot makes no step be skipped or taken twice. From there on, the first of these that holds:
//
//  1. the rung was given up: whoever is not told of it is told first, then the next rung is started;
//  2. the remediator has failed or stopped, or its time has passed: it is given up, also if the request is being deleted or is gone,
//     so that the ladder does not depend on how fast something is deleted;
//  3. the request is being deleted: its end is waited for, since its name can be used once only;
//  4. the request is gone: the rung is started again;
//  5. the remediator is waited for.
//
// A request is given up in two writes, its annotation and the check's status. Either of them alone counts as given up, so a crash
// between the two cannot undo it. After the annotation alone, the next pass finds it there, starts the next rung, and the status is
// rebuilt from it. After the status alone, the next pass finds Told missing and gives up again (Untold), before the next rung starts:
// two remediators that both think it is their turn would fight over one node. Annotation first is the better order all the same,
// since a status can be lost. A remediator that takes the annotation off knew of it, and to put it back for ever would be a quarrel
// without end: below the rung we are on nobody is told again, and on the last one for a minute only (RetoldFor).
//
// A single rung without a timeout is no ladder (spec.remediationTemplate): it is never given up and never exhausted, since nothing
// could follow, and an annotation that medik8s' operator left there after 30 minutes gives up nothing (weakness W13).
func Climb(rungs []Rung, requests []Request, now time.Time) Step {
	here, asked := highest(len(rungs), requests)
	switch {
	case len(rungs) == 0:
		return Step{Do: Exhausted, Reason: NoTemplateLeft, Why: "The check names no remedy."}
	case here < 0:
		return Step{Do: Start, Reason: FirstRung, Why: rungs[0].Name + " is the first remedy."}
	case len(rungs) == 1 && rungs[0].Timeout <= 0:
		return alone(rungs[0], latest(asked))
	}
	if slices.ContainsFunc(asked, Request.givenUp) {
		return leave(rungs, here, asked, now)
	}
	return stay(rungs[here], here, asked, now)
}

// highest returns the highest of n rungs that has a request, with its requests; -1 if none has.
func highest(n int, requests []Request) (rung int, asked []Request) {
	rung = -1
	for _, r := range requests {
		if r.Rung < 0 || r.Rung >= n || r.Rung < rung {
			continue
		}
		if r.Rung > rung {
			rung, asked = r.Rung, nil
		}
		asked = append(asked, r)
	}
	return rung, asked
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

// leave returns the step on a rung that was given up. One of its requests is enough for that, or else a copy that somebody made would
// begin the rung anew.
func leave(rungs []Rung, here int, asked []Request, now time.Time) Step {
	name, last := rungs[here].Name, here == len(rungs)-1
	if slices.ContainsFunc(asked, Request.unaware) {
		s := Step{Do: GiveUp, Rung: here, Tell: true, Reason: Untold, Why: name + " was given up, and does not know of it."}
		if last {
			s.Recheck = lastGivenUp(asked).Add(RetoldFor)
		}
		if !last || now.Before(s.Recheck) {
			return s
		}
	}
	if last {
		return Step{Do: Exhausted, Rung: here, Reason: NoTemplateLeft, Why: name + " was given up, and no remedy is left to try."}
	}
	return Step{Do: Start, Rung: here + 1, Reason: NextRung, Why: name + " was given up, " + rungs[here+1].Name + " is next."}
}

func lastGivenUp(asked []Request) time.Time {
	return slices.MaxFunc(asked, func(a, b Request) int { return a.GivenUp.Compare(b.GivenUp) }).GivenUp
}

func (r Request) givenUp() bool { return r.Told || !r.GivenUp.IsZero() }

// unaware reports whether r has a remediator that would go on, for all it knows, if r was given up.
func (r Request) unaware() bool { return !r.Gone && !r.Told && r.Succeeded != Yes }

// began is when a rung was begun. A request that is made again has the time that the first one had left: or else a remediator that deletes
// what it is asked could hold the ladder up for ever.
func began(asked []Request) time.Time {
	return slices.MinFunc(asked, func(a, b Request) int { return a.Started.Compare(b.Started) }).Started
}

// stay returns the step on a rung that was not given up.
func stay(rung Rung, here int, asked []Request, now time.Time) Step {
	s, r := Step{Rung: here}, latest(asked)
	since := began(asked)
	for _, e := range ends(rung, r, since) {
		if now.Before(e.due) {
			s.Recheck = health.Earliest(s.Recheck, e.due)
			continue
		}
		return Step{Do: GiveUp, Rung: here, Tell: slices.ContainsFunc(asked, Request.unaware), Reason: e.reason, Why: e.why}
	}
	switch {
	case r.Gone:
		s.Do, s.Reason, s.Why = Start, Vanished, again(rung)
	case r.Leaving:
		s.Reason, s.Why = AwaitingDeletion, leaves(rung)
	case r.Succeeded == Yes:
		s.Reason, s.Why = AwaitingNode, rung.Name+" says that it has succeeded, the node is waited for"+until(rung, since)+"."
	default:
		s.Reason, s.Why = InProgress, rung.Name+" is waited for"+until(rung, since)+"."
	}
	return s
}

// alone returns the step for the only remedy of a check without a ladder.
func alone(rung Rung, r Request) Step {
	s := Step{Reason: NothingFollows}
	switch {
	case r.Gone:
		s.Do, s.Reason, s.Why = Start, Vanished, again(rung)
	case r.Leaving:
		s.Reason, s.Why = AwaitingDeletion, leaves(rung)
	case r.Succeeded == Yes:
		s.Reason, s.Why = AwaitingNode, rung.Name+" says that it has succeeded, the node is waited for."
	case r.Told: // said before the failure that it may well have caused
		s.Why = rung.Name + " was told to stop, though not by this check; delete its request to have it tried again."
	case r.Succeeded == No:
		s.Why = rung.Name + " says that it has failed, and the check names no other remedy."
	case r.stopped():
		s.Why = rung.Name + " has stopped, and the check names no other remedy."
	default:
		s.Reason, s.Why = InProgress, rung.Name+" is waited for, without end."
	}
	return s
}

func again(rung Rung) string {
	return "The request of " + rung.Name + " was deleted, it is made again."
}
func leaves(rung Rung) string {
	return "The request of " + rung.Name + " is being deleted, it is made again when it is gone."
}

func until(rung Rung, since time.Time) string {
	if rung.Timeout <= 0 {
		return ""
	}
	return " until " + since.Add(rung.Timeout).UTC().Format(time.RFC3339)
}

// end is a reason to give a request up, which holds from due on; a zero due holds at once.
type end struct {
	reason, why string
	due         time.Time
}

// ends returns what will end r, on a rung that was begun at since, if nothing changes; the most telling reason first.
func ends(rung Rung, r Request, since time.Time) []end {
	var es []end
	switch {
	case r.Succeeded == No:
		es = append(es, end{Failed, rung.Name + " says that it has failed.", time.Time{}})
	case r.stopped():
		why := fmt.Sprintf("%s stopped %s ago or longer and does not say whether it succeeded.", rung.Name, StoppedFor)
		es = append(es, end{Stopped, why, r.stoppedSince().Add(StoppedFor)})
	}
	if rung.Timeout > 0 {
		why := fmt.Sprintf("%s did not bring the node back within %s.", rung.Name, rung.Timeout)
		es = append(es, end{TimedOut, why, since.Add(rung.Timeout)})
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
