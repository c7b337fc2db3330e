package remediationrecord

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// end ends the record if its end is known, and reports whether it did.
func (p *planning) end() bool {
	t := &p.f.Target
	switch {
	case !t.Known:
		return false
	case t.Superseded && p.begun() && p.health() != Yes:
		p.finish(mendv1.RecordCancelled, Withdrawn, time.Time{})
		return true
	case t.gone(), t.leaving() && p.begun():
		return p.endOfLeaving()
	case !p.begun():
		return p.endBefore()
	case p.f.RequestsUnread || p.inProgress():
		return false
	}
	switch health := p.health(); {
	case health == Yes:
		p.finish(mendv1.RecordHealed, p.healer(), p.healthySince())
		return true
	case health == No && t.Asked.IsZero() && p.succeeded() == nil && p.f.Next.Name == "":
		return p.endOfNothingLeft()
	}
	return false
}

// succeeded is the newest request, if its remediator says that it has succeeded: what it has begun may take longer than any time that is
// known here. It is deleted by who has made it.
func (p *planning) succeeded() *Request {
	if n := len(p.f.Requests); n > 0 && p.f.Requests[n-1].Succeeded {
		return &p.f.Requests[n-1]
	}
	return nil
}

func (p *planning) begun() bool { return !p.Status.Begun.IsZero() }

// inProgress reports whether a request has not ended.
func (p *planning) inProgress() bool {
	for i := range p.f.Requests {
		if !p.f.Requests[i].ended() {
			return true
		}
	}
	return false
}

// Health is what is known of the health of the target of f. An owner that leaves OwnerRemediated False does not make a machine unhealthy
// that the check which asked calls healthy again: no owner of Cluster API replaces it then.
func (f *Facts) Health() Truth {
	t := &f.Target
	switch {
	case !t.Known:
		return Unknown
	case t.leaving() || t.ByHand || t.Checked == No:
		return No
	case t.Checked == Yes:
		return Yes
	case !t.Asked.IsZero() || t.Evidence == Yes || t.NodeReady == No:
		return No
	case t.Evidence == No && t.NodeReady == Yes:
		return Yes
	}
	return Unknown
}

// health is that of the target. Of a host, its requests say it.
func (p *planning) health() Truth {
	health := p.f.Health()
	for i := range p.f.Requests {
		if req := &p.f.Requests[i]; health == Unknown && req.ended() && p.f.Target.Kind == hostKind {
			health = No
			if req.Succeeded {
				return Yes
			}
		}
	}
	return health
}

// endOfLeaving ends the record of a target that is being deleted, or gone: whether it was replaced says its capacity. It is never healed.
func (p *planning) endOfLeaving() bool {
	c, t := &p.f.Capacity, &p.f.Target
	switch {
	case !t.Machine:
		if !t.gone() || p.f.RequestsUnread || p.inProgress() { // a remediator may delete a node that comes back
			return false
		}
		p.finish(mendv1.RecordGone, Deleted, time.Time{})
		return true
	case !c.Known:
		return false
	case c.Back && p.replaced():
		p.finish(mendv1.RecordReplaced, "", c.Since)
		return true
	case c.Over && t.gone():
		p.finish(mendv1.RecordGone, c.Reason, time.Time{})
		return true
	}
	return false
}

// replaced reports whether another machine is healthy in place of the target, or all that a rollout has made.
func (p *planning) replaced() bool {
	c := &p.f.Capacity
	if c.Replacement == nil {
		return c.Others > 0
	}
	return c.Healthy && !p.same(c.Replacement.Machine)
}

// endBefore ends the record of a remediation that does not begin in time.
func (p *planning) endBefore() bool {
	attempted := p.f.Decided
	if at := p.Status.Attempted; at != nil && at.After(attempted) {
		attempted = at.Time
	}
	if due := attempted.Add(Unbegun); p.f.Now.Before(due) {
		p.Again = due
		return false
	}
	if p.f.RequestsUnread { // time alone changes nothing then
		return false
	}
	p.finish(mendv1.RecordCancelled, NotBegun, time.Time{})
	return true
}

// endOfNothingLeft ends the record of a target that is unhealthy while nothing acts on it any more, once that has lasted.
func (p *planning) endOfNothingLeft() bool {
	reason := Withdrawn
	if len(p.f.Requests) > 0 {
		reason = RequestsEnded
	}
	step := last(&p.Status, RequestsEnded, Withdrawn)
	if waits := waitingFor(&p.Status); !p.settling() || step.Reason != reason || waits != nil && waits.Reason == AwaitingNextStep {
		p.step(p.f.Now, reason, mendv1.RecordRef{})
		p.Confirm = true
		step = last(&p.Status, reason)
	}
	if due := step.Time.Add(Settle); p.f.Now.Before(due) {
		p.Again = due
		return false
	}
	if reason == Withdrawn && !p.effective() {
		p.finish(mendv1.RecordCancelled, Withdrawn, time.Time{})
		return true
	}
	p.finish(mendv1.RecordGivenUp, reason, time.Time{})
	return true
}

// settling reports whether nothing has asked for the remediation since the last step that says so.
func (p *planning) settling() bool {
	step := last(&p.Status, RequestsEnded, Withdrawn, OwnerRequested, RequestCreated)
	return step != nil && (step.Reason == RequestsEnded || step.Reason == Withdrawn)
}

// effective reports whether something was done to the target. A record that has lost some of its steps does not know.
func (p *planning) effective() bool {
	return last(&p.Status, RemediatorActs, TargetDeleting) != nil || len(p.Status.Steps) >= mendv1.MaxRecordSteps
}

// healer is what has healed the target, if it is not the remediation.
func (p *planning) healer() string {
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

// finish ends the record. Capacity is back since a moment, which is not before the remediation was decided or begun, of an outcome with
// capacity.
func (p *planning) finish(outcome mendv1.RecordOutcome, by string, back time.Time) {
	status, now := &p.Status, p.f.Now
	status.Ended, status.Outcome, status.EndedBy = new(metav1.NewTime(now.Truncate(time.Second))), outcome, by
	if outcome == mendv1.RecordHealed || outcome == mendv1.RecordReplaced {
		if back.IsZero() || back.After(status.Ended.Time) {
			back = status.Ended.Time
		}
		if status.Begun != nil && back.Before(status.Begun.Time) {
			back = status.Begun.Time
		}
		if back.Before(p.f.Decided) {
			back = p.f.Decided
		}
		status.CapacityBack = new(metav1.NewTime(back))
	}
	p.step(now, string(outcome), mendv1.RecordRef{})
	p.Waiting, p.Object, p.Again, p.Confirm = "", mendv1.RecordRef{}, time.Time{}, true
}
