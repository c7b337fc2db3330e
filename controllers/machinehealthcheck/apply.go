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
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/controllers/begin"
	"github.com/kubemend/kubemend/controllers/capi"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/explain"
	records "github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/remediationrequest"
)

const writers = 32

// outcome is the result of carrying out the decision about one machine.
type outcome struct {
	*Decision
	// saved is the Machine as it was last written; nil if nothing was written. at is when it was written.
	saved *clusterv1.Machine
	at    time.Time
	// requested says that a remediation began: a request was created, or the owner was asked.
	requested bool
	// lost says that a remediation may have begun: the answer to the creation of the request was lost, or the write that asks the owner
	// failed. A write that ends in a conflict has asked no owner.
	lost bool
	// wrote are the conditions to set. If another client keeps removing them, undone is until when they are not set again.
	wrote  string
	undone time.Time
	// again says that another writer changed the object first; the next reconcile reads the change.
	again bool
	// refused is the reason why no request could be created, known from the decision or from this attempt.
	refused error
	err     error
}

type applied struct {
	outcomes []outcome
	// status is the check as it was saved; nil if it was not saved.
	status *clusterv1.MachineHealthCheck
	err    error // of the writes to the check
	// statusDue is when a postponed status is to be written; zero if the status was not postponed.
	statusDue time.Time
}

// apply carries out plan and writes only what differs. For a check that is not Active it writes nothing.
func (r *Reconciler) apply(ctx context.Context, state *observed, plan *Plan) applied {
	if state.Mode != Active {
		return applied{}
	}
	done := applied{outcomes: r.act(ctx, state, plan)}
	next := statusAfter(state, plan, done.outcomes)
	if done.statusDue = putOff(state, next); !done.statusDue.IsZero() {
		return done
	}
	if done.err = r.recordOwner(ctx, state); done.err == nil {
		done.err = r.recordStatus(ctx, state, next)
	}
	if done.err == nil {
		done.status = next
	}
	return done
}

// act carries out all decisions that are not idle; an error for one machine does not stop the others. It marks all machines before the
// first remediation begins, because the steps of a remediation, such as writing its record, would delay the marks of hundreds.
func (r *Reconciler) act(ctx context.Context, state *observed, plan *Plan) []outcome {
	outcomes := make([]outcome, 0, len(plan.Open))
	for _, decision := range plan.Open {
		if !decision.Idle() {
			outcomes = append(outcomes, outcome{Decision: decision})
		}
	}
	each := func(do func(i int)) {
		var work errgroup.Group
		work.SetLimit(writers)
		for i := range outcomes {
			work.Go(func() error {
				do(i)
				return nil
			})
		}
		_ = work.Wait() // errors are in the outcomes
	}
	goesOn := make([]bool, len(outcomes))
	each(func(i int) { goesOn[i] = r.mark(ctx, state, &outcomes[i]) })
	each(func(i int) {
		o := &outcomes[i]
		if goesOn[i] {
			r.carryOut(ctx, state, plan, o)
		}
		if o.saved != nil { // the first reconcile may write thousands of Machines: keep only what events need
			o.Target.Machine = statusCopy(o.Target.Machine)
		}
	})
	return outcomes
}

// mark marks a machine whose remediation begins, and reports whether carryOut may go on. The write has an optimistic lock, so a Machine
// that has changed since it was read, such as one being deleted or one with a skip annotation, gets neither a remediation nor a record.
func (r *Reconciler) mark(ctx context.Context, state *observed, o *outcome) bool {
	machine, marks := o.Target.Machine, o.Conditions
	switch o.Step {
	case CreateRequest:
		if RequestFailed(machine) { // the failed creation stays reported until a request is created
			marks = without(marks, ExternallyRemediated, mendv1.Remediation)
		}
		return r.save(ctx, o, withConditions(machine, marks, o.Held(state.Now), state.Now))
	case RequestOwnerRemediation:
		if o.undoes(state, marks) {
			return false
		}
		next := withConditions(machine, without(marks, OwnerRemediated, mendv1.Remediation), o.Held(state.Now), state.Now)
		asked := ConditionOf(machine, OwnerRemediated) // if an earlier remediation left it, the mark would ask the owner
		if asked == nil && !sameConditions(next, machine) {
			return r.save(ctx, o, next)
		}
	case NoStep, DeleteRequest, AdoptRequest:
	}
	return true
}

// carryOut acts on a request first and sets conditions afterwards: after a crash in between the next reconcile finds the request.
func (r *Reconciler) carryOut(ctx context.Context, state *observed, plan *Plan, o *outcome) {
	machine, set := o.Target.Machine, o.Conditions
	switch o.Step {
	case CreateRequest:
		r.create(ctx, state, plan, o)
		return
	case RequestOwnerRemediation:
		r.askOwner(ctx, state, plan, o)
		return
	case DeleteRequest:
		if o.err = r.Requests.Delete(ctx, o.Target.Request); o.err != nil {
			set = without(set, ExternallyRemediated) // the machine is healthy, but its request still exists
		}
	case AdoptRequest:
		// A failed adoption does not keep the conditions from being set: the machine is unhealthy either way.
		o.err = r.Requests.Adopt(ctx, o.Target.Request, maker(state.Check), r.recordAdopted(ctx, state, plan, o.Decision))
	case NoStep:
		if o.Tried {
			o.refused, o.err = o.Target.Unusable, o.Target.Unusable
		}
	}
	r.set(ctx, state, o, machine, set)
}

func (r *Reconciler) askOwner(ctx context.Context, state *observed, plan *Plan, o *outcome) {
	machine, marked := cmp.Or(o.saved, o.Target.Machine), o.saved
	record := r.writeAhead(ctx, state, plan, o.Decision, healthSince(machine))
	next := withConditions(machine, carrying(o.Conditions, record), o.Held(state.Now), state.Now)
	saved := sameConditions(next, machine) || r.save(ctx, o, next)
	if o.requested, o.lost = saved && o.saved != marked, !saved && o.err != nil; o.requested {
		r.Records.Began(ctx, record, nil)
	}
}

// create creates a request for a machine that is marked. If the creation fails, create sets conditions that say so.
func (r *Reconciler) create(ctx context.Context, state *observed, plan *Plan, o *outcome) {
	after := o.Conditions
	req, err := state.requestFor(o.Target.Machine)
	if err == nil {
		record := r.writeAhead(ctx, state, plan, o.Decision, healthSince(o.saved))
		records.Carry(req, record)
		err = r.Requests.Create(ctx, req)
		if o.lost = begin.Lost(err); err == nil || o.lost {
			r.requested.Of(state.requestKind.GroupKind()).Note(req)
		}
		if err == nil {
			r.Records.Began(ctx, record, req)
		}
	}
	switch {
	case errors.Is(err, remediationrequest.ErrAppeared): // the next reconcile reads who made it
		o.again = true
		return
	case err != nil:
		o.refused, o.err, after = err, err, nil
		for _, kind := range []string{ExternallyRemediated, mendv1.Remediation} {
			after = append(after, condition(kind, metav1.ConditionFalse, requestCreationFailed, err.Error()))
		}
	default:
		o.requested = true
	}
	r.set(ctx, state, o, o.saved, after)
}

func without(conditions []metav1.Condition, kinds ...string) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(cond metav1.Condition) bool { return slices.Contains(kinds, cond.Type) })
}

// requestFor returns the remediation request to create for machine, or an error that says why the template cannot be used.
func (state *observed) requestFor(machine *clusterv1.Machine) (*unstructured.Unstructured, error) {
	if state.templateErr != nil {
		return nil, state.templateErr
	}
	return remediationrequest.For(machine, state.template, maker(state.Check))
}

func maker(check *clusterv1.MachineHealthCheck) remediationrequest.Maker {
	return remediationrequest.Maker{Name: check.Name, UID: check.UID}
}

// set sets conditions on machine, which is the Machine of o as last read or written.
func (r *Reconciler) set(ctx context.Context, state *observed, o *outcome, machine *clusterv1.Machine, conditions []metav1.Condition) {
	next := withConditions(machine, conditions, o.Held(state.Now), state.Now)
	if !sameConditions(next, machine) && !o.undoes(state, conditions) {
		r.save(ctx, o, next)
	}
}

// undoes notes what o writes, and reports whether another client removed the same after the last write, so that o waits.
func (o *outcome) undoes(state *observed, conditions []metav1.Condition) bool {
	o.wrote = fmt.Sprint(conditions)
	did := state.before.did[o.Target.UID]
	until := did.Until(state.Now)
	if did.Do != o.wrote || !state.Now.Before(until) {
		return false
	}
	o.undone = until
	return true
}

// save writes the conditions of machine and reports whether they are stored. If the write fails, the event of machine counts as another
// writer's and enqueues the check: the API server may have stored the write although its answer was lost.
func (r *Reconciler) save(ctx context.Context, o *outcome, machine *clusterv1.Machine) (saved bool) {
	write, written := ownWrite{client.ObjectKeyFromObject(machine), machine.ResourceVersion}, *machine
	r.writing.Store(write, &written)
	err := capi.PatchConditions(ctx, r.Client, machine)
	if err == nil {
		r.written.Note(machine)
		o.saved, o.at = machine, r.Clock.Now()
		return true
	}
	r.writing.CompareAndDelete(write, &written)
	if apierrors.IsConflict(err) {
		o.again = true
	} else if !apierrors.IsNotFound(err) {
		o.err = errors.Join(o.err, fmt.Errorf("write the conditions of machine %s: %w", machine.Name, err))
	}
	return false
}

// newlyUnhealthy reports whether o turned the machine's health check from anything else to failed.
func (o outcome) newlyUnhealthy() bool {
	return o.saved != nil && o.Sets(HealthCheckSucceeded, "False") && Failed(o.Target.Machine) == nil
}

// recovered reports whether o turned the machine's health check from failed to succeeded.
func (o outcome) recovered() bool {
	return o.saved != nil && o.Sets(HealthCheckSucceeded, "True") && Failed(o.Target.Machine) != nil
}

// newlyRefused reports whether o wrote that no request can be created, for the first time or with another cause than before.
func (o outcome) newlyRefused() bool {
	if o.refused == nil || o.saved == nil {
		return false
	}
	before := ConditionOf(o.Target.Machine, clusterv1.MachineExternallyRemediatedCondition)
	after := ConditionOf(o.saved, clusterv1.MachineExternallyRemediatedCondition)
	return before == nil || before.Reason != after.Reason || before.Message != after.Message
}

const checkKind = "MachineHealthCheck"

// writeAhead writes the record of the remediation that decision begins and returns the record; nil if there is none. An error does not hold
// up the remediation. since distinguishes the remediations of one machine.
func (r *Reconciler) writeAhead(
	ctx context.Context, state *observed, plan *Plan, decision *Decision, since string,
) *mendv1.RemediationRecord {
	if r.Records == nil {
		return nil
	}
	record := recordOf(state, plan, decision, r.Records.HostOf(ctx, decision.Target.Machine))
	return r.Records.Begin(ctx, checkKind, record, string(state.Check.UID)+" "+since)
}

// carrying returns conds with a mention of record in the condition that says that the owner was asked.
func carrying(conds []metav1.Condition, record *mendv1.RemediationRecord) []metav1.Condition {
	conds = slices.Clone(conds)
	for i := range conds {
		if conds[i].Type == mendv1.Remediation {
			conds[i].Message += records.Mention(record)
		}
	}
	return conds
}

// recordAdopted writes the record of a remediation that others began with the request of decision, and returns the annotation that names
// the record. It returns "" if the request names a record already, or if the machine is healthy again.
func (r *Reconciler) recordAdopted(ctx context.Context, state *observed, plan *Plan, decision *Decision) string {
	if carried, _ := records.CarriedBy(decision.Target.Request); decision.Verdict.State != health.Unhealthy || carried.Name != "" {
		return ""
	}
	req := decision.Target.Request
	record := r.writeAhead(ctx, state, plan, decision, string(req.GetUID())) // unlike healthSince, the same at a retry
	if record == nil {
		return ""
	}
	return records.Carried(record, req.Namespace)
}

// healthSince returns the stored status of the machine's health check and when it turned. A restart does not change it, and the next
// remediation of the machine has another time.
func healthSince(machine *clusterv1.Machine) string {
	cond := ConditionOf(machine, clusterv1.MachineHealthCheckSucceededCondition)
	if cond == nil {
		return ""
	}
	return fmt.Sprintf("%s since %d", cond.Status, cond.LastTransitionTime.Unix())
}

// recordOf returns the record of the remediation that decision begins, for a machine on that host. It leaves out what is not known.
func recordOf(state *observed, plan *Plan, decision *Decision, on *host.Host) *mendv1.RemediationRecord {
	check := state.Check
	record := &mendv1.RemediationRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: check.Namespace},
		Spec: mendv1.RemediationRecordSpec{
			Remediator: mendv1.RemediatedByOwner, Decided: metav1.NewTime(state.Now),
			Requester: mendv1.RecordRequester{Check: &mendv1.RecordRef{
				APIVersion: clusterv1.GroupVersion.String(), Kind: checkKind,
				Namespace: check.Namespace, Name: check.Name, UID: string(check.UID),
			}},
			Counts: records.CountsOf(plan.Population,
				cmp.Or(check.Spec.Remediation.TriggerIf.UnhealthyInRange, MostUnhealthy(check))),
		},
	}
	records.OnMachine(record, decision.Target.Machine)
	records.OnNode(&record.Spec.Target, decision.Target.Node)
	records.OnHost(&record.Spec.Target, on)
	records.OwnedBy(record, state.Cluster)
	if shard, labelled := check.Labels[clusterv1.WatchLabel]; labelled {
		record.Labels[clusterv1.WatchLabel] = shard
	}
	if state.Template.External {
		record.Spec.Remediator = mendv1.RemediatedByRequest
	}
	records.Judged(&record.Spec, decision.Verdict, state.Now)
	by, known := explain.AttributionOf(decision.Target.Machine, mendv1.RequestedAnnotation)
	marked := func(finding health.Finding) bool { return finding.Reason == health.MarkedByHand }
	if !known || !slices.ContainsFunc(decision.Verdict.Due(state.Now), marked) {
		return record
	}
	record.Spec.Requester.User, record.Spec.Requester.Reason = by.By, by.Reason
	possible := !by.At.IsZero() && !by.At.After(state.Now) // a person may have written any time
	if due := record.Spec.Due; possible && (due == nil || by.At.Before(due.Time)) {
		record.Spec.Due = new(metav1.NewTime(by.At))
	}
	return record
}
