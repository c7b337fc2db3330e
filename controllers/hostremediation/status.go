package hostremediation

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
	"github.com/kubemend/kubemend/controllers/recorder"
	"github.com/kubemend/kubemend/controllers/workload"
)

// writeStatus updates the status if it differs. failure is why the step could not be carried out; it is in the message, because users read
// the status rather than logs.
func (r *Reconciler) writeStatus(ctx context.Context, obs *observed, step powercycle.Step, failure error) error {
	if !obs.rem.GetDeletionTimestamp().IsZero() && len(obs.rem.GetFinalizers()) == 0 && failure == nil {
		return nil // the remediation is gone
	}
	message := obs.cycle().Message("", step)
	if failure != nil {
		message = fmt.Sprintf("%s: %.4096s", message, workload.Plain(failure))
	}
	next := obs.rem.Unwrapped().DeepCopyObject().(client.Object)
	as := remediation.Wrap(next)
	as.Report(statusOf(obs, step, message))
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

func (obs *observed) cycle() *powercycle.Cycle {
	return &powercycle.Cycle{Facts: obs.facts, Policy: obs.policy, After: obs.record.Memory}
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

// milestone returns the i-th condition after step; false if it stays as it is.
//
// True means done. False means in progress or failed, with the reason of the step. Unknown means not reached.
func milestone(i int, m powercycle.Memory, noPowerOff, held bool, step powercycle.Step, message string) (metav1.Condition, bool) {
	kind, awaited := milestones[i].kind, rank[milestones[i].state]
	at, live := rank[m.State]
	waiting := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: string(step.Reason), Message: message}
	switch {
	case !live: // in a final state, what was reached stays reached
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

// moved are the reasons in Memory.Moved with which the workload counts as moved.
var moved = []powercycle.Reason{"", powercycle.WorkloadMovedReason, powercycle.NodeGoneReason}

// reached returns a condition whose state is over. It is False if its step was given up, or cannot be proven.
func reached(kind string, m powercycle.Memory, noPowerOff bool) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: doneReason}
	switch {
	case noPowerOff && (kind == infrav1.PoweredOffCondition || kind == infrav1.WorkloadMovedCondition):
		c.Status, c.Reason = metav1.ConditionFalse, notProvenReason
		c.Message = "spec.disablePowerOff of the host is set: it is rebooted, whether it was off cannot be proven, and its node is " +
			"not fenced"
	case kind == infrav1.PoweredOffCondition && (m.Moved == powercycle.FencingImpossibleReason || m.Moved == powercycle.HostServicedReason):
		c.Status, c.Reason = metav1.ConditionFalse, string(m.Moved)
	case kind == infrav1.WorkloadMovedCondition && !slices.Contains(moved, m.Moved):
		c.Status, c.Reason = metav1.ConditionFalse, string(m.Moved)
	}
	return c
}

// setConditions updates the conditions of rem. f are the facts after step.
func setConditions(rem conditions.Setter, m powercycle.Memory, f powercycle.Facts, step powercycle.Step, message string, now time.Time) {
	changed := outcome(m.State, f.HasPowerAnnotations, step, message)
	for i := range milestones {
		if c, changes := milestone(i, m, f.NoPowerOff, f.KeptOff, step, message); changes {
			changed = append(changed, c)
		}
	}
	for _, c := range changed {
		c.LastTransitionTime = metav1.NewTime(now)
		conditions.Set(rem, c)
	}
}

// outcome returns the conditions of the remediation as a whole. A remediation that has ended but still has power annotations on its host is
// in progress: a NodeHealthCheck begins the next escalation step as soon as this one has failed.
func outcome(state powercycle.State, marked bool, step powercycle.Step, message string) []metav1.Condition {
	processing, succeeded := metav1.ConditionFalse, metav1.ConditionFalse
	switch {
	case state == "": // it cannot begin
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

// phases has the phase of each state, in CAPM3's words.
var phases = map[powercycle.State]infrav1.RemediationPhase{
	powercycle.Preparing: infrav1.PhaseRunning, powercycle.PoweringOff: infrav1.PhaseRunning,
	powercycle.MovingWorkload: infrav1.PhaseRunning, powercycle.Rebooting: infrav1.PhaseRunning,
	powercycle.PoweringOn: infrav1.PhaseWaiting, powercycle.Booting: infrav1.PhaseWaiting, powercycle.Servicing: infrav1.PhaseWaiting,
	powercycle.RequestingOwner: infrav1.PhaseWaiting, powercycle.Succeeded: infrav1.PhaseWaiting,
	powercycle.OwnerRequested: infrav1.PhaseDeleting,
	powercycle.Failed:         infrav1.PhaseFailed, powercycle.Ended: infrav1.PhaseWaiting, powercycle.Stopped: infrav1.PhaseFailed,
}

func statusOf(obs *observed, step powercycle.Step, message string) mendv1.HostRemediationStatus {
	m := obs.record.Memory
	status := mendv1.HostRemediationStatus{
		Phase: phases[m.State], Step: string(m.State), Attempt: int32(m.Attempt), Host: obs.record.Host, Message: message,
		Started: moment(m.Began), Deadline: moment(deadlineOf(m, obs.policy)),
	}
	if m.State == powercycle.Pending && step.Do == powercycle.Wait {
		status.Phase = infrav1.PhaseRunning
	}
	switch step.Reason {
	case powercycle.RemediationLoopReason:
		status.BlockedUntil = moment(obs.loopUntil)
	case powercycle.WaitingForPolicyReason:
		status.Deadline, status.BlockedUntil = nil, moment(obs.facts.Ahead[0].Until)
	}
	return status
}

// deadlineOf returns when the current state times out; zero if it does not.
func deadlineOf(m powercycle.Memory, p powercycle.Policy) time.Time {
	if !m.Paused.IsZero() || m.Person != "" {
		return time.Time{} // the clocks stand still, or a person was asked because they expired
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

// report sends events about the steps that were taken, exports metrics, and logs one line for each step. Waits are only in conditions. done
// says that the last step was done, and not only stored as intended.
func (r *Reconciler) report(ctx context.Context, obs *observed, done bool) {
	took := obs.taken
	if last := len(took) - 1; last >= 0 && took[last].step.Do.Intended() && !done {
		took = took[:last]
	}
	if !obs.saved {
		// Visible actions are reported even if they could not be stored: the next reconcile sees their effect, and does not repeat them.
		took = slices.DeleteFunc(slices.Clone(took), func(t taken) bool { return !t.step.Do.Visible() })
	}
	for i := range took {
		t := &took[i]
		if obs.saved {
			r.measure(&t.observed, t.step)
		}
		if t.step.Do != powercycle.Wait {
			log.FromContext(ctx).Info("Took a step", "action", t.step.Do, "state", t.step.Next, "reason", t.step.Reason,
				"attempt", t.record.Attempt,
				"BareMetalHost", klog.KRef(obs.rem.GetNamespace(), obs.record.Host))
		}
	}
	for _, e := range eventsOf(took) {
		recorder.Send(r.Recorder, e)
	}
}

// eventsOf returns the events about the steps of one reconcile. Some steps only add a sentence to the event of another step.
func eventsOf(took []taken) []recorder.Event {
	var events []recorder.Event
	before := ""
	for i := range took {
		t := &took[i]
		next, acts := powercycle.Step{}, took[len(took)-1].step.Do.Visible()
		if i+1 < len(took) {
			next = took[i+1].step
		}
		switch {
		case acts && t.step.Do == powercycle.BeginAttempt && t.step.Reason == powercycle.AttemptBeganReason:
		case acts && leadsTo[t.step.Reason]:
			before = powercycle.JoinSentences(before, t.cycle().Sentence(t.step))
		case t.step.Reason == powercycle.PoweredOnReason && next.Reason == powercycle.UnfencedReason:
			events = append(events, t.events(before, next.Message())...)
			return append(events, eventsOf(took[i+2:])...)
		case t.step.Reason == powercycle.UnfencedReason && next.Reason == powercycle.PoweredOnReason:
			events = append(events, took[i+1].events(before, t.step.Message())...)
			return append(events, eventsOf(took[i+2:])...)
		default:
			events = append(events, t.events(before, "")...)
			before = ""
		}
	}
	return events
}

// leadsTo has the reasons of steps that only add a sentence to the event of the next action.
var leadsTo = map[powercycle.Reason]bool{powercycle.PoweredOffReason: true, powercycle.WorkloadMovedReason: true}

// quiet are the actions without an event.
var quiet = map[powercycle.Action]bool{
	powercycle.Wait: true, powercycle.AddFinalizer: true, powercycle.NoteAsked: true, powercycle.NoteOn: true, powercycle.NoteReceipt: true,
	powercycle.DropFinalizer: true,
}

// inVain are the states after which the remediation has not helped.
var inVain = map[powercycle.State]bool{powercycle.Failed: true, powercycle.Stopped: true, powercycle.RequestingOwner: true}

// warns reports whether the events of a step are warnings, because a person may have to act.
func warns(obs *observed, step powercycle.Step) bool {
	if powercycle.RuleOf(step.Reason).Warns {
		return true
	}
	switch step.Do {
	case powercycle.AskPerson, powercycle.RequestOwner:
		return true
	case powercycle.BeginAttempt:
		return obs.record.Attempt > 1
	}
	return inVain[step.Next]
}

// events returns the events about a step: one on the remediation, or for some reasons on the host instead. If a person has to act, there is
// one on each of them and on the machine. before and after are sentences of other steps.
func (t *taken) events(before, after string) []recorder.Event {
	step := t.step
	silent := quiet[step.Do] && step.Reason != powercycle.UnfenceTimedOutReason
	// The check that deletes its remediation has already sent an event about the healthy machine.
	silent = silent || step.Reason == powercycle.MachineHealthyReason && !t.rem.GetDeletionTimestamp().IsZero()
	if silent || step.Do == powercycle.Advance && step.Next == powercycle.PoweringOff {
		return nil // the state has an event once the host was asked to power off
	}
	kind, text := corev1.EventTypeNormal, powercycle.JoinSentences(t.cycle().Message(before, step), after)
	if warns(&t.observed, step) {
		kind = corev1.EventTypeWarning
	}
	var events []recorder.Event
	add := func(about client.Object) {
		events = append(events, recorder.Event{
			About: about, Related: t.rem.Unwrapped(), Kind: kind, Reason: string(step.Reason), Action: "Remediate", Text: text,
		})
	}
	rule := powercycle.RuleOf(step.Reason)
	onHost := t.found.Host != nil && rule.OnHost
	if !onHost || kind == corev1.EventTypeWarning { // else the event on the host is enough
		add(t.rem.Unwrapped())
	}
	if onHost {
		add(host.Reference(t.found.Host))
	}
	if t.machine != nil && rule.OnMachine {
		about := &clusterv1.Machine{} // objects from a cache have no kind, which an event refers to
		about.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
		about.Name, about.Namespace, about.UID = t.machine.Name, t.machine.Namespace, t.machine.UID
		add(about)
	}
	return events
}
