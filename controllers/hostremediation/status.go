package hostremediation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/workload"
)

// writeStatus brings the status up to date, and writes only what differs. failure is why the step could not be carried out: users read the
// status rather than logs.
func (r *Reconciler) writeStatus(ctx context.Context, obs *observed, step powercycle.Step, failure error) error {
	if step.Do == powercycle.DropFinalizer && obs.facts.Deleting && failure == nil {
		return nil // the remediation is gone
	}
	message := obs.cycle().Message("", step)
	if failure != nil {
		message = fmt.Sprintf("%s: %.4096s", message, workload.Plain(failure))
	}
	next := obs.rem.Unwrapped().DeepCopyObject().(client.Object)
	as := remediation.Wrap(next)
	as.Report(reportOf(obs, step, message))
	setConditions(as, obs.record.Memory, obs.facts, step, message, obs.now)
	if equality.Semantic.DeepEqual(obs.rem.Unwrapped(), next) {
		return nil
	}
	patch := client.MergeFromWithOptions(obs.rem.Unwrapped(), client.MergeFromWithOptimisticLock{})
	err := r.Client.Status().Patch(ctx, next, patch)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %s %s: %w", r.Kind.Kind, client.ObjectKeyFromObject(obs.rem), err)
	}
	if err == nil {
		r.written.Note(next)
	}
	return nil
}

// cycle is the power cycle as its messages tell it.
func (obs *observed) cycle() *powercycle.Cycle {
	return &powercycle.Cycle{
		Facts: obs.facts, Policy: obs.policy, After: obs.record.Memory, Pause: obs.pause(), Ahead: obs.ahead,
		Mismatch: obs.found.Why, Undoers: obs.undoers,
		Unseen: obs.unseenBecause, Twin: obs.twin, IdleVolumes: strings.Join(obs.seen.Idle, ", "), Left: obs.seen.Left, LeftCount: obs.seen.Count,
	}
}

// milestones are the conditions of an attempt, in order, each with the state that waits for it.
var milestones = []struct {
	kind  string
	state powercycle.State
}{
	{infrav1.PowerOffRequestedCondition, powercycle.Preparing},
	{infrav1.PoweredOffCondition, powercycle.PoweringOff},
	{infrav1.WorkloadMovedCondition, powercycle.MovingWorkload},
	{infrav1.PowerOnRequestedCondition, powercycle.PoweringOn},
	{infrav1.PoweredOnCondition, powercycle.PoweringOn},
	{infrav1.NodeHealthyCondition, powercycle.Booting},
}

// rank orders the states of an attempt.
var rank = map[powercycle.State]int{
	powercycle.Pending: 0, powercycle.Preparing: 1, powercycle.PoweringOff: 2, powercycle.MovingWorkload: 3, powercycle.PoweringOn: 4,
	powercycle.Rebooting: 4, powercycle.Servicing: 4, powercycle.Booting: 5,
}

// Reasons of conditions that no step has.
const (
	notYetReason    = "NotYet"
	doneReason      = "Done"
	notProvenReason = "CannotBeProven"
)

// milestone is one of the conditions after a step; false if it stays as it is.
//
// True: done. False: in progress or failed, with the reason of the step. Unknown: not reached.
func milestone(i int, m powercycle.Memory, noPowerOff, held bool, step powercycle.Step, message string) (metav1.Condition, bool) {
	kind, awaited := milestones[i].kind, rank[milestones[i].state]
	at, live := rank[m.State]
	waiting := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: string(step.Reason), Message: message}
	switch {
	case !live: // an end: what was reached stays reached
		if m.State == powercycle.Succeeded {
			waiting.Status = metav1.ConditionTrue
		}
		return waiting, kind == infrav1.NodeHealthyCondition
	case at < awaited:
		return metav1.Condition{Type: kind, Status: metav1.ConditionUnknown, Reason: notYetReason}, true
	case at == awaited && (kind != infrav1.PowerOnRequestedCondition || held):
		return waiting, true
	}
	return reached(kind, m, noPowerOff), true
}

// moved are the reasons for which a workload counts as moved.
var moved = []powercycle.Reason{"", powercycle.WorkloadMovedReason, powercycle.NodeGoneReason}

// reached is a condition whose state is over. It is not True if that was given up, or cannot be proven.
func reached(kind string, m powercycle.Memory, noPowerOff bool) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: doneReason}
	switch {
	case noPowerOff && (kind == infrav1.PoweredOffCondition || kind == infrav1.WorkloadMovedCondition):
		c.Status, c.Reason = metav1.ConditionFalse, notProvenReason
		c.Message = "spec.disablePowerOff of the host is set: it is rebooted, whether it was off cannot be proven, and its node is not fenced"
	case kind == infrav1.PoweredOffCondition && (m.Moved == powercycle.FencingImpossibleReason || m.Moved == powercycle.HostServicedReason):
		c.Status, c.Reason = metav1.ConditionFalse, string(m.Moved)
	case kind == infrav1.WorkloadMovedCondition && !slices.Contains(moved, m.Moved):
		c.Status, c.Reason = metav1.ConditionFalse, string(m.Moved)
	}
	return c
}

// setConditions brings the conditions of rem up to date. f are the facts after step.
func setConditions(rem conditions.Setter, m powercycle.Memory, f powercycle.Facts, step powercycle.Step, message string, now time.Time) {
	for i := range milestones {
		if c, changes := milestone(i, m, f.NoPowerOff, f.KeptOff, step, message); changes {
			c.LastTransitionTime = metav1.NewTime(now)
			conditions.Set(rem, c)
		}
	}
	for _, c := range outcome(m.State, f.HasPowerAnnotations, step, message) {
		c.LastTransitionTime = metav1.NewTime(now)
		conditions.Set(rem, c)
	}
}

// outcome are the conditions of the remediation as a whole after a step. One that has ended and still has power annotations on its host is
// under way: a NodeHealthCheck takes the next escalation step as soon as this one has failed.
func outcome(state powercycle.State, marked bool, step powercycle.Step, message string) []metav1.Condition {
	processing, succeeded := metav1.ConditionFalse, metav1.ConditionFalse
	switch {
	case state == "": // it cannot even begin
	case !state.Final() || marked:
		processing, succeeded = metav1.ConditionTrue, metav1.ConditionUnknown
	case state == powercycle.Succeeded:
		succeeded = metav1.ConditionTrue
	}
	return []metav1.Condition{
		{Type: nhcv1.ProcessingCondition, Status: processing, Reason: string(step.Reason), Message: message},
		{Type: nhcv1.SucceededCondition, Status: succeeded, Reason: string(step.Reason), Message: message},
	}
}

// phases are those of CAPM3.
var phases = map[powercycle.State]infrav1.RemediationPhase{
	powercycle.Preparing: infrav1.PhaseRunning, powercycle.PoweringOff: infrav1.PhaseRunning, powercycle.MovingWorkload: infrav1.PhaseRunning,
	powercycle.Rebooting: infrav1.PhaseRunning, powercycle.PoweringOn: infrav1.PhaseWaiting, powercycle.Booting: infrav1.PhaseWaiting,
	powercycle.Servicing: infrav1.PhaseWaiting, powercycle.RequestingOwner: infrav1.PhaseWaiting, powercycle.Succeeded: infrav1.PhaseWaiting,
	powercycle.OwnerRequested: infrav1.PhaseDeleting,
	powercycle.Failed:         infrav1.PhaseFailed, powercycle.Ended: infrav1.PhaseWaiting, powercycle.Stopped: infrav1.PhaseFailed,
}

// reportOf is the progress of the remediation.
func reportOf(obs *observed, step powercycle.Step, message string) remediation.Report {
	m := obs.record.Memory
	r := remediation.Report{
		Phase: phases[m.State], Step: string(m.State), Attempt: int32(m.Attempt), Host: obs.record.Host, Message: message,
		Started: moment(m.Began), Deadline: moment(deadlineOf(m, obs.policy)),
	}
	if m.State == powercycle.Pending && step.Do == powercycle.Wait {
		r.Phase = infrav1.PhaseRunning
	}
	if step.Reason == powercycle.RemediationLoopReason {
		r.BlockedUntil = moment(obs.loopUntil)
	}
	return r
}

// deadlineOf is when the present state times out; zero if it does not.
func deadlineOf(m powercycle.Memory, p powercycle.Policy) time.Time {
	if !m.Paused.IsZero() || m.Person != "" {
		return time.Time{} // the clocks stand still, or have expired
	}
	switch m.State {
	case powercycle.Preparing, powercycle.PoweringOff, powercycle.MovingWorkload, powercycle.Rebooting:
		return m.Deadline(p)
	case powercycle.PoweringOn:
		return m.Since.Add(p.Timeout)
	case powercycle.Booting:
		return m.Since.Add(p.Boot)
	case powercycle.Servicing:
		return m.Since.Add(p.Servicing)
	case powercycle.Pending:
		return m.Since.Add(p.Queue)
	}
	return time.Time{}
}

func moment(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}
