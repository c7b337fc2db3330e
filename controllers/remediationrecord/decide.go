package remediationrecord

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

const (
	// MaxRequests is how many requests a record may name, as in the CRD.
	MaxRequests = 16
	// mostWaits is the number of steps from which on a new wait replaces the last one. The rest is left for two steps of each request.
	mostWaits = mendv1.MaxRecordSteps - 2*MaxRequests
	// Unbegun is how long after the last attempt a record is cancelled if its remediation did not begin.
	Unbegun = 5 * time.Minute
	// Idles is how long nothing must act on a target before its record waits for AwaitingNextStep. A check that has deleted a request may
	// be about to mark the target healthy, or to create the next request.
	Idles = 5 * time.Second
	// Settle is how long nothing must ask for a begun remediation before its record is closed. The next request may come a moment later.
	Settle = 5 * time.Minute
)

// Plan is what a record will say next.
type Plan struct {
	Status mendv1.RemediationRecordStatus
	// Waiting is what the record waits for now; it is PausedReason, and nothing is written, while the Cluster is paused.
	Waiting string
	// Object is the object that the record waits for.
	Object mendv1.RecordRef
	// Again is when the plan changes by time alone; zero if it does not.
	Again time.Time
	// Confirm reports that Status rests on a missing object, such as a request. The cache may be stale, so the caller must read again live.
	Confirm bool
	// Idle reports that nothing acts on the target while Facts.Next has a step left for it.
	Idle bool
}

type planning struct {
	Plan
	*Facts

	status *mendv1.RemediationRecordStatus
}

// Decide returns what the record will say next.
func Decide(facts Facts) Plan {
	p := &planning{Facts: &facts}
	p.Plan.Status = *facts.Status.DeepCopy()
	p.status = &p.Plan.Status
	switch {
	case !p.status.Ended.IsZero():
		return p.Plan
	case facts.Paused: // clusterctl move may be under way, and would lose a write
		p.Waiting = PausedReason
		return p.Plan
	}
	p.noteRequests()
	p.noteTarget()
	p.noteBeginning()
	p.noteReplacement()
	if !p.end() {
		p.wait()
	}
	return p.Plan
}

// noteRequests adds a step for each new request, and one when a remediator begins to act.
func (p *planning) noteRequests() {
	for _, req := range p.Requests {
		known := slices.ContainsFunc(p.status.Requests, func(ref mendv1.RecordRef) bool { return Same(ref, req.RecordRef, p.Moved) })
		if !known && len(p.status.Requests) < MaxRequests {
			p.status.Requests = append(p.status.Requests, req.RecordRef)
			p.step(req.Created, RequestCreated, req.RecordRef)
		}
		if req.Acts && last(p.status, RemediatorActs) == nil {
			p.step(p.Now, RemediatorActs, req.RecordRef)
		}
	}
}

// noteTarget adds steps when the owner is asked (also again, after a withdrawal), when the target is being deleted, and when it is gone.
func (p *planning) noteTarget() {
	t := &p.Target
	asked := last(p.status, OwnerRequested, Withdrawn, RequestsEnded)
	if t.Known && !t.Asked.IsZero() && (asked == nil || asked.Reason != OwnerRequested && t.ownerActs()) {
		p.step(t.Asked, OwnerRequested, mendv1.RecordRef{})
	}
	switch {
	case t.gone() && last(p.status, TargetGone) == nil:
		p.Confirm = !t.Went // the cache may not have a Machine yet that clusterctl has just moved here
		p.step(t.GoneAt, TargetGone, mendv1.RecordRef{})
	case t.leaving() && !t.gone() && last(p.status, TargetDeleting) == nil:
		p.step(t.Deleting, TargetDeleting, mendv1.RecordRef{})
	}
}

// noteBeginning sets when the remediation was begun. A deletion alone does not count: somebody else may delete a Machine before kubemend
// begins.
func (p *planning) noteBeginning() {
	if step := first(p.status, OwnerRequested, RequestCreated); step != nil && !p.begun() {
		p.status.Begun = new(metav1.NewTime(step.Time.Truncate(time.Second)))
	}
}

func (p *planning) begun() bool { return !p.status.Begun.IsZero() }

func (p *planning) noteReplacement() {
	by := p.Capacity.Replacement
	if !p.Capacity.Known || !p.Target.leaving() || by == nil || Same(p.Target.RecordRef, by.Machine, p.Moved) {
		return
	}
	if found := p.status.Replacement; found == nil || !Same(found.Machine, by.Machine, p.Moved) {
		p.step(p.Now, ReplacementFound, by.Machine)
	}
	p.status.Replacement = by
}

func (p *planning) wait() {
	reason, object, since := p.cause()
	current := waitingFor(p.status)
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
	case current != nil && !since.After(current.Time.Time): // the current wait hid it, as DrainBlockedByBudget hides a drain
		since = p.Now
	}
	steps := p.status.Steps
	if n := len(steps); n >= mostWaits { // waits that alternate must not fill the record
		if deeds[steps[n-1].Reason] {
			return
		}
		p.status.Steps = steps[:n-1]
	}
	p.Confirm = p.Confirm || reason == AwaitingNextStep // the check may have created the next request a moment ago
	p.step(since, reason, object)
}

// cause returns what the record waits for; no reason if that is not known, or if nothing has begun.
func (p *planning) cause() (reason string, object mendv1.RecordRef, since time.Time) {
	c, t, none := &p.Capacity, &p.Target, mendv1.RecordRef{}
	followed := t.Machine && (t.leaving() || !t.Asked.IsZero())
	switch req, succeeded := p.inProgress(), p.succeeded(); {
	case !t.Known || !p.begun() && !t.gone(), followed && !c.Known:
		return "", none, time.Time{}
	case followed:
		return c.Reason, c.Object, c.Since
	case req != nil && req.State == "":
		return RemediationInProgress, req.RecordRef, req.Created
	case req != nil:
		return req.State, req.RecordRef, time.Time{}
	case succeeded != nil:
		return AwaitingHealth, succeeded.RecordRef, time.Time{}
	case p.Next.Name != "":
		return p.idle()
	}
	if step := p.settling(); step != nil {
		return step.Reason, none, step.Time.Time
	}
	return "", none, time.Time{}
}

// idle returns AwaitingNextStep, once nothing has acted on the target for Idles.
func (p *planning) idle() (reason string, object mendv1.RecordRef, since time.Time) {
	p.Idle = true
	if p.IdleSince.IsZero() || p.Now.Before(p.IdleSince.Add(Idles)) {
		return "", mendv1.RecordRef{}, time.Time{}
	}
	return AwaitingNextStep, p.Next, p.IdleSince
}

// step appends a step. If the list is full, the new step replaces the last one, because the first steps say most. The time of a step is at
// most now, and not before the decision: the clock of an earlier manager may have been ahead. It is not before the previous step either,
// because other controllers write whole seconds.
func (p *planning) step(at time.Time, reason string, object mendv1.RecordRef) {
	if at.IsZero() || at.After(p.Now) {
		at = p.Now
	}
	if at.Before(p.Decided) {
		at = p.Decided
	}
	if n := len(p.status.Steps); n > 0 && at.Before(p.status.Steps[n-1].Time.Time) {
		at = p.status.Steps[n-1].Time.Time
	}
	p.status.Steps = p.status.Steps[:min(len(p.status.Steps), mendv1.MaxRecordSteps-1)]
	step := mendv1.RecordStep{Time: metav1.NewMicroTime(at.Truncate(time.Millisecond)), Reason: reason}
	if object.Name != "" {
		step.Object = &object
	}
	p.status.Steps = append(p.status.Steps, step)
}

func (p *planning) end() bool {
	t := &p.Target
	switch health := p.Health(); {
	case !t.Known:
		return false
	case t.Superseded && p.begun() && health != Yes:
		return p.finish(mendv1.RecordCancelled, Withdrawn, time.Time{})
	case t.gone(), t.leaving() && p.begun():
		return p.endOfLeaving()
	case !p.begun():
		return p.endBefore()
	case p.RequestsUnread || p.inProgress() != nil, p.askedJustNow():
		return false
	case health == Yes:
		return p.endOfHealthy()
	case health == No && !t.ownerActs() && p.succeeded() == nil && p.Next.Name == "":
		return p.endOfNothingLeft()
	}
	return false
}

// askedJustNow reports whether the owner was asked, or a request was created, within Idles. The caches may not show that yet, so that the
// target might look healthy, or the remediation withdrawn.
func (p *planning) askedJustNow() bool {
	asked := last(p.status, OwnerRequested, RequestCreated)
	if asked == nil || asked.Time.After(p.Now) || !p.Now.Before(asked.Time.Add(Idles)) {
		return false
	}
	p.Again = asked.Time.Add(Idles)
	return true
}

func (p *planning) endOfHealthy() bool {
	by, since := Recovered, p.Target.NodeReadySince
	if p.effective() {
		by = ""
	}
	if p.Target.Checked == Yes {
		since = p.Target.CheckedSince
	}
	return p.finish(mendv1.RecordHealed, by, since)
}

// endOfLeaving ends the record of a target that is being deleted, or gone. Such a target is never Healed. It is Replaced if another machine
// is healthy, or if the owner has all its machines again. A node that a remediator has deleted may come back while there is a request.
func (p *planning) endOfLeaving() bool {
	c, t := &p.Capacity, &p.Target
	replaced := c.Others > 0
	if c.Replacement != nil {
		replaced = c.Healthy && !Same(t.RecordRef, c.Replacement.Machine, p.Moved)
	}
	switch {
	case !t.Machine && t.gone() && !p.RequestsUnread && p.inProgress() == nil:
		return p.finish(mendv1.RecordGone, Deleted, time.Time{})
	case !t.Machine || !c.Known:
		return false
	case c.Back && replaced:
		return p.finish(mendv1.RecordReplaced, "", c.Since)
	case c.Over && t.gone():
		return p.finish(mendv1.RecordGone, c.Reason, time.Time{})
	}
	return false
}

func (p *planning) endBefore() bool {
	attempted := p.Decided
	if at := p.status.Attempted; at != nil && at.After(attempted) {
		attempted = at.Time
	}
	if due := attempted.Add(Unbegun); p.Now.Before(due) {
		p.Again = due
		return false
	}
	return !p.RequestsUnread && p.finish(mendv1.RecordCancelled, NotBegun, time.Time{}) // a request that cannot be read may have begun it
}

// endOfNothingLeft ends the record of an unhealthy target on which nothing has acted for Settle.
func (p *planning) endOfNothingLeft() bool {
	reason := Withdrawn
	if len(p.Requests) > 0 {
		reason = RequestsEnded
	}
	step, waits := p.settling(), waitingFor(p.status)
	if step == nil || step.Reason != reason || waits != nil && waits.Reason == AwaitingNextStep {
		p.step(p.Now, reason, mendv1.RecordRef{})
		p.Confirm = true
		step = last(p.status, reason)
	}
	if due := step.Time.Add(Settle); p.Now.Before(due) {
		p.Again = due
		return false
	}
	if reason == Withdrawn && !p.effective() {
		return p.finish(mendv1.RecordCancelled, Withdrawn, time.Time{})
	}
	return p.finish(mendv1.RecordGivenUp, reason, time.Time{})
}

// settling returns the step since which nothing asks for the remediation; nil if something has asked since.
func (p *planning) settling() *mendv1.RecordStep {
	step := last(p.status, RequestsEnded, Withdrawn, OwnerRequested, RequestCreated)
	if step == nil || step.Reason == OwnerRequested || step.Reason == RequestCreated {
		return nil
	}
	return step
}

// effective reports whether something was done to the target. A full record may have lost that step, so it counts as effective.
func (p *planning) effective() bool {
	return last(p.status, RemediatorActs, TargetDeleting) != nil || len(p.status.Steps) >= mendv1.MaxRecordSteps
}

// finish ends the record, and returns true. back is since when the capacity is back, for an outcome with capacity; CapacityBack is never
// before the remediation was decided or begun, nor after its end.
func (p *planning) finish(outcome mendv1.RecordOutcome, by string, back time.Time) bool {
	status := p.status
	p.step(p.Now, string(outcome), mendv1.RecordRef{})
	ended := status.Steps[len(status.Steps)-1].Time.Truncate(time.Second)
	status.Ended, status.Outcome, status.EndedBy = new(metav1.NewTime(ended)), outcome, by
	if outcome == mendv1.RecordHealed || outcome == mendv1.RecordReplaced {
		if back.IsZero() || back.After(ended) {
			back = ended
		}
		if status.Begun != nil && back.Before(status.Begun.Time) {
			back = status.Begun.Time
		}
		if back.Before(p.Decided) {
			back = p.Decided
		}
		status.CapacityBack = new(metav1.NewTime(back))
	}
	p.Waiting, p.Object, p.Again = "", mendv1.RecordRef{}, time.Time{}
	p.Confirm = outcome != mendv1.RecordReplaced // Replaced rests on a Machine that exists
	return true
}
