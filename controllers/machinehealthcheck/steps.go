package machinehealthcheck

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// step is what one reconcile does about one machine. It is decided before anything is done.
type step struct {
	target   *target
	decision *machines.Decision
	say      saying
	// start says that this step begins a remediation.
	start bool
	// request is the one that is to be made; nil if none is, or if none can be made of the template, for which refused is the reason.
	request *unstructured.Unstructured
	refused error
	// create, adopt and drop say what happens to the machine's request; at most one of them is set.
	create, adopt, drop bool
	// release says that the machine is not to be judged any more, and that what was said of it is taken back.
	release bool
}

// idle reports whether s changes nothing. The conditions are compared later, when they are made.
func (s step) idle() bool {
	return !s.create && !s.adopt && !s.drop && !s.release && s.say == (saying{})
}

func deleting(m *clusterv1.Machine) bool { return !m.DeletionTimestamp.IsZero() }

// stepsOf decides the step of every target. Steps that change nothing are left out.
func stepsOf(w *observed, s plan) []step {
	var steps []step
	for i := range w.targets {
		t := &w.targets[i]
		d := s.of(t)
		if d.Verdict.State == health.Healthy && d.Target.Healthy && t.request == nil {
			continue // as nearly all machines are
		}
		if s := stepFor(w, t, d, s.Grant.ShortCircuited()); !s.idle() {
			s.decision = d
			steps = append(steps, s)
		}
	}
	for i := range w.skipped {
		if t := &w.skipped[i]; t.older == "" && !deleting(t.machine) && marked(t.machine) {
			steps = append(steps, step{target: t, decision: &machines.Decision{}, release: true})
		}
	}
	return steps
}

// stepFor decides what to do about t.
//
// A machine of which an older check speaks is not spoken of. A pending or unknown machine keeps what was said of
// it and keeps its request: a node on its way from Unknown to False must not lose its remediation halfway.
func stepFor(w *observed, t *target, d *machines.Decision, shortCircuited bool) step {
	switch d.Verdict.State {
	case health.Healthy:
		return healthyStep(w, t)
	case health.Unhealthy:
		return unhealthyStep(w, t, d, shortCircuited)
	default:
		return step{target: t}
	}
}

func healthyStep(w *observed, t *target) step {
	s := step{target: t}
	if deleting(t.machine) {
		return s
	}
	if t.request != nil && t.request.DeletionTimestamp.IsZero() {
		s.drop = w.ownership(t) == Own
		// Only what is ours is deleted, so what is taken over is deleted by the next reconcile.
		s.adopt = w.ownership(t) == Adoptable && t.older == ""
	}
	if t.older == "" && (s.drop || !markedHealthy(t.machine)) {
		s.say = saying{health: succeeded, external: removed}
		external := conditionOf(t.machine, clusterv1.MachineExternallyRemediatedCondition)
		foreignRequest := t.request != nil && w.ownership(t) == Foreign
		if (foreignRequest || !w.remediation.seen()) && external != nil && !failureOfOurs(external) {
			s.say.external = 0 // what is said of somebody else's request is not ours; that it was in our way is
		}
	}
	return s
}

func unhealthyStep(w *observed, t *target, d *machines.Decision, shortCircuited bool) step {
	s := step{target: t}
	if t.older != "" || deleting(t.machine) {
		return s // what was said of a machine that is being deleted says why; that its node goes is no news
	}
	if w.remediation.syncing && !failedBefore(t.machine) {
		// A manager that crashed may have made a request and said nothing. Called bad before that request is seen, the machine would
		// look as if the provider had removed what is said of it.
		return s
	}
	s.say.health = failed
	if s.start = d.Starts(); d.Tried && w.remediation.external {
		s.request, s.refused = w.requestFor(t.machine)
	}
	s.say.forget = !d.InFlight && (leftOver(t.machine) && (w.remediation.external || !s.start) || s.request != nil && OwnerAsked(t.machine))
	if w.remediation.external {
		return externalStep(w, s, d)
	}
	s.say.askOwner = s.start || (d.InFlight && !shortCircuited)
	s.say.external = removed // of a template that the check does not name any more
	return s
}

// leftOver reports whether m was healthy since its owner was asked to remediate it, and the owner has not noticed that yet: it removes the
// condition then. (MachineSet, KubeadmControlPlane.) No check may mark m unhealthy before, unless the owner is to remediate it now: the two conditions
// together are what owners act on, whatever the limits of the check.
func leftOver(m *clusterv1.Machine) bool {
	asked, called := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition), conditionOf(m, clusterv1.MachineHealthCheckSucceededCondition)
	return asked != nil && asked.Status == metav1.ConditionFalse && (called == nil || called.Status != metav1.ConditionFalse)
}

// externalStep decides what becomes of the request of an unhealthy machine.
func externalStep(w *observed, s step, d *machines.Decision) step {
	t := s.target
	switch {
	case t.request != nil && w.ownership(t) == Foreign:
		s.say.external = creationFailed
		s.say.why = foreignRequest(w, t)
	case t.request != nil:
		s.adopt = w.ownership(t) == Adoptable && t.request.DeletionTimestamp.IsZero()
		s.say.external = stillWaiting
		if s.adopt || !failedBefore(t.machine) { // taken over, or made by a reconcile that ended before it could say so
			s.say.external = waiting
		}
	case w.remediation.refused:
		s.say.external, s.say.why = templateNotFound, noTemplate(w)
	case w.remediation.missing != "": // a request that exists needs its template no more
		s.say.external = templateNotFound
		s.say.why = fmt.Sprintf("Error retrieving remediation template %s %s/%s", w.remediation.ref.Kind, w.check.Namespace, w.remediation.ref.Name)
	case s.refused != nil:
		s.say.external, s.say.why = creationFailed, s.refused.Error()
	case s.start:
		s.create = true
		s.say.external = waiting
	case d.Begun: // the caches do not show it yet
		s.say.external = waiting
	case w.remediation.known && !d.Blocked(machines.JustSeen) && markedTemplateNotFound(t.machine): // it is not its turn yet, and what kept it is over
		s.say.external = removed
	}
	return s
}

// markedTemplateNotFound reports whether m says that there was no template to make a request from. What says that a request was refused stands until it is
// tried again: it is how a refusal outlives a restart.
func markedTemplateNotFound(m *clusterv1.Machine) bool {
	c := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition)
	return c != nil && c.Reason == clusterv1.MachineExternallyRemediatedRemediationTemplateNotFoundReason
}

// limited reports whether more unhealthy machines could forbid to remediate any.
func limited(check *clusterv1.MachineHealthCheck) bool {
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	return trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
}

// InvalidField is a field of a check that cannot be read.
type InvalidField struct {
	Field string // as a path
	Err   error
}

// Error names the field.
func (e *InvalidField) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong with it.
func (e *InvalidField) Unwrap() error { return e.Err }

func annotation(key string) string { return "metadata.annotations[" + key + "]" }

// limitsOf turns the spec's limits into numbers.
//
// The range goes before the number, and without either everything may be remediated. (Cluster API.)
func limitsOf(check *clusterv1.MachineHealthCheck, total int) (budget.Limits, *InvalidField) {
	limits := budget.Limits{AtMost: budget.All.Of(total), InFlight: budget.Unlimited}
	trigger := check.Spec.Remediation.TriggerIf
	switch {
	case trigger.UnhealthyInRange != "":
		r, err := budget.ParseRange(trigger.UnhealthyInRange)
		if err != nil {
			return limits, &InvalidField{"spec.remediation.triggerIf.unhealthyInRange", err}
		}
		limits.AtLeast, limits.AtMost = r.Min, r.Max
	case trigger.UnhealthyLessThanOrEqualTo != nil:
		a, err := budget.ParseAmount(trigger.UnhealthyLessThanOrEqualTo.String())
		if err != nil {
			return limits, &InvalidField{"spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", err}
		}
		limits.AtMost = a.Of(total)
	}
	if value, set := check.Annotations[mendv1.MaxInFlightAnnotation]; set {
		a, err := budget.ParseAmount(value)
		if err != nil {
			return limits, &InvalidField{annotation(mendv1.MaxInFlightAnnotation), err}
		}
		if limits.InFlight = 0; a.Of(100) > 0 { // who asks for none gets none; a small percentage of few is one
			limits.InFlight = max(a.Of(total), 1)
		}
	}
	return limits, nil
}
