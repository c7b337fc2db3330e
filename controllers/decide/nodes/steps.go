package nodes

import (
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// stepping decides what is done about one node.
type stepping struct {
	*decider
	*Decision
	i int
	n *Node
}

func (d *decider) stepping(i int) *stepping {
	s := &stepping{decider: d, Decision: &d.p.Decisions[i], i: i, n: &d.f.Nodes[i]}
	s.Start, s.Would, s.Work = -1, -1, &Work{}
	return s
}

// idle reports whether there is nothing about n that something may have to be done about, if it is healthy.
func (n *Node) idle() bool {
	return n.Exists() && !n.Remediated() && !n.confirmed() && n.Lease == nil && len(n.Gone)+len(n.Orphaned) == 0
}

// decide decides what is done about the node, and what blocks its remediation.
func (d *decider) decide(i int) {
	if decision := &d.p.Decisions[i]; decision.Verdict.State == health.Healthy && d.f.Nodes[i].idle() {
		decision.Work, decision.Blockers, decision.Start, decision.Recheck = idle, notUnhealthy, -1, decision.Verdict.Recheck
		decision.Would, decision.Nothing = d.whenHealthy(i)
		return
	}
	s := d.stepping(i)
	s.flag()
	switch state := s.Verdict.State; {
	case len(s.n.Unseen) > 0:
		s.leased() // until they can be read again nothing else is known
	case !s.n.Exists():
		s.gone()
	case state == health.Healthy:
		s.healthy()
	case state == health.Unknown:
		s.leased() // what was begun stays as it is
	default:
		s.resumed()
		s.leased()
		if state == health.Unhealthy {
			s.relapsed()
			s.unhealthy()
		}
	}
	s.block()
	s.Would, s.Nothing = s.would()
	if s.n.Exists() && s.Verdict.State != health.Healthy {
		s.Remember = s.worthRemembering()
	}
	s.lookAgain(s.Verdict.Recheck)
}

// block says what keeps a remediation from starting where it is not the unhealthy node that is asked about.
func (s *stepping) block() {
	switch {
	case s.Verdict.State == health.Unhealthy && s.n.Exists() && len(s.n.Unseen) == 0:
		return
	case s.Verdict.State != health.Pending:
		s.Blockers = s.caseOf(s.i, &s.now).ask(ofState)
	case !s.n.Selected && !s.n.Remediated():
		s.Blockers = s.caseOf(s.i, &s.ahead).ask(ofSelection)
	case s.n.Remediated():
		s.Blockers = s.caseOf(s.i, &s.ahead).ask(whileHeld)
	default:
		s.Blockers = s.caseOf(s.i, &s.ahead).toBegin()
	}
}

var notUnhealthy = []Blocker{{Reason: NotUnhealthy}}

// flag counts the requests that are too old.
func (s *stepping) flag() {
	for j := range s.n.Requests {
		r := &s.n.Requests[j]
		flagged := r.Object.GetAnnotations()[nhcv1.OldRequestAnnotation] != "" || s.f.Memory.Flagged[r.ID()]
		if old := r.Started().Add(tooOld); !flagged && s.f.Now.After(old) {
			s.Flag = append(s.Flag, j)
		} else if !flagged {
			s.lookAgain(old.Add(time.Second))
		}
	}
}

// lookAgain makes the reconcile be repeated then at the latest; the zero moment asks for nothing.
func (s *stepping) lookAgain(at time.Time) { s.Recheck = health.Earliest(s.Recheck, at) }

// happens makes the reconcile be repeated when m comes at the latest, of which users want to know if it says what happens.
func (s *stepping) happens(m Moment) {
	s.lookAgain(m.At)
	if !m.At.IsZero() && m.What != "" && (s.Next.At.IsZero() || m.At.Before(s.Next.At)) {
		s.Next = m
	}
}

// startable reports whether a remediation of the node would start if nothing blocked it, were it in that state.
func (d *decider) startable(i int, state health.State) bool {
	n := &d.f.Nodes[i]
	return n.Selected && n.Exists() && d.p.Decisions[i].Verdict.State == state && !d.begun(i)
}

// begun reports whether something is done about the node: there are requests, and not only those of the last time.
func (d *decider) begun(i int) bool {
	return len(d.f.Nodes[i].Unseen) > 0 || slices.ContainsFunc(d.p.Decisions[i].Requests, func(r RequestState) bool { return !r.Over })
}

// healthy: its requests are over, at once or after the delay, and its lease after them.
func (s *stepping) healthy() {
	if len(s.n.Requests) == 0 {
		s.Unconfirm = s.n.confirmed() && len(s.n.Others) == 0 // another check's remediation may wait for it
		s.unleased()
		return
	}
	wait, now := s.f.healthyDelay(), s.f.Now
	for j := range s.n.Requests {
		r := &s.n.Requests[j]
		begun := health.Earliest(r.annotated(nhcv1.HealthyDelayAnnotation), s.n.healthySince()) // a remediator may take the annotation off
		switch {
		case !r.Deleting().IsZero():
		case s.n.confirmed() || wait == 0:
			s.End = append(s.End, j)
		case wait < 0:
			s.Delayed = true
		case begun.IsZero():
			s.Delay, s.Delayed = append(s.Delay, j), true
			s.happens(delayEnds(now.Add(wait)))
		case now.Before(begun.Add(wait)):
			s.Delayed = true
			s.happens(delayEnds(begun.Add(wait)))
		default:
			s.End = append(s.End, j)
		}
	}
	s.leased()
}

func delayEnds(at time.Time) Moment {
	return Moment{At: at, What: DelayEnds, Text: "the healthy delay is over, and its requests are deleted"}
}

// leased: as long as there are requests the lease is kept, and a moment longer if somebody deleted one that is about to be made again. When
// no step is left it is kept only for a while: then somebody else may try what they can.
func (s *stepping) leased() {
	now := s.f.Now
	if !s.n.Remediated() && len(s.n.Orphaned) == 0 {
		if at := s.n.remade(func(*Listed) bool { return true }); now.Before(at) && s.n.Selected {
			s.lookAgain(at)
			return
		}
		s.unleased()
		return
	}
	step, since := -1, now
	for i := range s.n.Requests {
		step, since = max(step, s.n.Requests[i].Step), health.Earliest(since, s.n.Requests[i].Started())
	}
	for i := range s.n.Unseen {
		step, since = max(step, s.n.Unseen[i].Step), health.Earliest(since, s.n.Unseen[i].Started.Time)
	}
	if idle := s.idleSince(); !idle.IsZero() {
		if !now.Before(idle.Add(idleLease)) {
			if s.n.Lease.own() {
				s.Lease = DropLease
			}
			return
		}
		s.lookAgain(idle.Add(idleLease))
	}
	s.Term = Term{Length: termOf(s.steps, step).Length} // as long as a step is left the lease is kept for it, whatever blocks it
	if len(s.steps) > 0 && s.escalationOf(s.n, s.escalated()).Do == escalation.Exhausted {
		s.Term = termOf(s.steps, len(s.steps)-1)
	}
	var again time.Time
	s.Lease, again = s.n.Lease.next(s.Term, since, now)
	s.lookAgain(again)
}

// idleSince is since when no remediator is at work on the node, or will be: a single remediation has failed or stopped, or is being
// deleted. Zero if one is.
func (s *stepping) idleSince() time.Time {
	if !s.f.Single() || !s.n.Exists() || len(s.n.Unseen) > 0 || len(s.n.Orphaned) > 0 {
		return time.Time{}
	}
	var since time.Time
	for j := range s.n.Requests {
		at := s.n.Requests[j].idleSince()
		if at.IsZero() {
			return time.Time{}
		}
		since = latest(since, at)
	}
	return since
}

// idleSince is since when no remediator is at work on r; zero if one is. A remediator that does not say since when may have said so when
// r was made.
func (r *Request) idleSince() time.Time {
	succeeded, since := escalation.Says(r.Object, nhcv1.SucceededCondition)
	processing, stopped := escalation.Says(r.Object, nhcv1.ProcessingCondition)
	switch {
	case !r.Deleting().IsZero():
		return r.Deleting()
	case succeeded == escalation.No:
		return latest(since, r.Started())
	case succeeded == escalation.Unsaid && processing == escalation.No:
		return latest(stopped, r.Started())
	}
	return time.Time{}
}

// unleased: no request is left, and what is left of the lease is given back; unless a check of the same name that was there before has left
// one behind, which is at work under the same lease.
func (s *stepping) unleased() {
	if len(s.n.Orphaned) > 0 {
		s.leased()
		return
	}
	if s.n.Lease.own() {
		s.Lease = DropLease
	}
}

// unhealthy: the first step starts if nothing blocks it; one that has failed, or whose time is over, is followed by the next one.
func (s *stepping) unhealthy() {
	c := s.caseOf(s.i, &s.now)
	if !s.n.Selected && !s.n.Remediated() { // whatever else there is does not matter
		s.Blockers = c.ask(ofSelection)
		return
	}
	if !s.begun(s.i) {
		s.Blockers = c.toBegin()
	}
	if len(s.steps) == 0 {
		s.Blockers = append(s.Blockers, c.ask(ofAnswer)...)
		return
	}
	goes := len(s.Blockers) == 0
	gaveUp, answer := s.escalate()
	if goes {
		s.GaveUp, s.Answer = gaveUp, answer
		s.adopted()
		if gaveUp.Do == escalation.GiveUp {
			s.GiveUp, s.Notify = s.n.requestsOn(gaveUp.Step, gaveUp.Notify), gaveUp.Notify
		}
		s.happens(s.expires(answer))
	} else {
		s.happens(askedAgain(s.Blockers))
	}
	c.answer = answer
	at := ofAnswer
	if answer.Do == escalation.Start {
		c.step, c.begins, at = answer.Step, false, beforeNext
	}
	further := c.ask(at)
	if goes && answer.Do == escalation.Start {
		if len(further) == 0 {
			s.start(answer.Step)
		} else {
			s.happens(askedAgain(further))
		}
	}
	s.Blockers = distinct(append(s.Blockers, further...))
}

// askedAgain is when the first of the blockers is over, or is looked at again.
func askedAgain(blockers []Blocker) Moment {
	var at time.Time
	for _, b := range blockers {
		if b.Again.IsZero() {
			b.Again = b.Until
		}
		at = health.Earliest(at, b.Again)
	}
	return Moment{At: at, What: AskedAgain, Text: "it is checked again"}
}

// start starts a step.
func (s *stepping) start(step int) {
	s.Start, s.Term = step, termOf(s.steps, step)
	for j := step - 1; j >= 0 && s.passed(s.n, j); j-- {
		s.PassedOver = append(s.PassedOver, j)
	}
	if len(s.n.Requests) == 0 {
		s.Lease, _ = s.n.Lease.next(s.Term, s.f.Now, s.f.Now)
		if s.Lease == DropLease { // one of ours from before
			s.Lease = RenewLease
		}
	}
}

// adopted: what is left of the last time is what the failure begins with.
func (s *stepping) adopted() {
	for j := range s.Requests {
		if s.Requests[j].Over {
			s.Adopt = append(s.Adopt, j)
		}
	}
}

// worthRemembering are, of requests that are gone, those that say something of the escalation: which were given up, and of each step the
// first and the last one that were not. A step that was taken is not taken again because its request was deleted, what was deleted is not
// made again at once, and not with all the time of the step.
func (s *stepping) worthRemembering() []int {
	type ends struct{ first, last int }
	byStep := map[int]ends{}
	for i := range s.n.Gone {
		gone := &s.n.Gone[i]
		step, known := byStep[gone.Step]
		switch {
		case gone.TimedOut != nil || gone.Step < 0:
			continue
		case !known:
			step = ends{i, i}
		case gone.Started.Before(&s.n.Gone[step.first].Started):
			step.first = i
		case s.n.Gone[step.last].Started.Before(&gone.Started):
			step.last = i
		}
		byStep[gone.Step] = step
	}
	var worth []int
	for i := range s.n.Gone {
		step, known := byStep[s.n.Gone[i].Step]
		if s.n.Gone[i].TimedOut != nil || known && (step.first == i || step.last == i) {
			worth = append(worth, i)
		}
	}
	return worth
}
