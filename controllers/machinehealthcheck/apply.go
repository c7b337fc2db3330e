package machinehealthcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
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
	// unsure says that the owner was asked in a write that failed, or whose answer was lost; lost that this is so of a request. A write
	// that conflicts with that of another check has asked nobody.
	unsure, lost bool
	// released is the request that was deleted because no target needs it any more; the step has no target then.
	released *remediationrequest.Metadata
	// wrote are the conditions that were to be set; undone is until when they are not, as another client removes them each time.
	wrote  string
	undone time.Time
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

// apply writes what plan asks for: what differs, and each object once. Of a check that is only observed it writes nothing.
func (r *Reconciler) apply(ctx context.Context, state *observed, plan *Plan) applied {
	if state.Mode != Active {
		return applied{}
	}
	done := applied{outcomes: r.act(ctx, state, stepsOf(state, plan))}
	summary := result{failed: len(state.Trouble) > 0}
	for _, o := range done.outcomes {
		summary.failed, summary.started = summary.failed || o.err != nil, summary.started || o.requested
		if summary.refused == nil {
			summary.refused = o.refused
		}
	}
	next := statusAfter(state, plan, summary)
	if done.statusDue = putOff(state, next); !done.statusDue.IsZero() {
		return done
	}
	if done.err = r.record(ctx, state, next); done.err == nil {
		done.status = next
	}
	return done
}

// act carries out all steps, each on its own: what fails for one machine holds up no other. All machines are marked before the first
// remediation begins, as what that needs besides, such as its record, holds up the marks of hundreds.
func (r *Reconciler) act(ctx context.Context, state *observed, steps []step) []outcome {
	outcomes, goOn := make([]outcome, len(steps), len(steps)+len(state.orphans)), make([]bool, len(steps))
	each := func(do func(i int)) {
		var work errgroup.Group
		work.SetLimit(writers)
		for i := range steps {
			work.Go(func() error {
				do(i)
				return nil
			})
		}
		_ = work.Wait() // errors are in the outcomes
	}
	each(func(i int) { outcomes[i], goOn[i] = r.mark(ctx, state, steps[i]) })
	each(func(i int) {
		if goOn[i] {
			outcomes[i] = r.carryOut(ctx, state, outcomes[i])
		}
		if outcomes[i].saved != nil { // the first reconcile writes all machines: no more is kept of thousands than events need
			steps[i].Target.Machine = statusCopy(steps[i].Target.Machine)
		}
	})
	for _, orphan := range state.orphans {
		err := r.Requests.Delete(ctx, orphan)
		o := outcome{err: err}
		if err == nil {
			o.released = orphan
		}
		outcomes = append(outcomes, o)
	}
	return outcomes
}

// mark marks a machine whose remediation begins, and reports whether to go on. Of one that has changed since it was read, because its user
// wants it left alone or it is being deleted, no remediation begins, and none is recorded: the Machine is written with its optimistic lock.
func (r *Reconciler) mark(ctx context.Context, state *observed, s step) (outcome, bool) {
	o := outcome{step: s, refused: s.refused, err: s.refused}
	switch s.Step {
	case CreateRequest:
		marks := s.Conditions
		if RequestFailed(s.Target.Machine) { // that none could be created before stands until one is
			marks = without(without(marks, ExternallyRemediated), mendv1.Remediation)
		}
		return r.save(ctx, s.with(state, s.Target.Machine, marks), o)
	case RequestOwnerRemediation:
		if did := state.before.did[s.Target.UID]; did.Do == fmt.Sprint(s.Conditions) && state.Now.Before(did.Until(state.Now)) {
			o.wrote, o.undone = did.Do, did.Until(state.Now)
			return o, false
		}
		next := s.with(state, s.Target.Machine, without(without(s.Conditions, OwnerRemediated), mendv1.Remediation))
		asked := ConditionOf(s.Target.Machine, OwnerRemediated) // left by a remediation before: the mark alone would ask the owner again
		if asked == nil && !sameConditions(next, s.Target.Machine) {
			return r.save(ctx, next, o)
		}
	case NoStep, DeleteRequest, AdoptRequest:
	}
	return o, true
}

// carryOut acts on a request that exists first and sets conditions afterwards. A crash in between is mended by the next reconcile, which
// finds the request by its name.
func (r *Reconciler) carryOut(ctx context.Context, state *observed, o outcome) outcome {
	s, set := o.step, o.Conditions
	switch s.Step {
	case CreateRequest:
		return r.begin(ctx, state, s, o)
	case RequestOwnerRemediation:
		return r.askOwner(ctx, state, s, o)
	case DeleteRequest:
		if o.err = r.Requests.Delete(ctx, s.Target.Request); o.err != nil {
			set = without(set, ExternallyRemediated) // the machine is healthy all the same; that the request is over is not true
		}
	case AdoptRequest:
		// The request and the conditions are apart: that one is not ours yet does not make the machine less unhealthy.
		o.err = r.Requests.Adopt(ctx, s.Target.Request, maker(state.Check), r.recordAdopted(ctx, state, s))
	case NoStep:
	}
	o, _ = r.set(ctx, state, s, s.Target.Machine, set, o)
	return o
}

// askOwner asks the owner of a machine that is marked, and carries its record then.
func (r *Reconciler) askOwner(ctx context.Context, state *observed, s step, o outcome) outcome {
	machine, marked := cmp.Or(o.saved, s.Target.Machine), o.saved
	record := r.writeAhead(ctx, state, s, healthSaid(machine))
	o, saved := r.set(ctx, state, s, machine, carrying(s.Conditions, record), o)
	if o.wrote != "" {
		o.wrote = fmt.Sprint(s.Conditions) // whatever record it carries
	}
	if o.requested, o.unsure = saved && o.saved != marked, !saved && o.err != nil; o.requested {
		r.Records.Began(ctx, record, nil)
	}
	return o
}

// begin creates a request for a machine that is marked. If none can be created after all, that is set next.
func (r *Reconciler) begin(ctx context.Context, state *observed, s step, o outcome) outcome {
	after := s.Conditions
	err := s.refused
	if err == nil {
		record := r.writeAhead(ctx, state, s, healthSaid(o.saved))
		records.Carry(s.request, record)
		err = r.Requests.Create(ctx, s.request)
		if o.lost = begin.Lost(err); err == nil || o.lost {
			r.requested.Of(state.remediation.kind.GroupKind()).Note(s.request)
		}
		if err == nil {
			r.Records.Began(ctx, record, records.RefOf(s.request))
		}
	}
	switch {
	case errors.Is(err, remediationrequest.ErrAppeared):
		o.again = true
		if after, o.err = r.appeared(ctx, state, &s); o.err != nil {
			return o
		}
	case err != nil:
		o.refused, o.err, s.refused = err, err, err
		after = NotCreated(err)
	default:
		o.requested = true
	}
	o, _ = r.set(ctx, state, s, o.saved, after, o)
	return o
}

// appeared returns the conditions for a machine whose request exists and was not observed, together with it.
func (r *Reconciler) appeared(ctx context.Context, state *observed, s *step) ([]metav1.Condition, error) {
	target := *s.Target
	req, err := r.Requests.Find(ctx, state.remediation.kind, client.ObjectKeyFromObject(target.Machine))
	if err != nil || req == nil {
		return nil, err
	}
	target.Request = req
	target.Ownership = state.ownership(&target)
	s.Decision = WithRequest(&state.Facts, s.Decision, &target)
	return s.Conditions, nil
}

func without(conditions []metav1.Condition, kind string) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(cond metav1.Condition) bool { return cond.Type == kind })
}

// requestFor is the remediation request for machine as it is to be made. The error says why its template is good for none.
func (state *observed) requestFor(machine *clusterv1.Machine) (*unstructured.Unstructured, error) {
	if state.remediation.templateErr != nil {
		return nil, state.remediation.templateErr
	}
	return remediationrequest.For(machine, state.remediation.template, maker(state.Check))
}

func maker(check *clusterv1.MachineHealthCheck) remediationrequest.Maker {
	return remediationrequest.Maker{Name: check.Name, UID: check.UID}
}

// set sets conditions on machine, that of s as it was last read or written, and reports whether they are stored. Those that were set the
// last time, and that another client has removed, are set again after a pause.
func (r *Reconciler) set(
	ctx context.Context, state *observed, s step, machine *clusterv1.Machine, conditions []metav1.Condition, o outcome,
) (outcome, bool) {
	next := s.with(state, machine, conditions)
	if sameConditions(next, machine) {
		return o, true
	}
	o.wrote = fmt.Sprint(conditions)
	if did := state.before.did[machine.UID]; did.Do == o.wrote && state.Now.Before(did.Until(state.Now)) {
		o.undone = did.Until(state.Now)
		return o, false
	}
	return r.save(ctx, next, o)
}

// save writes the conditions of machine, and reports whether they are stored.
func (r *Reconciler) save(ctx context.Context, machine *clusterv1.Machine, o outcome) (outcome, bool) {
	err := capi.PatchConditions(ctx, r.Client, machine)
	switch {
	case apierrors.IsConflict(err):
		o.again = true
	case client.IgnoreNotFound(err) != nil:
		o.err = errors.Join(o.err, fmt.Errorf("write the conditions of machine %s: %w", machine.Name, err))
	case err == nil:
		r.written.note(machine)
		o.saved, o.at = machine, r.Clock.Now()
	}
	return o, err == nil
}

// newlyUnhealthy reports whether o turned the machine's health check from anything else to failed.
func (o outcome) newlyUnhealthy() bool {
	return o.saved != nil && o.Sets(HealthCheckSucceeded, "False") && Failed(o.Target.Machine) == nil
}

// recovered reports whether o turned the machine's health check from failed to succeeded.
func (o outcome) recovered() bool {
	return o.saved != nil && o.Sets(HealthCheckSucceeded, "True") && Failed(o.Target.Machine) != nil
}

// newlyRefused reports whether o found, and said, that no request can be made, or that the cause of it is another one now.
func (o outcome) newlyRefused() bool {
	if o.refused == nil || o.saved == nil {
		return false
	}
	before := ConditionOf(o.Target.Machine, clusterv1.MachineExternallyRemediatedCondition)
	after := ConditionOf(o.saved, clusterv1.MachineExternallyRemediatedCondition)
	return before == nil || before.Reason != after.Reason || before.Message != after.Message
}

// step is the part of a plan that is about one machine.
type step struct {
	*Decision
	population budget.Population
	// request is the one to create; refused is why none can be made from the template.
	request *unstructured.Unstructured
	refused error
}

// stepsOf are the steps of plan. What changes nothing is left out.
func stepsOf(state *observed, plan *Plan) []step {
	var steps []step
	for _, i := range plan.Open {
		if decision := plan.Decisions[i]; !decision.Idle() {
			steps = append(steps, stepOf(state, plan, decision))
		}
	}
	return steps
}

func stepOf(state *observed, plan *Plan, decision *Decision) step {
	s := step{Decision: decision, population: plan.Population}
	if decision.Tried && state.Template.External {
		s.refused = decision.Target.Unusable
	}
	if decision.Step == CreateRequest {
		s.request, s.refused = state.requestFor(decision.Target.Machine)
	}
	return s
}
