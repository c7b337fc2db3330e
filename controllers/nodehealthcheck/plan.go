package nodehealthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/controllers/budget"
	"github.com/kubemend/kubemend/controllers/escalation"
	"github.com/kubemend/kubemend/controllers/health"
)

// step is what one pass does about one node. It is decided before anything is done.
type step struct {
	target *target
	// end are requests that are over. flag are those that are counted as older than 48 hours.
	end, flag []*found
	// delay are requests that the healthy delay begins for, resume those that it was begun for in vain.
	delay, resume []*found
	// delayed says that the node is well, and that its requests are kept for the delay, or until a person confirms it.
	delayed bool
	// giveUp is the request whose time is over, or which failed; tell says that its remediator has to be told.
	giveUp *found
	tell   bool
	// start is the rung that begins; -1 if none does. Giving up comes first, and what that fails for does not begin.
	start int
	why   string // of giveUp, for people
	lease leasing
	// unconfirm says that the node's annotation by which a person confirmed that it is well has served its purpose.
	unconfirm bool
	// skipped is why nothing begins; nil if it does, or if there is nothing to begin.
	skipped *skip
	// recheck is the first moment at which time alone changes the step; zero if none does.
	recheck time.Time
}

// skip is a reason why a node that should be remediated is not.
type skip struct {
	kind   string // of the event: Normal or Warning
	reason string // of the event
	text   string // of the event, and for people
	again  time.Duration
}

// idle reports whether s changes nothing, says nothing and waits for nothing.
func (s step) idle() bool {
	return len(s.end)+len(s.flag)+len(s.delay)+len(s.resume) == 0 && !s.delayed && s.giveUp == nil && s.start < 0 && s.lease == keepLease &&
		!s.unconfirm && s.skipped == nil && s.recheck.IsZero()
}

// summary is what the population as a whole allows.
type summary struct {
	population budget.Population
	limits     budget.Limits
	grant      budget.Grant
	storm      budget.StormStep
	// hold is why nothing new begins; empty if it may.
	hold hold
}

// hold is why no remediation begins that would add a node, for the condition RemediationAllowed. What has begun goes on.
type hold struct{ reason, message string }

// weigh counts the population and says what it allows.
func weigh(w *world) summary {
	s := summary{population: count(w)}
	limits, err := limitsOf(&w.check.Spec, s.population.Total())
	if err != nil && w.disabled == nil {
		w.disabled = &disabling{nhcv1.LimitInvalidReason, err.Error()}
	}
	s.limits = limits
	s.grant = budget.Decide(s.population, limits)
	tooMany := s.grant.ShortCircuited()
	s.storm = stormOf(w.check).Next(cooldownOf(&w.check.Spec), tooMany, w.now)
	switch {
	case w.disabled != nil:
		s.hold = hold{nhcv1.DisabledReason, w.disabled.message}
	case len(w.check.Spec.PauseRequests) > 0:
		s.hold = hold{nhcv1.PausedReason, postponedByPause}
	case w.upgrading != "":
		s.hold = hold{nhcv1.UpgradeReason, postponedByUpgrade + ": " + w.upgrading}
	case tooMany:
		s.hold = hold{nhcv1.TooManyReason, arithmetic(s)}
	case s.storm.Blocks:
		s.hold = hold{nhcv1.StormReason, skippedByStorm}
	}
	return s
}

const (
	postponedByPause   = "Postponing potential remediations because of pause requests"
	postponedByUpgrade = "Postponing potential remediations because of ongoing cluster upgrade"
	skippedByStorm     = "Storm recovery active: skipping creation of new remediations"
)

// arithmetic is the sum that forbids remediation.
func arithmetic(s summary) string {
	p := s.population
	return fmt.Sprintf("Skipped remediation because the number of healthy nodes selected by the selector is %d and should equal or exceed %d "+
		"(%d nodes: %d healthy, %d unhealthy, %d soon unhealthy, %d recovering)",
		p.Healthy, s.minimum(), p.Total(), p.Healthy, p.Unhealthy, p.Suspect, p.Recovering)
}

// minimum is how many nodes have to be healthy.
func (s summary) minimum() int { return s.population.Total() - s.limits.AtMost }

// count sorts the selected nodes into the classes that the limits are about.
func count(w *world) budget.Population {
	var p budget.Population
	for i := range w.targets {
		t := &w.targets[i]
		if !t.selected {
			continue
		}
		if len(t.requests) > 0 {
			p.InFlight++
		}
		switch {
		case t.verdict.State == health.Unhealthy:
			p.Unhealthy++
			if len(t.requests) == 0 {
				p.Waiting++
			}
		case t.verdict.State == health.Suspect:
			p.Suspect++
		case len(t.requests) > 0:
			p.Recovering++
		default:
			p.Healthy++
		}
	}
	return p
}

// plan decides the step of every target. Steps that change nothing are left out.
//
// What has begun is never held up by what the population allows: requests end, time out and follow each other, leases are renewed. Only
// what would add a node is.
func plan(w *world, s summary) []step {
	var steps []step
	first := w.firstMember(s)
	rungs := w.rungs()
	for i := range w.targets {
		t := &w.targets[i]
		if next := stepFor(w, s, t, rungs, first); !next.idle() {
			steps = append(steps, next)
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Or(-cmp.Compare(begins(a), begins(b)), byAge(w, a, b)) })
	return steps
}

func begins(s step) int {
	if s.start >= 0 {
		return 1
	}
	return 0
}

// byAge puts those first that have been due for longest.
func byAge(w *world, a, b step) int {
	return a.target.verdict.OverdueSince(w.now).Compare(b.target.verdict.OverdueSince(w.now))
}

// firstMember is the one node of the control plane that may begin to be remediated now, if its turn comes: that which has been due for
// longest of those that nothing else holds up.
func (w *world) firstMember(s summary) *target {
	if s.hold.reason != "" {
		return nil
	}
	var first *target
	for i := range w.targets {
		t := &w.targets[i]
		if !t.startable() || !controlPlane(t.node) || w.skips(t) != nil {
			continue
		}
		if first == nil || t.verdict.OverdueSince(w.now).Before(first.verdict.OverdueSince(w.now)) {
			first = t
		}
	}
	return first
}

// stepFor decides what to do about t.
func stepFor(w *world, s summary, t *target, rungs []escalation.Rung, first *target) step {
	next := step{target: t, start: -1}
	for _, f := range t.requests {
		flagged := f.obj.GetAnnotations()[nhcv1.OldRequestAnnotation] != ""
		if old := f.started().Add(tooOld); !flagged && w.now.After(old) {
			next.flag = append(next.flag, f)
		} else if !flagged {
			next.lookAgainAt(old.Add(time.Second))
		}
	}
	switch {
	case t.node == nil:
		next.orphaned(w)
	case t.verdict.State == health.Healthy:
		next.healthy(w)
	default:
		next.resumed()
		if len(t.requests) > 0 {
			next.leased(w, rungs)
		} else {
			next.unleased(w)
		}
		if t.verdict.State == health.Unhealthy {
			next.unhealthy(w, s, rungs, first)
		}
	}
	next.lookAgainAt(t.verdict.Recheck)
	return next
}

// tooOld is the age at which a request is counted. (Seed 002.)
const tooOld = 48 * time.Hour

func (s *step) lookAgainAt(at time.Time) { s.recheck = health.Earliest(s.recheck, at) }

// orphaned: the node is gone, not only out of the selection, so its requests have nothing left to do; but one whose remediator says that
// the node is meant to go, which goes on until it has succeeded. The lease stays until the last of them is gone.
func (s *step) orphaned(w *world) {
	if len(s.target.requests) == 0 {
		s.unleased(w)
	}
	for _, f := range s.target.requests {
		if f.leaving() || f.says(nhcv1.NodeDeletionExpectedCondition) && !f.says(nhcv1.SucceededCondition) {
			continue
		}
		s.end = append(s.end, f)
	}
}

// healthy: its requests are over, at once or after the delay, and its lease after them.
func (s *step) healthy(w *world) {
	t := s.target
	_, confirmed := t.node.Annotations[nhcv1.ConfirmedHealthyAnnotation]
	if len(t.requests) == 0 {
		s.unconfirm = confirmed
		s.unleased(w)
		return
	}
	wait := ptr.Deref(w.check.Spec.HealthyDelay, noDelay).Duration
	for _, f := range t.requests {
		begun := f.annotated(nhcv1.HealthyDelayAnnotation)
		switch {
		case f.leaving():
		case confirmed || wait == 0:
			s.end = append(s.end, f)
		case wait < 0:
			s.delayed = true
		case begun.IsZero():
			s.delay, s.delayed = append(s.delay, f), true
			s.lookAgainAt(w.now.Add(wait))
		case w.now.Before(begun.Add(wait)):
			s.delayed = true
			s.lookAgainAt(begun.Add(wait))
		default:
			s.end = append(s.end, f)
		}
	}
	s.leased(w, w.rungs())
}

// resumed: the node is not well, so a healthy delay that was begun was begun in vain, and begins anew when it is well again.
func (s *step) resumed() {
	for _, f := range s.target.requests {
		if _, begun := f.obj.GetAnnotations()[nhcv1.HealthyDelayAnnotation]; begun && !f.leaving() {
			s.resume = append(s.resume, f)
		}
	}
}

// leased: as long as there are requests the lease is kept.
func (s *step) leased(w *world, rungs []escalation.Rung) {
	rung := -1
	for _, f := range s.target.requests {
		rung = max(rung, f.rung)
	}
	var again time.Time
	s.lease, again = leaseStep(s.target.lease, holderOf(w.check), termOf(rungs, rung), s.target.requests[0].started(), w.now)
	s.lookAgainAt(again)
}

// unleased: no request is left, and what is left of the lease is given back.
func (s *step) unleased(w *world) {
	if l := s.target.lease; l != nil && ptr.Deref(l.Spec.HolderIdentity, "") == holderOf(w.check) {
		s.lease = dropLease
	}
}

// unhealthy: the first remedy begins if nothing holds it up; one that has failed, or whose time is over, is followed by the next one.
func (s *step) unhealthy(w *world, sum summary, rungs []escalation.Rung, first *target) {
	t := s.target
	if len(rungs) == 0 {
		return
	}
	if len(t.requests) == 0 {
		if s.skipped = w.mayBegin(sum, t, first); s.skipped != nil {
			if s.skipped.again > 0 {
				s.lookAgainAt(w.now.Add(s.skipped.again))
			}
			return
		}
	}
	ladder := w.ladder(t)
	answer := escalation.Climb(rungs, ladder, w.now)
	if answer.Do == escalation.GiveUp {
		s.giveUp, s.tell, s.why = t.requestOn(answer.Rung), answer.Tell, answer.Why
		if s.giveUp == nil {
			return
		}
		ladder = givenUp(ladder, answer, w.now)
		answer = escalation.Climb(rungs, ladder, w.now)
	}
	switch answer.Do {
	case escalation.Start:
		s.begin(w, answer.Rung)
	case escalation.Exhausted:
		s.skipped = &skip{kind: corev1.EventTypeWarning, reason: nhcv1.EventNoTemplateLeft, text: fmt.Sprintf(
			"Remediation timed out, and no template left to try. didn't find a template to use for NHC %s and node %s", w.check.Name, t.name)}
	}
	s.lookAgainAt(answer.Recheck)
}

// begin begins a rung. What the user wants left alone is not escalated either, and without its template nothing can be made.
func (s *step) begin(w *world, rung int) {
	t := s.target
	if s.skipped = w.skips(t); s.skipped != nil {
		return
	}
	if w.disabled != nil || w.remedies[rung].object == nil {
		return // the check says why
	}
	s.start = rung
	if len(t.requests) == 0 {
		s.lease = takeLease
	}
}

// givenUp is ladder after answer was carried out.
func givenUp(ladder []escalation.Request, answer escalation.Step, now time.Time) []escalation.Request {
	next := slices.Clone(ladder)
	for i := range next {
		if next[i].Rung == answer.Rung && !next[i].Gone {
			next[i].GivenUp, next[i].Told = now, next[i].Told || answer.Tell
		}
	}
	return next
}

// requestOn is the latest request on a rung, or nil.
func (t *target) requestOn(rung int) *found {
	for _, f := range slices.Backward(t.requests) {
		if f.rung == rung {
			return f
		}
	}
	return nil
}

// mayBegin says why the first request for t is not made; nil if it is.
func (w *world) mayBegin(s summary, t *target, first *target) *skip {
	if !t.selected {
		return &skip{} // it has left the selection, and its remediation is over
	}
	if why := w.skips(t); why != nil {
		return why
	}
	if s.hold.reason != "" {
		return &skip{} // said once for all nodes, by the check
	}
	if !controlPlane(t.node) {
		return nil
	}
	why := w.members.forbids(t.node, t.name)
	switch {
	case why == "" && t != first:
		why = first.name + " goes first"
	case why == "":
		why = w.etcd
	}
	if why == "" {
		return nil
	}
	return &skip{kind: corev1.EventTypeWarning, reason: nhcv1.EventRemediationSkipped, again: quorumRetry, text: fmt.Sprintf(
		"Skipping remediation of %s for preventing control plane / etcd quorum loss, going to retry in a minute: %s", t.name, why)}
}

// quorumRetry is how soon a node of the control plane is looked at again that had to wait. (medik8s.)
const quorumRetry = time.Minute

// skips says why t in particular is not remediated; nil if it may be.
func (w *world) skips(t *target) *skip {
	warning := func(text string, args ...any) *skip {
		return &skip{kind: corev1.EventTypeWarning, reason: nhcv1.EventRemediationSkipped, text: fmt.Sprintf(text, args...)}
	}
	switch {
	case t.node.Labels[nhcv1.ExcludeLabel] == nhcv1.ExcludeValue:
		return warning("Remediation skipped on node %s: node has Exclude from Remediation label", t.name)
	case t.machine.handsOff != "":
		return warning("Remediation skipped on node %s: %s", t.name, t.machine.handsOff)
	case len(t.requests) > 0:
		return nil // what follows is about beginning
	case t.machine.watchedBy != "":
		return warning("Skipped remediation of node: %s, because MachineHealthCheck %s watches its Machine %s", t.name, t.machine.watchedBy, t.machine.obj.Name)
	case t.machine.updating:
		return warning("Skipped remediation of node: %s, because its Machine %s is being updated in place", t.name, t.machine.obj.Name)
	case t.rival != "":
		return warning("Skipped remediation of node: %s, because %s exists and was not made by this NodeHealthCheck", t.name, t.rival)
	case held(t.lease, holderOf(w.check), w.now):
		why := warning("Skipped remediation of node: %s, because node lease is already taken by %s", t.name, ptr.Deref(t.lease.Spec.HolderIdentity, ""))
		why.again = min(leaseTaken, expiry(t.lease).Sub(w.now)+time.Millisecond)
		return why
	}
	return w.homeless(t)
}

// homeless says why no request can be made for t from the first remedy, if it is one of those that are about Machines.
func (w *world) homeless(t *target) *skip {
	if len(w.remedies) == 0 {
		return nil
	}
	why := w.remedies[0].homeless(t)
	if why == "" {
		return nil
	}
	return &skip{kind: corev1.EventTypeWarning, reason: nhcv1.EventRemediationSkipped, text: fmt.Sprintf("Skipped remediation of node: %s, because %s", t.name, why)}
}

// homeless says why m cannot be used for t: requests of machines live with their Machine.
func (m remedy) homeless(t *target) string {
	switch {
	case !m.ofMachine():
		return ""
	case t.machine.obj == nil:
		return fmt.Sprintf("%s is about Machines of Cluster API, and the node belongs to none of this cluster", m.kind.Kind)
	case t.machine.obj.Namespace != m.ref.Namespace:
		return fmt.Sprintf("%s must be in the %s namespace, that of the Machine. It is configured to be in namespace: %s",
			m.ref.Kind, t.machine.obj.Namespace, m.ref.Namespace)
	}
	return ""
}

// invalidLabel is the warning about an exclude label without value, which counts for nothing.
func invalidLabel(t *target) string {
	value, labelled := "", false
	if t.node != nil {
		value, labelled = t.node.Labels[nhcv1.ExcludeLabel], hasKey(t.node.Labels, nhcv1.ExcludeLabel)
	}
	if !labelled || value != "" {
		return ""
	}
	return fmt.Sprintf("Node %s has exclude-from-remediation label with empty value, label will be ignored. Set value to 'true' to exclude node from remediation", t.name)
}

func hasKey(m map[string]string, key string) bool {
	_, has := m[key]
	return has
}
