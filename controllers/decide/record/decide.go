package record

import (
	"slices"
	"time"
)

// Plan is what a record says next.
type Plan struct {
	State State
	// Waiting is what is waited for now, and Object that for which. While the Cluster is paused nothing is written, and Waiting is PausedReason.
	Waiting Reason
	Object  Ref
	// Over reports that nothing is expected to come in place of the target, Overdue that the moment has passed at which the wait was to end.
	Over, Overdue bool
	// Again is when time alone changes something; zero if it does not.
	Again time.Time
	// Urgent reports that State says what may not be found out any more in a moment. Anything else may be written together with what follows.
	Urgent bool
}

type planning struct {
	Plan
	f *Facts
}

// Decide returns what the record of f says next.
func Decide(f Facts) Plan {
	p := &planning{f: &f, Plan: Plan{State: f.State.clone()}}
	switch {
	case !f.State.Ended.IsZero():
		return p.Plan
	case f.Paused: // its objects may be half moved, and what is written now may be lost
		p.Waiting = PausedReason
		return p.Plan
	}
	p.noteRequests()
	p.noteOwner()
	p.noteTarget()
	p.begin()
	p.noteReplacement()
	if !p.end() {
		p.wait()
	}
	p.Urgent = p.urgent()
	return p.Plan
}

// urgent reports whether the remediation begins or ends, or a request is new or acted on for the first time: requests go away with what they were about.
func (p *planning) urgent() bool {
	was, is := &p.f.State, &p.State
	return was.Begun.IsZero() != is.Begun.IsZero() || !is.Ended.IsZero() ||
		len(was.Requests) < len(is.Requests) || is.has(RemediatorActs) && !was.has(RemediatorActs)
}

// Health is what is known of the health of the target of f.
func (f *Facts) Health() Truth {
	t := &f.Target
	switch {
	case !t.Known:
		return Unknown
	case t.leaving() || !t.Asked.IsZero() || t.ByHand || t.Checked == No:
		return No
	case t.Checked == Yes:
		return Yes
	case t.Evidence == Yes || t.NodeReady == No:
		return No
	case t.Evidence == No && t.NodeReady == Yes:
		return Yes
	}
	return Unknown
}

// noteRequests notes the requests that are new, and that one is acted on.
func (p *planning) noteRequests() {
	for _, r := range p.f.Requests {
		known := slices.ContainsFunc(p.State.Requests, func(o Ref) bool { return o.Is(r.Ref, p.f.Moved) })
		if !known && len(p.State.Requests) < MaxRequests {
			p.State.Requests = append(p.State.Requests, r.Ref)
			p.step(p.since(r.Created), RequestCreated, r.Ref)
		}
		if r.Acts && !p.State.has(RemediatorActs) {
			p.step(p.f.Now, RemediatorActs, r.Ref)
		}
	}
}

// noteOwner notes that the owner was asked, also when that was withdrawn in between.
func (p *planning) noteOwner() {
	t := &p.f.Target
	if !t.Known || t.Asked.IsZero() {
		return
	}
	if last := p.State.last(OwnerRequested, Withdrawn, RequestsEnded); last == nil || last.Reason != OwnerRequested {
		p.step(p.since(t.Asked), OwnerRequested, Ref{})
	}
}

// noteTarget notes that the target is being deleted, and that it is gone.
func (p *planning) noteTarget() {
	t := &p.f.Target
	if t.leaving() && !t.gone() && !p.State.has(TargetDeleting) {
		p.step(p.since(t.Deleting), TargetDeleting, Ref{})
	}
	if t.gone() && !p.State.has(TargetGone) {
		p.step(p.since(t.GoneAt), TargetGone, Ref{})
	}
}

// begin notes when the remediation was begun. A deletion is no beginning: before kubemend has begun, it is not its work.
func (p *planning) begin() {
	if !p.State.Begun.IsZero() {
		return
	}
	for _, s := range p.State.Steps {
		if (s.Reason == OwnerRequested || s.Reason == RequestCreated) && (p.State.Begun.IsZero() || s.Time.Before(p.State.Begun)) {
			p.State.Begun, p.State.BegunBy = s.Time, p.author(s)
		}
	}
}

// author is what has taken the step by which a remediation began: kubemend, or the creator of a request that kubemend adopted.
func (p *planning) author(s Step) string {
	for _, req := range p.f.Requests {
		if s.Reason == RequestCreated && req.Ref == s.Object && req.By != "" {
			return req.By
		}
	}
	return "kubemend"
}

// noteReplacement notes the machine that comes in place of the target.
func (p *planning) noteReplacement() {
	c := &p.f.Capacity
	if !c.Known || !p.f.Target.leaving() || c.Replacement.Machine.Name == "" || p.same(c.Replacement.Machine) {
		return
	}
	if was := p.State.Replacement.Machine; was.Name != c.Replacement.Machine.Name || !was.Is(c.Replacement.Machine, p.f.Moved) {
		p.step(p.f.Now, ReplacementFound, c.Replacement.Machine)
	}
	p.State.Replacement = c.Replacement
}

// same reports whether machine is the target itself.
func (p *planning) same(machine Ref) bool {
	t := p.f.Target.Ref
	if machine.Name != t.Name {
		return false
	}
	return p.f.Moved || machine.UID == "" || t.UID == "" || machine.UID == t.UID
}

// wait notes what is waited for, and for how long other causes have held it up.
func (p *planning) wait() {
	reason, object, since := p.cause()
	if reason == "" {
		p.Waiting = p.State.Waiting()
		return
	}
	p.Waiting, p.Object = reason, object
	if c := &p.f.Capacity; c.Known && c.Reason == reason {
		p.Over, p.Overdue = c.Over, c.Overdue
	}
	if reason == p.State.Waiting() || p.State.Waiting() == OtherReason && !p.room(reason) {
		return
	}
	at := p.stopWaiting(p.until(since))
	p.startWaiting(reason, at)
	n := len(p.State.Steps)
	switch {
	case n < mostWaits:
	case milestones[p.State.Steps[n-1].Reason]:
		return
	default:
		p.State.Steps = p.State.Steps[:n-1]
	}
	p.step(at, reason, object)
}

// mostWaits is how many steps there may be before the next wait replaces the one before it: the others are needed to know what was done.
const mostWaits = MaxSteps - 2*MaxRequests

// milestones are the steps that are no waits.
var milestones = map[Reason]bool{
	OwnerRequested: true, RequestCreated: true, RemediatorActs: true, RequestsEnded: true, Withdrawn: true, TargetDeleting: true, TargetGone: true,
	ReplacementFound: true,
}

// cause is what is waited for; empty if nothing is known of that, or nothing has begun.
func (p *planning) cause() (reason Reason, object Ref, since time.Time) {
	c, t := &p.f.Capacity, &p.f.Target
	followed := t.Machine && (t.leaving() || !t.Asked.IsZero())
	switch {
	case !t.Known || p.State.Begun.IsZero() && !t.gone():
		return "", Ref{}, time.Time{}
	case followed && c.Known:
		return c.Reason, c.Object, c.Since
	case followed:
		return "", Ref{}, time.Time{}
	}
	if i := slices.IndexFunc(p.f.Requests, func(r Request) bool { return !r.ended() }); i >= 0 {
		return p.f.Requests[i].cause()
	}
	if r := p.succeeded(); r != nil {
		return AwaitingHealth, r.Ref, time.Time{}
	}
	if p.f.Next.Name != "" {
		return AwaitingNextStep, p.f.Next, time.Time{}
	}
	if last := p.State.last(RequestsEnded, Withdrawn); last != nil && p.settling() {
		return last.Reason, Ref{}, last.Time
	}
	return "", Ref{}, time.Time{}
}

// cause is what is waited for while a remediator acts on the request.
func (r *Request) cause() (reason Reason, object Ref, since time.Time) {
	if r.State == "" {
		return RemediationInProgress, r.Ref, r.Created
	}
	return r.State, r.Ref, time.Time{}
}

// until is when the wait that goes on ends, as another cause is found that is there since a moment. If that is from before the wait, as of a drain that a
// budget has blocked until now, the wait has hidden it: to count by that moment would leave nothing of what was in fact waited for.
func (p *planning) until(since time.Time) time.Time {
	for _, w := range p.State.Waits {
		if !w.Since.IsZero() && !since.After(w.Since) {
			return p.f.Now
		}
	}
	return since
}

// stopWaiting ends the wait that goes on, at the moment from which on something else is waited for, and returns that.
func (p *planning) stopWaiting(at time.Time) time.Time {
	if at.IsZero() || at.After(p.f.Now) {
		at = p.f.Now
	}
	if at.Before(p.State.Begun) {
		at = p.State.Begun
	}
	for i := range p.State.Waits {
		w := &p.State.Waits[i]
		if w.Since.IsZero() {
			continue
		}
		if at.Before(w.Since) {
			at = w.Since
		}
		w.Seconds += int64(at.Sub(w.Since) / time.Second)
		w.Since = time.Time{}
	}
	return at
}

// room reports whether the waits have, or take, one for reason.
func (p *planning) room(reason Reason) bool {
	return len(p.State.Waits) < MaxWaits-1 || slices.ContainsFunc(p.State.Waits, func(w Wait) bool { return w.Reason == reason })
}

func (p *planning) startWaiting(reason Reason, at time.Time) {
	if !p.room(reason) {
		reason = OtherReason
	}
	for i := range p.State.Waits {
		if p.State.Waits[i].Reason == reason {
			p.State.Waits[i].Since = at
			return
		}
	}
	p.State.Waits = append(p.State.Waits, Wait{Reason: reason, Since: at})
}

// since is the moment of something that was found at Now, and happened at that moment: not before it was decided, if kubemend did it, and not after Now.
func (p *planning) since(at time.Time) time.Time {
	if at.IsZero() || at.After(p.f.Now) {
		return p.f.Now
	}
	if at.Before(p.f.Decided) {
		return p.f.Decided
	}
	return at
}

// step adds a step, after those that are there. One that is one too many replaces the last one: the beginning says most.
func (p *planning) step(at time.Time, reason Reason, object Ref) {
	if n := len(p.State.Steps); n > 0 && at.Before(p.State.Steps[n-1].Time) {
		at = p.State.Steps[n-1].Time
	}
	if len(p.State.Steps) >= MaxSteps {
		p.State.Steps = p.State.Steps[:MaxSteps-1]
	}
	p.State.Steps = append(p.State.Steps, Step{Time: at, Reason: reason, Object: object})
}

func (s State) clone() State {
	s.Requests, s.Steps, s.Waits = slices.Clone(s.Requests), slices.Clone(s.Steps), slices.Clone(s.Waits)
	return s
}
