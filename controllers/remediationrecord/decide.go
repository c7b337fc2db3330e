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
	// Waiting is what is waited for now, and Object that for which. While the Cluster is paused nothing is written, and Waiting is
	// PausedReason.
	Waiting string
	Object  mendv1.RecordRef
	// Again is when time alone changes something; zero if it does not.
	Again time.Time
	// Confirm reports that Status rests on what is not there any more, such as a request: a cache that is behind may not show it yet.
	Confirm bool
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
	f.Now = f.notBefore()
	p.noteRequests()
	p.noteOwner()
	p.noteTarget()
	p.begin()
	p.noteReplacement()
	if !p.end() {
		p.wait()
	}
	return p.Plan
}

// beginning returns what a record says once the remediation was begun that f has.
func beginning(f Facts) Plan {
	p := &planning{f: &f, Plan: Plan{Status: *f.Status.DeepCopy()}}
	f.Now = f.notBefore()
	p.noteRequests()
	p.noteOwner()
	p.begin()
	return p.Plan
}

// notBefore is Now, or what the record says last: the clock of a manager that was ahead was corrected, and no record ends before it begins.
func (f *Facts) notBefore() time.Time {
	now := f.Now
	if f.Decided.After(now) {
		now = f.Decided
	}
	if n := len(f.Status.Steps); n > 0 && f.Status.Steps[n-1].Time.After(now) {
		now = f.Status.Steps[n-1].Time.Time
	}
	return now
}

// noteRequests notes the requests that are new, and that one is acted on.
func (p *planning) noteRequests() {
	for _, r := range p.f.Requests {
		known := slices.ContainsFunc(p.Status.Requests, func(o mendv1.RecordRef) bool { return Same(o, r.RecordRef, p.f.Moved) })
		if !known && len(p.Status.Requests) < MaxRequests {
			p.Status.Requests = append(p.Status.Requests, r.RecordRef)
			p.step(p.since(r.Created), RequestCreated, r.RecordRef)
		}
		if r.Acts && last(&p.Status, RemediatorActs) == nil {
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
	if t.leaving() && !t.gone() && last(&p.Status, TargetDeleting) == nil {
		p.step(p.since(t.Deleting), TargetDeleting, mendv1.RecordRef{})
	}
	if t.gone() && last(&p.Status, TargetGone) == nil {
		p.step(p.since(t.GoneAt), TargetGone, mendv1.RecordRef{})
	}
}

// begin notes when the remediation was begun, and by what: kubemend, or the creator of a request that kubemend adopted. A deletion is no
// beginning: before kubemend has begun, it is not its work.
func (p *planning) begin() {
	step := first(&p.Status, OwnerRequested, RequestCreated)
	if !p.Status.Begun.IsZero() || step == nil {
		return
	}
	p.Status.Begun, p.Status.BegunBy = new(metav1.NewTime(step.Time.Truncate(time.Second))), "kubemend"
	for _, req := range p.f.Requests {
		if step.Object != nil && req.RecordRef == *step.Object && req.By != "" {
			p.Status.BegunBy = req.By
		}
	}
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
	return machine.Name == t.Name && (p.f.Moved || machine.UID == "" || t.UID == "" || machine.UID == t.UID)
}

// wait notes what is waited for.
func (p *planning) wait() {
	reason, object, since := p.cause()
	current := waitingFor(&p.Status)
	if reason == "" {
		if current != nil {
			p.Waiting = current.Reason
		}
		return
	}
	p.Waiting, p.Object = reason, object
	switch {
	case current != nil && current.Reason == reason:
		return
	case current != nil && !since.After(current.Time.Time): // it has hidden this one, such as a drain that a budget has blocked until now
		since = p.f.Now
	}
	steps := p.Status.Steps
	if n := len(steps); n >= mostWaits { // waits that come and go must not displace what was done
		if deeds[steps[n-1].Reason] {
			return
		}
		p.Status.Steps = steps[:n-1]
	}
	p.Confirm = p.Confirm || reason == AwaitingNextStep // the request of that step may have been created a moment ago
	p.step(p.since(since), reason, object)
}

// mostWaits is how many steps there may be before the next wait replaces the one before it.
const mostWaits = mendv1.MaxRecordSteps - 2*MaxRequests

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

// since is the moment of something that was found at Now, and happened at that moment: not before it was decided, if kubemend did it, and
// not after Now.
func (p *planning) since(at time.Time) time.Time {
	if at.IsZero() || at.After(p.f.Now) {
		return p.f.Now
	}
	if at.Before(p.f.Decided) {
		return p.f.Decided
	}
	return at
}

// step adds a step, after those that are there. One that is one too many replaces the last one: the beginning says most. Moments that
// others have written down have whole seconds, so that one may be before that of a step which was taken first.
func (p *planning) step(at time.Time, reason string, object mendv1.RecordRef) {
	if n := len(p.Status.Steps); n > 0 && at.Before(p.Status.Steps[n-1].Time.Time) {
		at = p.Status.Steps[n-1].Time.Time
	}
	if len(p.Status.Steps) >= mendv1.MaxRecordSteps {
		p.Status.Steps = p.Status.Steps[:mendv1.MaxRecordSteps-1]
	}
	step := mendv1.RecordStep{Time: metav1.NewMicroTime(at.Truncate(time.Millisecond)), Reason: reason}
	if object.Name != "" {
		step.Object = &object
	}
	p.Status.Steps = append(p.Status.Steps, step)
}
