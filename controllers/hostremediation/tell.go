package hostremediation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"

	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/controllers/tell"
)

// tell sends events about a step that was taken and saved, and logs one line for it. What only waits is told by conditions.
func (r *Reconciler) tell(ctx context.Context, w *world, step powercycle.Step) {
	for _, n := range notesOf(w, step) {
		tell.Send(r.Recorder, n)
	}
	if step.Do != powercycle.Wait {
		log.FromContext(ctx).Info("Took a step", "action", step.Do, "state", step.Next, "reason", step.Reason, "attempt", w.record.Attempt,
			"BareMetalHost", klog.KRef(w.rem.GetNamespace(), w.record.Host))
	}
}

// quiet are the actions that nobody needs to hear of: they only remember.
var quiet = map[powercycle.Action]bool{
	powercycle.Wait: true, powercycle.AddFinalizer: true, powercycle.NoteAsked: true, powercycle.NoteOn: true, powercycle.NoteReceipt: true,
	powercycle.DropFinalizer: true,
}

// fenceStays is the reason of the one end at which something of ours is left behind: that is told of what else would be quiet.
const fenceStays = "FenceStays"

// onHost and onMachine are the reasons that are told on the host and on the machine as well.
var (
	onHost = map[string]bool{
		"PowerOffRequested": true, "PowerOnRequested": true, "RebootRequested": true, "HandedOver": true, "Cancelled": true, "Paused": true,
		"TimedOutByCheck": true, signOfLife: true, fencingImpossible: true, "OperatorSilent": true, "HostNotReady": true,
	}
	onMachine = map[string]bool{
		"AttemptBegan": true, "HandedOver": true, "MachineWell": true, "HostMismatch": true, "HostSwitchedOff": true, "HostHeldOff": true, fenceStays: true,
		signOfLife: true, fencingImpossible: true, "OperatorSilent": true, "HostNotReady": true, hostServiced: true, turnTimedOut: true,
	}
)

// inVain are the states that a remediation comes to which has not helped.
var inVain = map[powercycle.State]bool{powercycle.Failed: true, powercycle.Stopped: true, powercycle.HandingOver: true}

// warns reports whether somebody may have to do something about a step, or will.
func warns(w *world, step powercycle.Step) bool {
	switch step.Reason {
	case signOfLife, fencingImpossible, fenceStays:
		return true
	}
	switch step.Do {
	case powercycle.AskPerson, powercycle.HandOver:
		return true
	case powercycle.BeginAttempt:
		return w.record.Attempt > 1
	}
	return inVain[step.Next]
}

// notesOf are the events about a step: one on the remediation, and one each on the host and the machine where it concerns them.
func notesOf(w *world, step powercycle.Step) []tell.Note {
	if quiet[step.Do] && step.Reason != fenceStays || step.Do == powercycle.Advance && step.Next == powercycle.PoweringOff {
		return nil // PoweringOff is entered to ask, and that is told when it was done
	}
	kind, text := corev1.EventTypeNormal, explain(w, step)
	if warns(w, step) {
		kind = corev1.EventTypeWarning
	}
	var notes []tell.Note
	add := func(about client.Object) {
		notes = append(notes, tell.Note{About: about, Related: w.rem.Unwrapped(), Kind: kind, Reason: step.Reason, Action: "Remediate", Text: text})
	}
	add(w.rem.Unwrapped())
	if w.found.Host != nil && onHost[step.Reason] {
		add(hostOf(w.found.Host))
	}
	if w.machine != nil && onMachine[step.Reason] {
		add(machineOf(w.machine))
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
