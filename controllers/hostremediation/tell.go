package hostremediation

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/explain"
	"github.com/kubemend/kubemend/controllers/recorder"
)

// tell sends events about the steps that were taken, if they are stored, measures them, and logs one line for each. What only waits is told by conditions.
// done says that the last one was done, and not only intended.
func (r *Reconciler) tell(ctx context.Context, w *observed, done bool) {
	took := w.taken
	if last := len(took) - 1; last >= 0 && took[last].step.Do.Intended() && !done {
		took = took[:last]
	}
	if !w.saved {
		// What was done is told also if it could not be remembered: the next reconcile sees it, and does not do it again.
		took = slices.DeleteFunc(slices.Clone(took), func(t taken) bool { return !t.step.Do.Visible() })
	}
	for i := range took {
		t := &took[i]
		if w.saved {
			r.measure(&t.observed, t.step)
		}
		if t.step.Do != powercycle.Wait {
			log.FromContext(ctx).Info("Took a step", "action", t.step.Do, "state", t.step.Next, "reason", t.step.Reason, "attempt", t.record.Attempt,
				"BareMetalHost", klog.KRef(w.rem.GetNamespace(), w.record.Host))
		}
	}
	for _, n := range notesOf(took) {
		recorder.Send(r.Recorder, n)
	}
}

// notesOf are the events about the steps of one reconcile. One that goes without saying, because of the step that was taken with it, has no event of its own,
// only its sentence.
func notesOf(took []taken) []recorder.Event {
	var notes []recorder.Event
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
			before = explain.JoinedSteps(before, t.about().Sentence(t.step))
		case t.step.Reason == powercycle.PoweredOnReason && next.Reason == powercycle.UnfencedReason:
			notes = append(notes, t.notes(before, explain.HostStep(next))...)
			return append(notes, notesOf(took[i+2:])...)
		default:
			notes = append(notes, t.notes(before, "")...)
			before = ""
		}
	}
	return notes
}

// leadsTo are the reasons of steps of which the action after them tells.
var leadsTo = map[powercycle.Reason]bool{powercycle.PoweredOffReason: true, powercycle.WorkloadMovedReason: true}

// quiet are the actions that nobody needs to hear of: they only remember.
var quiet = map[powercycle.Action]bool{
	powercycle.Wait: true, powercycle.AddFinalizer: true, powercycle.NoteAsked: true, powercycle.NoteOn: true, powercycle.NoteReceipt: true,
	powercycle.DropFinalizer: true,
}

// onHost and onMachine are the reasons that are told on the host and on the machine as well.
var (
	onHost = map[powercycle.Reason]bool{
		powercycle.PowerOffRequestedReason: true, powercycle.RebootRequestedReason: true, powercycle.OwnerRequestedReason: true,
		powercycle.CancelledReason: true, powercycle.PausedReason: true, powercycle.TimedOutByCheckReason: true, powercycle.SignOfLifeReason: true,
		powercycle.FencingImpossibleReason: true, powercycle.OperatorSilentReason: true, powercycle.HostNotReadyReason: true,
	}
	onMachine = map[powercycle.Reason]bool{
		powercycle.OwnerRequestedReason: true, powercycle.HostMismatchReason: true, powercycle.HostSwitchedOffReason: true,
		powercycle.HostKeptOffReason: true, powercycle.UnfenceTimedOutReason: true, powercycle.SignOfLifeReason: true,
		powercycle.FencingImpossibleReason: true, powercycle.OperatorSilentReason: true, powercycle.HostNotReadyReason: true,
		powercycle.HostServicedReason: true, powercycle.QueueTimedOutReason: true,
	}
)

// inVain are the states that a remediation comes to which has not helped.
var inVain = map[powercycle.State]bool{powercycle.Failed: true, powercycle.Stopped: true, powercycle.RequestingOwner: true}

// warns reports whether somebody may have to do something about a step, or will.
func warns(w *observed, step powercycle.Step) bool {
	switch step.Reason {
	case powercycle.SignOfLifeReason, powercycle.FencingImpossibleReason, powercycle.UnfenceTimedOutReason:
		return true
	}
	switch step.Do {
	case powercycle.AskPerson, powercycle.RequestOwner:
		return true
	case powercycle.BeginAttempt:
		return w.record.Attempt > 1
	}
	return inVain[step.Next]
}

// notes are the events about a step: one on the remediation, and one each on the host and the machine where a person looks there for it. before is what
// led to it, after what came of it.
func (t *taken) notes(before, after string) []recorder.Event {
	step := t.step
	if quiet[step.Do] && step.Reason != powercycle.UnfenceTimedOutReason || step.Do == powercycle.Advance && step.Next == powercycle.PoweringOff {
		return nil // PoweringOff is entered to ask, and that is told when it was done
	}
	kind, text := corev1.EventTypeNormal, explain.JoinedSteps(t.about().Message(before, step), after)
	if warns(&t.observed, step) {
		kind = corev1.EventTypeWarning
	}
	var notes []recorder.Event
	add := func(about client.Object) {
		notes = append(notes, recorder.Event{
			About: about, Related: t.rem.Unwrapped(), Kind: kind, Reason: string(step.Reason), Action: "Remediate", Text: text,
		})
	}
	add(t.rem.Unwrapped())
	if t.found.Host != nil && onHost[step.Reason] {
		add(hostOf(t.found.Host))
	}
	if t.machine != nil && onMachine[step.Reason] {
		add(machineOf(t.machine))
	}
	return notes
}

// hostOf returns host with the kind that an event refers to; objects from a cache do not carry theirs.
func hostOf(host *bmov1alpha1.BareMetalHost) client.Object {
	about := &bmov1alpha1.BareMetalHost{}
	about.SetGroupVersionKind(bmov1alpha1.GroupVersion.WithKind("BareMetalHost"))
	about.Name, about.Namespace, about.UID = host.Name, host.Namespace, host.UID
	return about
}

func machineOf(m *clusterv1.Machine) client.Object {
	about := &clusterv1.Machine{}
	about.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Machine"))
	about.Name, about.Namespace, about.UID = m.Name, m.Namespace, m.UID
	return about
}
