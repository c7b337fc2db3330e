package machinehealthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/machinestatus"
	"github.com/kubemend/kubemend/controllers/records"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

// writers is how many machines of one check are written at the same time.
const writers = 32

// outcome is what became of a step.
type outcome struct {
	step
	// saved is the machine as it was saved, at is when; nil if there was nothing to report.
	saved *clusterv1.Machine
	at    time.Time
	// requested says that a remediation was begun: a request was created, or the owner was asked.
	requested bool
	// unsure says that the owner was asked in a write that failed, or whose answer was lost.
	unsure bool
	// released is the request that was deleted because no target needs it any more; the step has no target then.
	released *remediationrequest.Metadata
	// again says that somebody else was faster, and that the next reconcile will see what they did.
	again bool
	// refused is the error for which no request could be made, be it known before or not.
	refused error
	err     error
}

// applied is what became of a plan.
type applied struct {
	outcomes []outcome
	// status is the check as it was saved; nil if it was not.
	status *clusterv1.MachineHealthCheck
	err    error // of that
	// statusDue is when the status is written that was put off; zero if it was not.
	statusDue time.Time
}

// result is what the check says about the outcomes.
type result struct {
	// failed says that something did not succeed, so the generation does not count as observed.
	failed bool
	// refused is the first error for which a request could not be made, started says that one was.
	refused error
	started bool
}

// apply writes what p asks for: what differs, and each object once. Of a check that is only observed it writes nothing.
func (r *Reconciler) apply(ctx context.Context, w *observed, p plan) applied {
	if w.mode != machines.Active {
		return applied{}
	}
	done := applied{outcomes: r.act(ctx, w, stepsOf(w, p))}
	is := result{failed: len(w.trouble) > 0}
	for _, o := range done.outcomes {
		is.failed, is.started = is.failed || o.err != nil, is.started || o.requested
		if is.refused == nil {
			is.refused = o.refused
		}
	}
	next := statusAfter(w, p, is)
	if done.statusDue = putOff(w, next); !done.statusDue.IsZero() {
		return done
	}
	if done.err = r.record(ctx, w, next); done.err == nil {
		done.status = next
	}
	return done
}

// act carries out all steps, each on its own: what fails for one machine holds up no other.
func (r *Reconciler) act(ctx context.Context, w *observed, steps []step) []outcome {
	outcomes := make([]outcome, len(steps), len(steps)+len(w.orphans))
	var work errgroup.Group
	work.SetLimit(writers)
	for i, s := range steps {
		work.Go(func() error {
			o := r.carryOut(ctx, w, s)
			if o.saved != nil {
				o.saved = essential(o.saved)
				s.target.machine = essential(s.target.machine)
			}
			outcomes[i] = o
			return nil
		})
	}
	_ = work.Wait() // errors are in the outcomes
	for _, orphan := range w.orphans {
		err := r.Requests.Delete(ctx, orphan)
		o := outcome{err: err}
		if err == nil {
			o.released = orphan
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// essential is what is asked of machine when it was written. The first reconcile writes all machines: without this, thousands of them
// would be in memory three times until it ends.
func essential(machine *clusterv1.Machine) *clusterv1.Machine {
	reduced := &clusterv1.Machine{}
	reduced.Namespace, reduced.Name, reduced.UID = machine.Namespace, machine.Name, machine.UID
	for _, kind := range []string{clusterv1.MachineHealthCheckSucceededCondition, clusterv1.MachineExternallyRemediatedCondition} {
		if cond := conditionOf(machine, kind); cond != nil {
			reduced.Status.Conditions = append(reduced.Status.Conditions, *cond)
		}
	}
	return reduced
}

// carryOut acts on a request that exists first and sets conditions afterwards. A crash in between is mended by the next reconcile, which
// finds the request by its name.
func (r *Reconciler) carryOut(ctx context.Context, w *observed, s step) outcome {
	o, set := outcome{step: s, refused: s.refused, err: s.refused}, s.Conditions
	switch s.Step {
	case machines.CreateRequest:
		return r.begin(ctx, w, s, o)
	case machines.Release:
		return r.release(ctx, s, o)
	case machines.DeleteRequest:
		if o.err = r.Requests.Delete(ctx, s.target.request); o.err != nil {
			set = without(set, machines.ExternallyRemediated) // the machine is healthy all the same; that the request is over is not true
		}
	case machines.AdoptRequest:
		// The request and the conditions are apart: that one is not ours yet does not make the machine less unhealthy.
		o.err = r.Requests.Adopt(ctx, s.target.request, maker(w.check), r.recordAdopted(ctx, w, s))
	case machines.RequestOwnerRemediation:
		r.writeAhead(ctx, w, s, healthSaid(s.target.machine))
	case machines.NoStep:
	}
	o, saved := r.set(ctx, w, s, s.target.machine, set, o)
	asks := s.Step == machines.RequestOwnerRemediation
	o.requested, o.unsure = asks && saved && o.saved != nil, asks && !saved
	return o
}

// begin creates a request after the conditions are set, with the optimistic lock of the Machine: of one that has changed since it was read, because its
// user wants it left alone or it is being deleted, no remediation begins, and none is recorded. If no request can be created after all, that is set
// next. On a machine for which none could be created before, that stands until one is.
func (r *Reconciler) begin(ctx context.Context, w *observed, s step, o outcome) outcome {
	before := s.Conditions
	if s.Target.RequestFailed {
		before = without(without(before, machines.ExternallyRemediated), mendv1.Remediation)
	}
	o, saved := r.save(ctx, s.with(w, s.target.machine, before), o)
	if !saved {
		return o
	}
	after := s.Conditions
	err := s.refused
	if err == nil {
		if name := r.writeAhead(ctx, w, s, healthSaid(o.saved)); name != "" {
			records.Name(s.request, types.NamespacedName{Namespace: w.check.Namespace, Name: name})
		}
		if err = r.Requests.Create(ctx, s.request); err == nil || begin.Lost(err) {
			r.requested.Of(w.remediation.kind.GroupKind()).Note(s.request)
		}
	}
	switch {
	case errors.Is(err, remediationrequest.ErrAppeared):
		o.again = true
		if after, o.err = r.appeared(ctx, w, &s); o.err != nil {
			return o
		}
	case err != nil:
		o.refused, o.err, s.refused = err, err, err
		after = machines.NotCreated(err)
	default:
		o.requested = true
	}
	o, _ = r.set(ctx, w, s, o.saved, after, o)
	return o
}

// appeared returns the conditions for a machine whose request exists and was not observed, together with it.
func (r *Reconciler) appeared(ctx context.Context, w *observed, s *step) ([]machines.Condition, error) {
	t := *s.target
	var err error
	if t.request, err = r.Requests.Find(ctx, w.remediation.kind, client.ObjectKeyFromObject(t.machine)); err != nil || t.request == nil {
		return nil, err
	}
	is := machines.WithRequest(s.facts, s.Decision, w.factsAbout(&t))
	s.target, s.Decision = &t, is
	return is.Conditions, nil
}

func without(all []machines.Condition, kind string) []machines.Condition {
	return slices.DeleteFunc(slices.Clone(all), func(c machines.Condition) bool { return c.Type == kind })
}

// requestFor is the remediation request for m as it is to be made. The error says why its template is good for none.
func (w *observed) requestFor(m *clusterv1.Machine) (*unstructured.Unstructured, error) {
	if w.remediation.templateErr != nil {
		return nil, w.remediation.templateErr
	}
	return remediationrequest.For(m, w.remediation.template, maker(w.check))
}

func maker(check *clusterv1.MachineHealthCheck) remediationrequest.Maker {
	return remediationrequest.Maker{Name: check.Name, UID: check.UID}
}

// set sets conditions on m, the machine of s as it was last read or written, and reports whether they are stored.
func (r *Reconciler) set(ctx context.Context, w *observed, s step, m *clusterv1.Machine, all []machines.Condition, o outcome) (outcome, bool) {
	next := s.with(w, m, all)
	if sameConditions(next, m) {
		return o, true
	}
	return r.save(ctx, next, o)
}

// release removes from the machine of s what checks have set.
func (r *Reconciler) release(ctx context.Context, s step, o outcome) outcome {
	if next := releasedCopy(s.target.machine); next != nil {
		o, _ = r.save(ctx, next, o)
	}
	return o
}

// save writes the conditions of m, and reports whether they are stored.
func (r *Reconciler) save(ctx context.Context, m *clusterv1.Machine, o outcome) (outcome, bool) {
	r.written.begin(m)
	err := machinestatus.PatchConditions(ctx, r.Client, m)
	o.again = r.written.end(m, err == nil) || o.again
	switch {
	case apierrors.IsConflict(err):
		o.again = true
	case client.IgnoreNotFound(err) != nil:
		o.err = errors.Join(o.err, fmt.Errorf("write the conditions of machine %s: %w", m.Name, err))
	case err == nil:
		o.saved, o.at = m, r.Clock.Now()
	}
	return o, err == nil
}

// attempted reports whether o was to begin a remediation.
func (o outcome) attempted() bool { return o.Decision != nil && (o.Starts() || o.step.refused != nil) }

// newlyUnhealthy reports whether o turned the machine's health check from anything else to failed.
func (o outcome) newlyUnhealthy() bool {
	return o.saved != nil && o.Sets(machines.HealthCheckSucceeded, "False") && failedBefore(o.target.machine) != failedBefore(o.saved)
}

// recovered reports whether o turned the machine's health check from failed to succeeded.
func (o outcome) recovered() bool {
	return o.saved != nil && o.Sets(machines.HealthCheckSucceeded, "True") && failedBefore(o.target.machine)
}

// newlyRefused reports whether o found, and said, that no request can be made, or that the cause of it is another one now.
func (o outcome) newlyRefused() bool {
	if o.refused == nil || o.saved == nil {
		return false
	}
	before := conditionOf(o.target.machine, clusterv1.MachineExternallyRemediatedCondition)
	after := conditionOf(o.saved, clusterv1.MachineExternallyRemediatedCondition)
	return before == nil || before.Reason != after.Reason || before.Message != after.Message
}

func failedBefore(machine *clusterv1.Machine) bool {
	cond := conditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition)
	return cond != nil && cond.Status != "True"
}

// delay is the time from the moment at which the machine became due to the one at which that was written; false if the first is not known.
func (o outcome) delay(w *observed) (time.Duration, bool) {
	due := o.Verdict.OverdueSince(w.now)
	return o.at.Sub(due), !due.IsZero()
}

// step is the part of a plan that is about one machine, with the objects that it takes.
type step struct {
	*machines.Decision
	facts      *machines.Facts
	population budget.Population
	target     *target
	// request is the one to create; refused is why none can be made from the template.
	request *unstructured.Unstructured
	refused error
}

func deleting(machine *clusterv1.Machine) bool { return !machine.DeletionTimestamp.IsZero() }

// stepsOf are the steps of p. What changes nothing is left out.
func stepsOf(w *observed, p plan) []step {
	var steps []step
	for _, i := range p.Open {
		if decision := p.Decisions[i]; !decision.Idle() {
			steps = append(steps, stepOf(w, &p, decision, w.targets[i]))
		}
	}
	for _, decision := range p.Releases {
		steps = append(steps, step{Decision: decision, facts: &p.facts, target: find(decision.Target.Name, w.skipped)})
	}
	return steps
}

func stepOf(w *observed, p *plan, decision *machines.Decision, target *target) step {
	s := step{Decision: decision, facts: &p.facts, population: p.Population, target: target}
	if decision.Tried && w.remediation.External {
		s.refused = target.unusable
	}
	if decision.Step == machines.CreateRequest {
		s.request, s.refused = w.requestFor(target.machine)
	}
	return s
}
