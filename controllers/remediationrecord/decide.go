package remediationrecord

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Plan is what a record says next.
type Plan struct {
	Status mendv1.RemediationRecordStatus
	// Waiting is what is waited for now, and Object that for which. While the Cluster is paused nothing is written, and Waiting is PausedReason.
	Waiting string
	Object  mendv1.RecordRef
	// Over reports that nothing is expected to come in place of the target, Overdue that the moment has passed at which the wait was to end.
	Over, Overdue bool
	// Again is when time alone changes something; zero if it does not.
	Again time.Time
	// Urgent reports that Status says what may not be found out any more in a moment. Anything else may be written together with what follows.
	Urgent bool
}

type planning struct {
	Plan
	f *Facts
}

// Decide returns what the record of f says next.
func Decide(f Facts) Plan {
	p := &planning{f: &f, Plan: Plan{Status: *f.Status.DeepCopy()}}
	switch {
	case !f.Status.Ended.IsZero():
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
	before, after := &p.f.Status, &p.Status
	return before.Begun.IsZero() != after.Begun.IsZero() || !after.Ended.IsZero() ||
		len(before.Requests) < len(after.Requests) || has(after, RemediatorActs) && !has(before, RemediatorActs)
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
		known := slices.ContainsFunc(p.Status.Requests, func(o mendv1.RecordRef) bool { return Same(o, r.RecordRef, p.f.Moved) })
		if !known && len(p.Status.Requests) < MaxRequests {
			p.Status.Requests = append(p.Status.Requests, r.RecordRef)
			p.step(p.since(r.Created), RequestCreated, r.RecordRef)
		}
		if r.Acts && !has(&p.Status, RemediatorActs) {
			p.step(p.f.Now, RemediatorActs, r.RecordRef)
		}
	}
}

// noteOwner notes that the owner was asked, also when that was withdrawn in between.
func (p *planning) noteOwner() {
	t := &p.f.Target
	if !t.Known || t.Asked.IsZero() {
		return
	}
	if step := last(&p.Status, OwnerRequested, Withdrawn, RequestsEnded); step == nil || step.Reason != OwnerRequested {
		p.step(p.since(t.Asked), OwnerRequested, mendv1.RecordRef{})
	}
}

// noteTarget notes that the target is being deleted, and that it is gone.
func (p *planning) noteTarget() {
	t := &p.f.Target
	if t.leaving() && !t.gone() && !has(&p.Status, TargetDeleting) {
		p.step(p.since(t.Deleting), TargetDeleting, mendv1.RecordRef{})
	}
	if t.gone() && !has(&p.Status, TargetGone) {
		p.step(p.since(t.GoneAt), TargetGone, mendv1.RecordRef{})
	}
}

// begin notes when the remediation was begun. A deletion is no beginning: before kubemend has begun, it is not its work.
func (p *planning) begin() {
	if !p.Status.Begun.IsZero() {
		return
	}
	for i := range p.Status.Steps {
		step := &p.Status.Steps[i]
		begins := step.Reason == OwnerRequested || step.Reason == RequestCreated
		if begins && (p.Status.Begun.IsZero() || step.Time.Before(p.Status.Begun)) {
			p.Status.Begun, p.Status.BegunBy = step.Time.DeepCopy(), p.author(step)
		}
	}
}

// author is what has taken the step by which a remediation began: kubemend, or the creator of a request that kubemend adopted.
func (p *planning) author(step *mendv1.RecordStep) string {
	for _, req := range p.f.Requests {
		if step.Object != nil && req.RecordRef == *step.Object && req.By != "" {
			return req.By
		}
	}
	return "kubemend"
}

// noteReplacement notes the machine that comes in place of the target.
func (p *planning) noteReplacement() {
	c := &p.f.Capacity
	if !c.Known || !p.f.Target.leaving() || c.Replacement == nil || p.same(c.Replacement.Machine) {
		return
	}
	if found := p.Status.Replacement; found == nil || !Same(found.Machine, c.Replacement.Machine, p.f.Moved) {
		p.step(p.f.Now, ReplacementFound, c.Replacement.Machine)
	}
	p.Status.Replacement = c.Replacement
}

// same reports whether machine is the target itself.
func (p *planning) same(machine mendv1.RecordRef) bool {
	t := &p.f.Target
	if machine.Name != t.Name {
		return false
	}
	return p.f.Moved || machine.UID == "" || t.UID == "" || machine.UID == t.UID
}

// wait notes what is waited for, and for how long other causes have held it up.
func (p *planning) wait() {
	reason, object, since := p.cause()
	if reason == "" {
		p.Waiting = waitingFor(&p.Status)
		return
	}
	p.Waiting, p.Object = reason, object
	if c := &p.f.Capacity; c.Known && c.Reason == reason {
		p.Over, p.Overdue = c.Over, c.Overdue
	}
	if now := waitingFor(&p.Status); reason == now || now == OtherReason && !p.room(reason) {
		return
	}
	at := p.stopWaiting(p.until(since))
	p.startWaiting(reason, at)
	n := len(p.Status.Steps)
	switch {
	case n < mostWaits:
	case milestones[p.Status.Steps[n-1].Reason]:
		return
	default:
		p.Status.Steps = p.Status.Steps[:n-1]
	}
	p.step(at, reason, object)
}

// mostWaits is how many steps there may be before the next wait replaces the one before it: the others are needed to know what was done.
const mostWaits = mendv1.MaxRecordSteps - 2*MaxRequests

// milestones are the steps that are no waits.
var milestones = map[string]bool{
	OwnerRequested: true, RequestCreated: true, RemediatorActs: true, RequestsEnded: true, Withdrawn: true, TargetDeleting: true, TargetGone: true,
	ReplacementFound: true,
}

// cause is what is waited for; empty if nothing is known of that, or nothing has begun.
func (p *planning) cause() (reason string, object mendv1.RecordRef, since time.Time) {
	c, t := &p.f.Capacity, &p.f.Target
	followed := t.Machine && (t.leaving() || !t.Asked.IsZero())
	switch {
	case !t.Known || p.Status.Begun.IsZero() && !t.gone():
		return "", mendv1.RecordRef{}, time.Time{}
	case followed && c.Known:
		return c.Reason, c.Object, c.Since
	case followed:
		return "", mendv1.RecordRef{}, time.Time{}
	}
	if i := slices.IndexFunc(p.f.Requests, func(r Request) bool { return !r.ended() }); i >= 0 {
		return p.f.Requests[i].cause()
	}
	if r := p.succeeded(); r != nil {
		return AwaitingHealth, r.RecordRef, time.Time{}
	}
	if p.f.Next.Name != "" {
		return AwaitingNextStep, p.f.Next, time.Time{}
	}
	if step := last(&p.Status, RequestsEnded, Withdrawn); step != nil && p.settling() {
		return step.Reason, mendv1.RecordRef{}, step.Time.Time
	}
	return "", mendv1.RecordRef{}, time.Time{}
}

// cause is what is waited for while a remediator acts on the request.
func (r *Request) cause() (reason string, object mendv1.RecordRef, since time.Time) {
	if r.State == "" {
		return RemediationInProgress, r.RecordRef, r.Created
	}
	return r.State, r.RecordRef, time.Time{}
}

// until is when the wait that goes on ends, as another cause is found that is there since a moment. If that is from before the wait, as of a drain that a
// budget has blocked until now, the wait has hidden it: to count by that moment would leave nothing of what was in fact waited for.
func (p *planning) until(since time.Time) time.Time {
	for _, w := range p.Status.Waits {
		if !w.Since.IsZero() && !since.After(w.Since.Time) {
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
	if begun := p.Status.Begun; begun != nil && at.Before(begun.Time) {
		at = begun.Time
	}
	for i := range p.Status.Waits {
		w := &p.Status.Waits[i]
		if w.Since.IsZero() {
			continue
		}
		if at.Before(w.Since.Time) {
			at = w.Since.Time
		}
		w.Seconds += int64(at.Sub(w.Since.Time) / time.Second)
		w.Since = nil
	}
	return at
}

// room reports whether the waits have, or take, one for reason.
func (p *planning) room(reason string) bool {
	return len(p.Status.Waits) < MaxWaits-1 || slices.ContainsFunc(p.Status.Waits, func(w mendv1.RecordWait) bool { return w.Reason == reason })
}

func (p *planning) startWaiting(reason string, at time.Time) {
	if !p.room(reason) {
		reason = OtherReason
	}
	for i := range p.Status.Waits {
		if p.Status.Waits[i].Reason == reason {
			p.Status.Waits[i].Since = new(metav1.NewTime(at))
			return
		}
	}
	p.Status.Waits = append(p.Status.Waits, mendv1.RecordWait{Reason: reason, Since: new(metav1.NewTime(at))})
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
func (p *planning) step(at time.Time, reason string, object mendv1.RecordRef) {
	if n := len(p.Status.Steps); n > 0 && at.Before(p.Status.Steps[n-1].Time.Time) {
		at = p.Status.Steps[n-1].Time.Time
	}
	if len(p.Status.Steps) >= mendv1.MaxRecordSteps {
		p.Status.Steps = p.Status.Steps[:mendv1.MaxRecordSteps-1]
	}
	step := mendv1.RecordStep{Time: metav1.NewTime(at), Reason: reason}
	if object.Name != "" {
		step.Object = &object
	}
	p.Status.Steps = append(p.Status.Steps, step)
}
