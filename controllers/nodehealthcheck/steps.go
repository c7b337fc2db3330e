package nodehealthcheck

import (
	"slices"
	"time"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/escalation"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
)

// stepFor decides what to do about t.
func stepFor(w *observed, s plan, t *target) step {
	next := step{target: t, start: -1}
	for _, f := range t.requests {
		flagged := f.counted || f.obj.GetAnnotations()[nhcv1.OldRequestAnnotation] != ""
		if old := f.started().Add(tooOld); !flagged && w.now.After(old) {
			next.flag = append(next.flag, f)
		} else if !flagged {
			next.lookAgainAt(old.Add(time.Second), "")
		}
	}
	switch {
	case len(t.unseen) > 0:
		next.leased(w) // until they can be read again nothing else is known
	case t.node == nil:
		next.orphaned(w)
	case t.verdict.State == health.Healthy:
		next.healthy(w)
	case t.verdict.State == health.Unknown:
		next.leased(w) // what was begun stays as it is
	default:
		next.resumed(w)
		next.leased(w)
		if t.verdict.State == health.Unhealthy {
			next.relapsed(w)
			next.unhealthy(w, s)
		}
	}
	next.lookAgainAt(t.verdict.Recheck, dueText(t.verdict))
	return next
}

// later is at if that is to come; else zero.
func later(at, now time.Time) time.Time {
	if !now.Before(at) {
		return time.Time{}
	}
	return at
}

// tooOld is the age at which a request is counted. (Seed 002.)
const tooOld = 48 * time.Hour

// lookAgainAt makes the reconcile be repeated then at the latest; the zero moment asks for nothing. What happens then is for people, and empty if it
// does not concern them.
func (s *step) lookAgainAt(at time.Time, what string) {
	s.recheck = health.Earliest(s.recheck, at)
	if !at.IsZero() && what != "" {
		s.next = sooner(s.next, explain.Step{At: at, Text: what})
	}
}

// sooner is the one of two steps that comes first; one at no time never comes.
func sooner(a, b explain.Step) explain.Step {
	switch {
	case a.At.IsZero() && b.At.IsZero():
		return explain.Step{}
	case a.At.IsZero() || !b.At.IsZero() && b.At.Before(a.At):
		return b
	default:
		return a
	}
}

// dueText says what comes due next in v; it is empty where that changes nothing, since something else counts already.
func dueText(v health.Verdict) string {
	if v.State != health.Pending {
		return ""
	}
	for _, f := range v.Findings {
		if f.Due.Equal(v.Recheck) {
			return "is due: " + f.Detail
		}
	}
	return ""
}

// healthy: its requests are over, at once or after the delay, and its lease after them.
func (s *step) healthy(w *observed) {
	t := s.target
	_, confirmed := t.node.Annotations[nhcv1.ConfirmedHealthyAnnotation]
	if len(t.requests) == 0 {
		s.unconfirm = confirmed && len(w.requests.byNode[t.name]) == 0 // another check's remediation may wait for it
		s.unleased(w)
		return
	}
	wait := waitOf(w)
	for _, f := range t.requests {
		begun := f.annotated(nhcv1.HealthyDelayAnnotation)
		if t.listed != nil && t.listed.ConditionsHealthyTimestamp != nil { // a remediator may take the annotation off
			begun = health.Earliest(begun, t.listed.ConditionsHealthyTimestamp.Time)
		}
		switch {
		case f.leaving():
		case confirmed || wait == 0:
			s.end = append(s.end, f)
		case wait < 0:
			s.delayed = true
		case begun.IsZero():
			s.delay, s.delayed = append(s.delay, f), true
			s.lookAgainAt(w.now.Add(wait), delayOver)
		case w.now.Before(begun.Add(wait)):
			s.delayed = true
			s.lookAgainAt(begun.Add(wait), delayOver)
		default:
			s.end = append(s.end, f)
		}
	}
	s.leased(w)
}

// leased: as long as there are requests the lease is kept, and a moment longer if somebody deleted one that is about to be made again. When
// no step is left it is kept only for a while: then somebody else may try what they can.
func (s *step) leased(w *observed) {
	if !s.target.remediated() && len(s.target.leftovers) == 0 {
		if at := s.target.remadeAt(); w.now.Before(at) && s.target.selected {
			s.lookAgainAt(at, "")
			return
		}
		s.unleased(w)
		return
	}
	rung := -1
	since := w.now
	for _, f := range s.target.requests {
		rung, since = max(rung, f.rung), health.Earliest(since, f.started())
	}
	for _, unseen := range s.target.unseen {
		rung, since = max(rung, w.rungOfGone(&unseen)), health.Earliest(since, unseen.Started.Time)
	}
	if idle := s.target.idleSince(w); !idle.IsZero() {
		if !w.now.Before(idle.Add(idleLease)) {
			if heldBy(s.target.lease, holderOf(w.check)) {
				s.lease = dropLease
			}
			return
		}
		s.lookAgainAt(idle.Add(idleLease), "")
	}
	s.term = termOf(w.rungs, rung).whileClimbing()
	if len(w.rungs) > 0 && w.ask(s.target, w.ladder(s.target)).Do == escalation.Exhausted {
		s.term = termOf(w.rungs, len(w.rungs)-1)
	}
	var again time.Time
	s.lease, again = leaseStep(s.target.lease, holderOf(w.check), s.term, since, w.now)
	s.lookAgainAt(again, "")
}

// idleSince is since when nobody is at work on t, or will be: a single remediation has failed or stopped, or is being deleted. Zero if somebody is.
func (t *target) idleSince(w *observed) time.Time {
	if !w.classic() || t.node == nil || len(t.unseen) > 0 || len(t.leftovers) > 0 {
		return time.Time{}
	}
	var since time.Time
	for _, f := range t.requests {
		at := f.idleSince()
		if at.IsZero() {
			return time.Time{}
		}
		if at.After(since) {
			since = at
		}
	}
	return since
}

// idleSince is since when nobody is at work on f; zero if somebody is. Who does not say since when may have said so when f was made.
func (f *found) idleSince() time.Time {
	step := f.step()
	_, failed := f.condition(nhcv1.SucceededCondition)
	switch {
	case f.leaving():
		return f.obj.GetDeletionTimestamp().Time
	case step.Succeeded == escalation.No:
		return latest(failed, f.started())
	case step.Succeeded == escalation.Unsaid && step.Processing == escalation.No:
		return latest(step.ProcessingSince, f.started())
	}
	return time.Time{}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// unleased: no request is left, and what is left of the lease is given back; unless a check of the same name that was there before has left
// one behind, which is at work under the same lease.
func (s *step) unleased(w *observed) {
	if len(s.target.leftovers) > 0 {
		s.leased(w)
		return
	}
	if heldBy(s.target.lease, holderOf(w.check)) {
		s.lease = dropLease
	}
}

// unhealthy: the first remedy begins if nothing holds it up; one that has failed, or whose time is over, is followed by the next one.
func (s *step) unhealthy(w *observed, sum plan) {
	t := s.target
	if len(w.rungs) == 0 {
		return
	}
	if !t.begun() {
		if s.skipped = w.mayBegin(sum, t); s.skipped != nil {
			if s.skipped.again > 0 {
				s.lookAgainAt(w.now.Add(s.skipped.again), askedAgain)
			}
			return
		}
	}
	s.adopted()
	gaveUp, answer := w.climb(t)
	if gaveUp.Do == escalation.GiveUp {
		s.giveUp, s.tell, s.why = t.requestsOn(gaveUp.Rung, gaveUp.Tell), gaveUp.Tell, gaveUp.Why
	}
	switch answer.Do {
	case escalation.Start:
		s.begin(w, sum, answer.Rung)
	case escalation.Exhausted:
		s.skipped = w.exhausted(t)
	case escalation.Wait, escalation.GiveUp:
		s.skipped = t.stillDeleted(answer)
	}
	s.climb = answer
	s.lookAgainAt(answer.Recheck, w.impatience(t, answer))
}

// What happens at the moments at which a node is looked at again, for people.
const (
	delayOver     = "the healthy delay is over, and its requests are deleted"
	nodeStaysAway = "the node has stayed away for too long, and its request is deleted"
	askedAgain    = "it is looked at again"
)

// impatience is what happens when the time of the rung is over that s waits for.
func (w *observed) impatience(t *target, s escalation.Step) string {
	next := w.passing(t, s.Rung+1)
	switch {
	case s.Do != escalation.Wait || s.Recheck.IsZero():
		return ""
	case next < len(w.rungs) && !w.passed(t, next):
		return w.rungs[s.Rung].Name + " is given up unless the node is back, and " + w.rungs[next].Name + " begins"
	default:
		return w.rungs[s.Rung].Name + " is given up unless the node is back, and no remedy is left to try"
	}
}

// climb is what the ladder says of t. What has had its chance is given up first, and then it is asked once more; else gaveUp is zero.
func (w *observed) climb(t *target) (gaveUp, answer escalation.Step) {
	ladder := w.ladder(t)
	answer = w.ask(t, ladder)
	if answer.Do != escalation.GiveUp {
		return escalation.Step{}, answer
	}
	return answer, w.ask(t, givenUp(ladder, answer, w.now))
}

// begin begins a rung. What the user wants left alone is not escalated either, while the check is paused or the cluster is upgraded nothing
// new is asked for, and without its template nothing can be made.
func (s *step) begin(w *observed, sum plan, rung int) {
	t := s.target
	if s.skipped = w.mayStart(sum, t, rung); s.skipped != nil {
		s.lookAgainAt(s.skipped.Until, askedAgain)
		return
	}
	s.start, s.term, s.passed = rung, termOf(w.rungs, rung), w.passedBelow(t, rung)
	if len(t.requests) == 0 {
		s.lease, _ = leaseStep(t.lease, holderOf(w.check), s.term, w.now, w.now)
		if s.lease == dropLease { // one of ours that was left over
			s.lease = renewLease
		}
	}
}

// givenUp is ladder after answer was carried out.
func givenUp(ladder []escalation.Request, answer escalation.Step, now time.Time) []escalation.Request {
	next := slices.Clone(ladder)
	for i := range next {
		if next[i].Rung == answer.Rung {
			next[i].GivenUp, next[i].Told = now, next[i].Told || answer.Tell
		}
	}
	return next
}

// requestsOn are the requests on a rung; only those whose remediator does not know yet that they were given up, if it has to be told.
func (t *target) requestsOn(rung int, tell bool) []*found {
	var on []*found
	for _, f := range t.requests {
		if f.rung == rung && !(tell && f.told) {
			on = append(on, f)
		}
	}
	return on
}

// remake is how long a request has to have been there before another one is made in its place, if somebody deleted it. A remediator that
// deletes what it is asked at once would be asked without end.
const remake = time.Minute

// again is the first moment at which a request that is gone may be made again on a rung; zero if there was none.
func (t *target) again(w *observed, rung int) time.Time {
	return t.remade(func(gone *nhcv1.Remediation) bool { return w.rungOfGone(gone) == rung })
}

// remadeAt is likewise that of any rung.
func (t *target) remadeAt() time.Time {
	return t.remade(func(*nhcv1.Remediation) bool { return true })
}

func (t *target) remade(on func(*nhcv1.Remediation) bool) time.Time {
	var at time.Time
	for i := range t.gone {
		if gone := &t.gone[i]; on(gone) && gone.TimedOut == nil && gone.Started.Add(remake).After(at) {
			at = gone.Started.Add(remake)
		}
	}
	return at
}
