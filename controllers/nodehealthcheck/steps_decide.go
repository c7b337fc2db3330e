package nodehealthcheck

import (
	"cmp"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/controlplane"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

func (d *decider) decide(decision *Decision) {
	c := d.caseOf(decision)
	c.Start = -1
	c.flag()
	switch state := c.Verdict.State; {
	case len(c.Unseen) > 0:
		c.leased() // nothing else is known until the requests can be read again
	case !c.exists():
		c.gone()
	case state == health.Healthy:
		c.healthy()
	case state == health.Unknown:
		c.leased() // requests stay as they are
	default:
		c.resumed()
		c.leased()
	}
	if c.is(health.Unhealthy) {
		for j := range c.Requests {
			c.Requests[j].End = c.repeats(c.f, &c.Requests[j])
		}
		c.unhealthy()
	} else {
		c.block()
	}
	c.Would, c.Nothing = c.would()
	if c.exists() && c.Verdict.State != health.Healthy {
		c.Remember = c.worthRemembering()
	}
	c.lookAgain(c.Verdict.Recheck)
}

// block sets the blockers of a node that is not unhealthy.
func (c *Case) block() {
	asked := ofState
	if c.Verdict.State == health.Pending {
		c.upgrade, c.head = &c.ahead, cmp.Or(c.first, c.next)
		switch {
		case c.remediated():
			asked = whileHeld
		case c.Selected:
			asked = c.toBegin()
		default:
			asked = ofSelection
		}
	}
	c.Blockers = c.ask(asked)
}

func (c *Case) flag() {
	for j := range c.Requests {
		r := &c.Requests[j]
		flagged := r.Object.GetAnnotations()[nhcv1.OldRequestAnnotation] != "" || c.f.Memory.Requests[r.ID()].Flagged
		if old := r.started().Add(tooOld); !flagged && c.f.Now.After(old) {
			r.note(nhcv1.OldRequestAnnotation, nhcv1.OldRequestFlag)
		} else if !flagged {
			c.lookAgain(old.Add(time.Second))
		}
	}
}

// lookAgain makes the next reconcile happen at the given time at the latest; zero changes nothing.
func (c *Case) lookAgain(at time.Time) { c.Recheck = health.Earliest(c.Recheck, at) }

// happens makes the next reconcile happen at m.At at the latest. If m has a reason, and is earlier than c.Next, users see it as c.Next.
func (c *Case) happens(m rule.Step) {
	c.lookAgain(m.At)
	if !m.At.IsZero() && m.Reason != "" && (c.Next.At.IsZero() || m.At.Before(c.Next.At)) {
		c.Next = m
	}
}

// startable reports whether the node is in one of the states, and its remediation would start once it is unhealthy and nothing blocks it.
func (d *Decision) startable(states ...health.State) bool {
	return d.Selected && d.exists() && slices.Contains(states, d.Verdict.State) && !d.begun()
}

// begun reports whether a remediation of the present failure has begun: there is a request that is not over.
func (d *Decision) begun() bool {
	return len(d.Unseen) > 0 || slices.ContainsFunc(d.Requests, func(r RequestState) bool { return !r.Over })
}

// healthy decides about a healthy node: its requests are deleted, at once or after the healthy delay, and then its lease.
func (c *Case) healthy() {
	if len(c.Requests) == 0 {
		c.Unconfirm = c.confirmed() && len(c.Others) == 0 // the remediation of another check may wait for the annotation
		c.unleased()
		return
	}
	wait, now := c.f.healthyDelay(), c.f.Now
	for j := range c.Requests {
		r := &c.Requests[j]
		begun := health.Earliest(r.annotated(nhcv1.HealthyDelayAnnotation), c.healthySince()) // a remediator may remove the annotation
		switch {
		case !r.Deleting().IsZero():
		case c.confirmed() || wait == 0:
			r.End = true
		case wait < 0:
			c.Delayed = true
		case begun.IsZero() || now.Before(begun.Add(wait)):
			if c.Delayed = true; begun.IsZero() {
				r.note(nhcv1.HealthyDelayAnnotation, stamp(now))
				begun = now
			}
			c.happens(rule.Step{At: begun.Add(wait), Reason: DelayEnds, Text: "the healthy delay is over, and its requests are deleted"})
		default:
			r.End = true
		}
	}
	c.leased()
}

// stamp formats a time for an annotation.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// leased keeps the lease while requests exist or one is about to be created again. When no step is left, the lease ends after a while, so
// that others may remediate the node.
func (c *Case) leased() {
	now := c.f.Now
	if !c.remediated() && len(c.Orphaned) == 0 {
		if at := c.remade(func(*Listed) bool { return true }); now.Before(at) && c.Selected {
			c.lookAgain(at)
			return
		}
		c.unleased()
		return
	}
	step, since := -1, now
	for i := range c.Requests {
		step, since = max(step, c.Requests[i].Step), health.Earliest(since, c.Requests[i].started())
	}
	for i := range c.Unseen {
		step, since = max(step, c.Unseen[i].Step), health.Earliest(since, c.Unseen[i].Started.Time)
	}
	if idle := c.idleSince(); !idle.IsZero() {
		if !now.Before(idle.Add(idleLease)) {
			if c.Lease.own() {
				c.Leasing = DropLease
			}
			return
		}
		c.lookAgain(idle.Add(idleLease))
	}
	c.Term = Term{Length: termOf(c.steps, step).Length} // never overdue, because a step is left, even if it is blocked
	if len(c.steps) > 0 && c.escalationOf(c.Node, c.escalated()).Do == escalation.Exhausted {
		c.Term = termOf(c.steps, len(c.steps)-1)
	}
	var again time.Time
	c.Leasing, again = c.Lease.next(c.Term, since, now)
	c.lookAgain(again)
}

// idleSince returns since when the only remediator of the node has ended, so that none works on it any more; zero otherwise.
func (c *Case) idleSince() time.Time {
	if !c.f.single() || !c.exists() || len(c.Unseen) > 0 || len(c.Orphaned) > 0 {
		return time.Time{}
	}
	var since time.Time
	for j := range c.Requests {
		at := c.Requests[j].idleSince()
		if at.IsZero() {
			return time.Time{}
		}
		since = health.Latest(since, at)
	}
	return since
}

// idleSince returns since when no remediator works on r; zero if one does. The remediator's times may be wrong, so it is not before r.
func (r *Request) idleSince() time.Time {
	succeeded, since := escalation.Says(r.Object, nhcv1.SucceededCondition)
	processing, stopped := escalation.Says(r.Object, nhcv1.ProcessingCondition)
	switch {
	case !r.Deleting().IsZero():
		return r.Deleting()
	case succeeded == escalation.No:
		return health.Latest(since, r.started())
	case succeeded == escalation.Unsaid && processing == escalation.No:
		return health.Latest(stopped, r.started())
	}
	return time.Time{}
}

// unleased deletes the lease, unless an orphaned request of a deleted check of the same name still needs it.
func (c *Case) unleased() {
	if len(c.Orphaned) > 0 {
		c.leased()
		return
	}
	if c.Lease.own() {
		c.Leasing = DropLease
	}
}

// unhealthy decides about an unhealthy node: the first step starts if nothing blocks it, and the next step follows when a step has failed
// or timed out.
func (c *Case) unhealthy() {
	if !c.Selected && !c.remediated() { // other blockers do not matter
		c.Blockers = c.ask(ofSelection)
		return
	}
	gaveUp, answer := c.escalate()
	first, next := moment(0), ofAnswer
	if c.answer = answer; answer.Do == escalation.Start {
		c.step, next = answer.Step, beforeNext
	}
	if c.begins = !c.begun(); c.begins {
		first = c.toBegin()
	}
	c.Blockers = c.ask(first | next)
	if len(c.steps) == 0 {
		return
	}
	if len(c.ask(first)) > 0 {
		c.happens(askedAgain(c.Blockers))
		return
	}
	c.GaveUp, c.Answer = gaveUp, answer
	c.adopt()
	c.happens(c.expires(answer))
	switch {
	case answer.Do == escalation.Start && len(c.Blockers) == 0:
		c.start(answer.Step)
	case answer.Do == escalation.Start:
		c.happens(askedAgain(c.Blockers))
	}
}

// adopt makes requests of an earlier failure that still exist part of the new failure, and gives up the requests of a step that is given
// up. Remediators that were notified before are not notified again.
func (c *Case) adopt() {
	for j := range c.Requests {
		r := &c.Requests[j]
		r.Adopt = r.Over
		r.GiveUp = c.GaveUp.Do == escalation.GiveUp && r.Step == c.GaveUp.Step && (!c.GaveUp.Notify || !r.notified())
		if r.GiveUp && c.GaveUp.Notify {
			r.note(nhcv1.TimedOutAnnotation, stamp(c.f.Now))
		}
	}
}

// askedAgain returns when the first of the blockers ends, or is checked again.
func askedAgain(blockers []Blocker) rule.Step {
	var at time.Time
	for _, b := range blockers {
		if b.Again.IsZero() {
			b.Again = b.Until
		}
		at = health.Earliest(at, b.Again)
	}
	return rule.Step{At: at, Reason: AskedAgain, Text: "it is checked again"}
}

func (c *Case) start(step int) {
	c.Start, c.Term = step, termOf(c.steps, step)
	if len(c.Requests) == 0 {
		c.Leasing, _ = c.Lease.next(c.Term, c.f.Now, c.f.Now)
		if c.Leasing == DropLease { // the lease is left from an earlier remediation
			c.Leasing = RenewLease
		}
	}
}

// worthRemembering returns the requests that are gone and that the escalation still needs: those that were given up, and the first and
// the last of each step that were not. Without them a step would be taken again after its request was deleted, at once and with its full
// timeout.
func (c *Case) worthRemembering() []int {
	var worth []int
	for i := range c.Gone {
		gone, first, last := &c.Gone[i], true, true
		for j := range c.Gone {
			if other := &c.Gone[j]; other.Step == gone.Step && other.TimedOut == nil {
				first = first && !other.Started.Before(&gone.Started)
				last = last && !gone.Started.Before(&other.Started)
			}
		}
		if gone.TimedOut != nil || gone.Step >= 0 && (first || last) {
			worth = append(worth, i)
		}
	}
	return worth
}

// Only the holder of a node's lease remediates the node. NodeHealthChecks and medik8s' Node Maintenance Operator use these leases.
const (
	// defaultTerm is the term of a lease if the step has no timeout.
	defaultTerm = 10 * time.Minute
	// leaseBuffer is how much longer than its term a lease lasts.
	leaseBuffer = time.Minute
	// leaseTaken is how soon to check a node again if somebody else holds its lease.
	leaseTaken = time.Minute
	// idleLease is how long the lease is kept after the only remediator has ended: as long as medik8s' timeout of a single remediation.
	idleLease = 30 * time.Minute
)

// Lease is the lease on a node. Own says that the check holds it, Held that somebody else holds it now.
type Lease struct {
	*coordinationv1.Lease
	Own, Held bool
}

func (f *Facts) leaseOn(node *corev1.Node, lease *coordinationv1.Lease) *Lease {
	if lease == nil {
		return nil
	}
	holder := holderOf(f.Check)
	return &Lease{Lease: lease, Own: ptr.Deref(lease.Spec.HolderIdentity, "") == holder,
		Held: controlplane.Leased(lease, node, holder, f.Now)}
}

func holderOf(check *nhcv1.NodeHealthCheck) string { return nhcv1.LeaseHolderPrefix + check.Name }

func (l *Lease) own() bool { return l != nil && l.Own }

func (l *Lease) held() bool { return l != nil && l.Held }

func (l *Lease) expiry() time.Time { return controlplane.Expiry(l.Lease) }

// Term is how long a node is leased.
type Term struct {
	Length  time.Duration
	Overdue time.Duration // after this time since it was acquired the lease is dropped; zero means never
}

// Seconds returns the duration of a lease for the term.
func (t Term) Seconds() int32 {
	return int32(min((t.Length+leaseBuffer)/time.Second, math.MaxInt32))
}

// termOf returns the term for a step. (medik8s finds the step by the kind of its template, and may find a wrong one.)
func termOf(steps []escalation.Step, step int) Term {
	if step < 0 || step >= len(steps) || steps[step].Timeout == 0 {
		return Term{Length: defaultTerm}
	}
	length := steps[step].Timeout
	t := Term{Length: length, Overdue: 3 * length}
	for _, before := range steps[:step] {
		t.Overdue += before.Timeout
	}
	return t
}

// next returns what to do about the lease of a node that is being remediated since a time, and when to decide again.
func (l *Lease) next(t Term, since, now time.Time) (LeaseAction, time.Time) {
	acquired := since
	if l.own() && l.Spec.AcquireTime != nil {
		acquired = l.Spec.AcquireTime.Time
	}
	if overdue := acquired.Add(t.Overdue); t.Overdue > 0 && now.After(overdue) {
		if l.own() {
			return DropLease, time.Time{}
		}
		return KeepLease, time.Time{}
	}
	switch {
	case l.held():
		return KeepLease, l.expiry()
	case !l.own():
		return TakeLease, now.Add(t.Length)
	}
	// Renew at half of the term, so that the lease survives half a term without a manager, and at once if the term has changed.
	if renew := l.expiry().Add(-leaseBuffer - t.Length/2); now.Before(renew) && ptr.Deref(l.Spec.LeaseDurationSeconds, 0) == t.Seconds() {
		return KeepLease, renew
	}
	return RenewLease, now.Add(t.Length / 2)
}
