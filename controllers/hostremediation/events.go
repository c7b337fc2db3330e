package hostremediation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// report sends events about the steps that were taken, if they are stored, measures them, and logs one line for each. Waits are reported by
// conditions. done says that the last one was done, and not only intended.
func (r *Reconciler) report(ctx context.Context, obs *observed, done bool) {
	took := obs.taken
	if last := len(took) - 1; last >= 0 && took[last].step.Do.Intended() && !done {
		took = took[:last]
	}
	if !obs.saved {
		// What was done is reported also if it could not be stored: the next reconcile sees its effect, and does not do it again.
		took = slices.DeleteFunc(slices.Clone(took), func(t taken) bool { return !t.step.Do.Visible() })
	}
	for i := range took {
		t := &took[i]
		if obs.saved {
			r.measure(&t.observed, t.step)
		}
		if t.step.Do != powercycle.Wait {
			log.FromContext(ctx).Info("Took a step", "action", t.step.Do, "state", t.step.Next, "reason", t.step.Reason, "attempt", t.record.Attempt,
				"BareMetalHost", klog.KRef(obs.rem.GetNamespace(), obs.record.Host))
		}
	}
	for _, e := range eventsOf(took) {
		recorder.Send(r.Recorder, e)
	}
}

// eventsOf are the events about the steps of one reconcile. A step that the one taken with it implies has no event of its own, only its
// sentence.
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
		default:
			events = append(events, t.events(before, "")...)
			before = ""
		}
	}
	return events
}

// leadsTo are the reasons of steps that the event of the action after them reports.
var leadsTo = map[powercycle.Reason]bool{powercycle.PoweredOffReason: true, powercycle.WorkloadMovedReason: true}

// quiet are the actions without an event: they only remember.
var quiet = map[powercycle.Action]bool{
	powercycle.Wait: true, powercycle.AddFinalizer: true, powercycle.NoteAsked: true, powercycle.NoteOn: true, powercycle.NoteReceipt: true,
	powercycle.DropFinalizer: true,
}

// inVain are the states of a remediation that has not helped.
var inVain = map[powercycle.State]bool{powercycle.Failed: true, powercycle.Stopped: true, powercycle.RequestingOwner: true}

// warns reports whether a step is a warning: a person may have to do something about it.
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

// events are the events about a step: one on the remediation, and for some reasons one on the host and one on the machine. before is what
// led to the step, after what came of it.
func (t *taken) events(before, after string) []recorder.Event {
	step := t.step
	silent := quiet[step.Do] && step.Reason != powercycle.UnfenceTimedOutReason
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
	add(t.rem.Unwrapped())
	if t.found.Host != nil && rule.OnHost {
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
