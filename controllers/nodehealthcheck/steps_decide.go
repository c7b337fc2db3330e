package nodehealthcheck

import (
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

func (d *decider) decide(i int) {
	c := d.caseOf(i, &d.now)
	c.Start = -1
	c.flag()
	switch state := c.Verdict.State; {
	case len(c.n.Unseen) > 0:
		c.leased() // until they can be read again nothing else is known
	case !c.n.Exists():
		c.gone()
	case state == health.Healthy:
		c.healthy()
	case state == health.Unknown:
		c.leased() // what was begun stays as it is
	default:
		c.resumed()
		c.leased()
	}
	if c.is(health.Unhealthy) {
		for j := range c.Requests {
			c.Requests[j].End = c.repeats(c.f, c.n, j)
		}
		c.unhealthy()
	} else {
		c.block()
	}
	c.Would, c.Nothing = c.would()
	if c.n.Exists() && c.Verdict.State != health.Healthy {
		c.Remember = c.worthRemembering()
	}
	c.lookAgain(c.Verdict.Recheck)
}

// block says what keeps a remediation from starting where the node is not unhealthy.
func (c *Case) block() {
	asked := ofState
	if c.Verdict.State == health.Pending {
		c.view = &c.ahead
		switch {
		case c.n.Remediated():
			asked = whileHeld
		case c.n.Selected:
			asked = c.toBegin()
		default:
			asked = ofSelection
		}
	}
	c.Blockers = c.ask(asked)
}

func (c *Case) flag() {
	for j := range c.n.Requests {
		r := &c.n.Requests[j]
		flagged := r.Object.GetAnnotations()[nhcv1.OldRequestAnnotation] != "" || c.f.Memory.Requests[r.ID()].Flagged
		if old := r.Started().Add(tooOld); !flagged && c.f.Now.After(old) {
			c.Requests[j].note(nhcv1.OldRequestAnnotation, nhcv1.OldRequestFlag)
		} else if !flagged {
			c.lookAgain(old.Add(time.Second))
		}
	}
}

// lookAgain makes the reconcile be repeated then at the latest; the zero moment asks for nothing.
func (c *Case) lookAgain(at time.Time) { c.Recheck = health.Earliest(c.Recheck, at) }

// happens makes the reconcile be repeated when m comes at the latest, of which users want to know if it says what happens.
func (c *Case) happens(m rule.Step) {
	c.lookAgain(m.At)
	if !m.At.IsZero() && m.Reason != "" && (c.Next.At.IsZero() || m.At.Before(c.Next.At)) {
		c.Next = m
	}
}

// startable reports whether a remediation of the node would start if nothing blocked it, were it in that state.
func (d *decider) startable(i int, state health.State) bool {
	n := &d.f.Nodes[i]
	return n.Selected && n.Exists() && d.p.Decisions[i].Verdict.State == state && !d.p.Decisions[i].begun(n)
}

// begun reports whether something is done about the node: there are requests, and not only those of the last time.
func (d *Decision) begun(n *Node) bool {
	return len(n.Unseen) > 0 || slices.ContainsFunc(d.Requests, func(r RequestState) bool { return !r.Over })
}

// healthy: its requests are over, at once or after the delay, and its lease after them.
func (c *Case) healthy() {
	if len(c.n.Requests) == 0 {
		c.Unconfirm = c.n.confirmed() && len(c.n.Others) == 0 // another check's remediation may wait for it
		c.unleased()
		return
	}
	wait, now := c.f.healthyDelay(), c.f.Now
	for j := range c.n.Requests {
		r := &c.n.Requests[j]
		begun := health.Earliest(r.annotated(nhcv1.HealthyDelayAnnotation), c.n.healthySince()) // a remediator may take the annotation off
		switch {
		case !r.Deleting().IsZero():
		case c.n.confirmed() || wait == 0:
			c.Requests[j].End = true
		case wait < 0:
			c.Delayed = true
		case begun.IsZero() || now.Before(begun.Add(wait)):
			if c.Delayed = true; begun.IsZero() {
				c.Requests[j].note(nhcv1.HealthyDelayAnnotation, stamp(now))
				begun = now
			}
			c.happens(rule.Step{At: begun.Add(wait), Reason: DelayEnds, Text: "the healthy delay is over, and its requests are deleted"})
		default:
			c.Requests[j].End = true
		}
	}
	c.leased()
}

// stamp is how annotations hold a moment.
func stamp(at time.Time) string { return at.UTC().Format(time.RFC3339) }

// leased keeps the lease while there are requests, or one is about to be made again; when no step is left only for a while, so that others
// may try.
func (c *Case) leased() {
	now := c.f.Now
	if !c.n.Remediated() && len(c.n.Orphaned) == 0 {
		if at := c.n.remade(func(*Listed) bool { return true }); now.Before(at) && c.n.Selected {
			c.lookAgain(at)
			return
		}
		c.unleased()
		return
	}
	step, since := -1, now
	for i := range c.n.Requests {
		step, since = max(step, c.n.Requests[i].Step), health.Earliest(since, c.n.Requests[i].Started())
	}
	for i := range c.n.Unseen {
		step, since = max(step, c.n.Unseen[i].Step), health.Earliest(since, c.n.Unseen[i].Started.Time)
	}
	if idle := c.idleSince(); !idle.IsZero() {
		if !now.Before(idle.Add(idleLease)) {
			if c.n.Lease.own() {
				c.Lease = DropLease
			}
			return
		}
		c.lookAgain(idle.Add(idleLease))
	}
	c.Term = Term{Length: termOf(c.steps, step).Length} // as long as a step is left the lease is kept for it, whatever blocks it
	if len(c.steps) > 0 && c.escalationOf(c.n, c.escalated()).Do == escalation.Exhausted {
		c.Term = termOf(c.steps, len(c.steps)-1)
	}
	var again time.Time
	c.Lease, again = c.n.Lease.next(c.Term, since, now)
	c.lookAgain(again)
}

// idleSince is since when no remediator is, or will be, at work on the node: its only one has ended. Zero if one is.
func (c *Case) idleSince() time.Time {
	if !c.f.Single() || !c.n.Exists() || len(c.n.Unseen) > 0 || len(c.n.Orphaned) > 0 {
		return time.Time{}
	}
	var since time.Time
	for j := range c.n.Requests {
		at := c.n.Requests[j].idleSince()
		if at.IsZero() {
			return time.Time{}
		}
		since = health.Latest(since, at)
	}
	return since
}

// idleSince is since when no remediator is at work on r; zero if one is. What it says may be older than r.
func (r *Request) idleSince() time.Time {
	succeeded, since := escalation.Says(r.Object, nhcv1.SucceededCondition)
	processing, stopped := escalation.Says(r.Object, nhcv1.ProcessingCondition)
	switch {
	case !r.Deleting().IsZero():
		return r.Deleting()
	case succeeded == escalation.No:
		return health.Latest(since, r.Started())
	case succeeded == escalation.Unsaid && processing == escalation.No:
		return health.Latest(stopped, r.Started())
	}
	return time.Time{}
}

// unleased gives the lease back, unless an orphaned request of a check of the same name is at work under it.
func (c *Case) unleased() {
	if len(c.n.Orphaned) > 0 {
		c.leased()
		return
	}
	if c.n.Lease.own() {
		c.Lease = DropLease
	}
}

// unhealthy: the first step starts if nothing blocks it; one that has failed, or whose time is over, is followed by the next one.
func (c *Case) unhealthy() {
	if !c.n.Selected && !c.n.Remediated() { // whatever else there is does not matter
		c.Blockers = c.ask(ofSelection)
		return
	}
	gaveUp, answer := c.escalate()
	first, next := moment(0), ofAnswer
	if c.answer = answer; answer.Do == escalation.Start {
		c.step, next = answer.Step, beforeNext
	}
	if c.begins = !c.begun(c.n); c.begins {
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

// adopt makes what is left of the last time what the failure begins with, and gives up the requests of a step that is given up. If
// remediators have to be notified, those who were know that.
func (c *Case) adopt() {
	for j := range c.Requests {
		r, state := &c.n.Requests[j], &c.Requests[j]
		state.Adopt = state.Over
		state.GiveUp = c.GaveUp.Do == escalation.GiveUp && r.Step == c.GaveUp.Step && (!c.GaveUp.Notify || !r.notified())
		if state.GiveUp && c.GaveUp.Notify {
			state.note(nhcv1.TimedOutAnnotation, stamp(c.f.Now))
		}
	}
}

// askedAgain is when the first of the blockers is over, or is looked at again.
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
	if len(c.n.Requests) == 0 {
		c.Lease, _ = c.n.Lease.next(c.Term, c.f.Now, c.f.Now)
		if c.Lease == DropLease { // one of ours from before
			c.Lease = RenewLease
		}
	}
}

// worthRemembering are, of requests that are gone, those that say something of the escalation: which were given up, and of each step the
// first and the last one that were not. A step that was taken is not taken again because its request was deleted, what was deleted is not
// made again at once, and not with all the time of the step.
func (c *Case) worthRemembering() []int {
	var worth []int
	for i := range c.n.Gone {
		gone, first, last := &c.n.Gone[i], true, true
		for j := range c.n.Gone {
			if other := &c.n.Gone[j]; other.Step == gone.Step && other.TimedOut == nil {
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

// A lease on a node is how checks, and the node maintenance of medik8s, keep out of each other's way: who holds it remediates.
const (
	// defaultTerm is for how long a node is leased where no step has a timeout.
	defaultTerm = 10 * time.Minute
	// leaseBuffer is by how much a lease outlasts what it is for.
	leaseBuffer = time.Minute
	// leaseTaken is how soon a node is looked at again whose lease somebody else holds.
	leaseTaken = time.Minute
	// idleLease is how long a node stays leased after its only remediator stopped. (medik8s times a single remediation out after as long.)
	idleLease = 30 * time.Minute
)

// Lease is the lease on a node. Own says that the check has it, Held that another party has it now.
type Lease struct {
	*coordinationv1.Lease
	Own, Held bool
}

func (f *Facts) leaseOn(node *corev1.Node, lease *coordinationv1.Lease) *Lease {
	if lease == nil {
		return nil
	}
	holder := holderOf(f.Check)
	return &Lease{Lease: lease, Own: ptr.Deref(lease.Spec.HolderIdentity, "") == holder, Held: controlplane.Leased(lease, node, holder, f.Now)}
}

func holderOf(check *nhcv1.NodeHealthCheck) string { return nhcv1.LeaseHolderPrefix + check.Name }

func (l *Lease) own() bool { return l != nil && l.Own }

func (l *Lease) held() bool { return l != nil && l.Held }

func (l *Lease) expiry() time.Time { return controlplane.Expiry(l.Lease) }

// Term is for how long a node is leased, and after how long an escalation that leads nowhere gives the lease up.
type Term struct {
	Length  time.Duration
	Overdue time.Duration // zero: never
}

// Seconds is how long a lease for the term lasts.
func (t Term) Seconds() int32 {
	return int32(min((t.Length+leaseBuffer)/time.Second, math.MaxInt32))
}

// termOf is the term while a step is in use. (medik8s looks a step up by the kind of its template, and so takes that of another one.)
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

// next says what to do about the lease of a node that is being remediated since the given moment, and when to look again.
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
	// Renewed so early that a manager that is away for half the term loses nothing, and when the term is another step's.
	if renew := l.expiry().Add(-leaseBuffer - t.Length/2); now.Before(renew) && ptr.Deref(l.Spec.LeaseDurationSeconds, 0) == t.Seconds() {
		return KeepLease, renew
	}
	return RenewLease, now.Add(t.Length / 2)
}
