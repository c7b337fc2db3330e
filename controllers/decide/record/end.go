package record

import "time"

// end ends the record if its end is known, and reports whether it did.
func (p *planning) end() bool {
	t := &p.f.Target
	switch {
	case !t.Known:
		return false
	case t.gone(), t.leaving() && p.begun():
		return p.endOfLeaving()
	case !p.begun():
		return p.endBefore()
	case !t.Asked.IsZero() || p.f.RequestsUnread || p.inProgress():
		return false
	}
	switch p.health() {
	case Yes:
		p.finish(Healed, p.healer(), p.healthySince())
		return true
	case No: // a check that goes on when its time is over names this record in its next request
		return p.succeeded() == nil && p.f.Next.Name == "" && p.endOfNothingLeft()
	}
	return false
}

// succeeded is the newest request, if its remediator says that it has succeeded: what it has begun may take longer than any time that is known here. It is
// deleted by who has made it.
func (p *planning) succeeded() *Request {
	if n := len(p.f.Requests); n > 0 && p.f.Requests[n-1].Succeeded {
		return &p.f.Requests[n-1]
	}
	return nil
}

func (p *planning) begun() bool { return !p.State.Begun.IsZero() }

// inProgress reports whether a request has not ended.
func (p *planning) inProgress() bool {
	for i := range p.f.Requests {
		if !p.f.Requests[i].ended() {
			return true
		}
	}
	return false
}

// health is that of the target. Of a host, its requests say it.
func (p *planning) health() Truth {
	is := p.f.Health()
	for i := range p.f.Requests {
		if r := &p.f.Requests[i]; is == Unknown && r.ended() && p.f.Target.Kind == hostKind {
			is = No
			if r.Succeeded {
				return Yes
			}
		}
	}
	return is
}

// hostKind is the kind of targets of which nothing says whether they are healthy.
const hostKind = "BareMetalHost"

// endOfLeaving ends the record of a target that is being deleted, or gone: whether it was replaced says its capacity. It is never healed.
func (p *planning) endOfLeaving() bool {
	c, t := &p.f.Capacity, &p.f.Target
	switch {
	case !t.Machine:
		if !t.gone() || p.f.RequestsUnread || p.inProgress() { // a remediator may delete a node that comes back
			return false
		}
		p.finish(Gone, Deleted, time.Time{})
		return true
	case !c.Known:
		return false
	case c.Back && p.replaced():
		p.finish(Replaced, "", c.Since)
		return true
	case c.Over && t.gone():
		p.finish(Gone, c.Reason, time.Time{})
		return true
	}
	return false
}

// replaced reports whether another machine is healthy in place of the target, or all that a rollout has made.
func (p *planning) replaced() bool {
	c := &p.f.Capacity
	if c.Replacement.Machine.Name == "" {
		return c.Others > 0
	}
	return c.Healthy && !p.same(c.Replacement.Machine)
}

// endBefore ends the record of a remediation that does not begin in time.
func (p *planning) endBefore() bool {
	attempted := p.State.Attempted
	if attempted.Before(p.f.Decided) {
		attempted = p.f.Decided
	}
	if due := attempted.Add(Unbegun); p.f.Now.Before(due) {
		p.Again = due
		return false
	}
	if p.f.RequestsUnread { // time alone changes nothing then
		return false
	}
	p.finish(Cancelled, NotBegun, time.Time{})
	return true
}

// endOfNothingLeft ends the record of a target that is unhealthy while nothing acts on it any more, once that has lasted.
func (p *planning) endOfNothingLeft() bool {
	reason := Withdrawn
	if len(p.f.Requests) > 0 {
		reason = RequestsEnded
	}
	last := p.State.last(RequestsEnded, Withdrawn)
	if !p.settling() || last.Reason != reason || p.State.Waiting() == AwaitingNextStep {
		p.step(p.f.Now, reason, Ref{})
		last = p.State.last(reason)
	}
	if due := last.Time.Add(Settle); p.f.Now.Before(due) {
		p.Again = due
		return false
	}
	if reason == Withdrawn && !p.effective() {
		p.finish(Cancelled, Withdrawn, time.Time{})
		return true
	}
	p.finish(GivenUp, reason, time.Time{})
	return true
}

// settling reports whether nothing has asked for the remediation since the last step that says so.
func (p *planning) settling() bool {
	last := p.State.last(RequestsEnded, Withdrawn, OwnerRequested, RequestCreated)
	return last != nil && (last.Reason == RequestsEnded || last.Reason == Withdrawn)
}

// effective reports whether something was done to the target. A record that has lost some of its steps does not know.
func (p *planning) effective() bool {
	return p.State.has(RemediatorActs) || p.State.has(TargetDeleting) || len(p.State.Steps) >= MaxSteps
}

// healer is what has healed the target, if it is not the remediation.
func (p *planning) healer() Reason {
	if p.effective() {
		return ""
	}
	return Recovered
}

// healthySince is since when the target is healthy, as far as its check or its node says it.
func (p *planning) healthySince() time.Time {
	t := &p.f.Target
	if t.Checked == Yes {
		return t.CheckedSince
	}
	return t.NodeReadySince
}

// finish ends the record. Capacity is back since a moment, which is not before the remediation was decided or begun, of an outcome with capacity.
func (p *planning) finish(outcome Outcome, by Reason, back time.Time) {
	s, now := &p.State, p.f.Now
	if outcome == Healed || outcome == Replaced {
		floor := p.f.Decided
		if s.Begun.After(floor) {
			floor = s.Begun
		}
		if back.IsZero() || back.After(now) {
			back = now
		}
		if back.Before(floor) {
			back = floor
		}
		s.Back = back
	}
	p.stopWaiting(s.Back)
	s.Ended, s.Outcome, s.EndedBy = now, outcome, string(by)
	p.step(now, Reason(outcome), Ref{})
	p.Waiting, p.Object, p.Again = "", Ref{}, time.Time{}
}
