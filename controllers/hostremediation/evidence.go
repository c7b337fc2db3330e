package hostremediation

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// evidence is what was seen, one observation each. What is not known is not in it.
type evidence []string

// add adds an observation if it was made.
func (e *evidence) add(made bool, text string, of ...any) {
	if made {
		*e = append(*e, fmt.Sprintf(text, of...))
	}
}

// evidenceOf is what a step for w is decided on.
func evidenceOf(w *observed, finalizer string) []string {
	var e evidence
	e.ofRemediation(w, finalizer)
	e.ofMachine(w)
	if !w.ownerless {
		e.ofHost(w)
		e.ofPower(w)
		e.ofNode(w)
		e.add(w.ahead != "", "it is not its turn: %s", w.ahead)
	}
	return e
}

func (e *evidence) ofRemediation(w *observed, finalizer string) {
	f, m := w.facts, w.facts.Memory
	e.add(!w.rem.GetDeletionTimestamp().IsZero(), "the remediation is being deleted")
	e.add(!asked(w.rem), "the remediation asks for nothing: spec.strategy is not %s", infrav1.RebootRemediationStrategy)
	e.add(f.Stop, "the remediation is told to stop (annotation %s)", nhcv1.TimedOutAnnotation)
	e.add(f.Leaving, "kubemend is being removed, or power cycles are switched off")
	e.add(w.pausedBy() != "", "the remediation is paused %s", w.pausedBy())
	e.add(f.Finalizer, "finalizer %s keeps the remediation until all is let go", finalizer)
	e.add(!m.Asked.IsZero() && !m.WasOff, "the host was asked to power off at %s", clockOf(m.Asked))
	e.add(!m.Asked.IsZero() && m.WasOff, "the host was asked to power off at %s, and was off then", clockOf(m.Asked))
}

func (e *evidence) ofMachine(w *observed) {
	owner := ownerOf(w.rem)
	if owner == nil {
		e.add(true, "metadata.ownerReferences names no Machine")
	}
	if w.machine == nil {
		e.add(owner != nil, "Machine %s does not exist, or another one has its name", nameOf(owner))
		return
	}
	name := w.machine.Name
	e.add(w.facts.ControlPlane, "Machine %s is of the control plane", name)
	e.add(!w.machine.DeletionTimestamp.IsZero(), "Machine %s is being deleted", name)
	if c := conditions.Get(w.machine, clusterv1.MachineHealthCheckSucceededCondition); c != nil && c.Status == metav1.ConditionFalse {
		e.add(true, "Machine %s is called bad (condition %s, reason %s)", name, c.Type, c.Reason)
	}
	e.add(w.facts.Well, "Machine %s is well", name)
	e.add(w.facts.OwnerAsked, "the owner of Machine %s is asked to replace it (condition %s)", name, clusterv1.MachineOwnerRemediatedCondition)
}

func nameOf(owner *metav1.OwnerReference) string {
	if owner == nil {
		return ""
	}
	return owner.Name
}

func (e *evidence) ofHost(w *observed) {
	h := w.found.Host
	e.add(w.found.Why != "", "%s", w.found.Why)
	if h == nil {
		return
	}
	whose := "is that of the machine"
	if ref := h.Spec.ConsumerRef; ref != nil {
		whose = fmt.Sprintf("belongs to %s %s", ref.Kind, ref.Name)
	}
	e.add(w.found.Is == powercycle.HostOurs, "BareMetalHost %s/%s %s", h.Namespace, h.Name, whose)
	e.add(host.Unhealthy(h) && !w.facts.Marked, "the host is marked as unhealthy, not by this remediation")
	e.add(host.Unhealthy(h) && w.facts.Marked, "the host is marked as unhealthy by this remediation")
}

var words = map[bool]string{true: "on", false: "off"}

func (e *evidence) ofPower(w *observed) {
	h, p, f := w.found.Host, w.power, w.facts
	if h == nil {
		return
	}
	e.add(true, "the host is %s (status.poweredOn)", words[p.On])
	e.add(true, "the host is wanted %s by its owner (spec.online)", words[p.Wanted])
	e.add(p.NoPowerOff, "the host can only be rebooted (spec.disablePowerOff)")
	e.add(p.Deaf != "", "its power is not managed now: %s", p.Deaf)
	e.add(p.Trouble != "", "the host has an error: %s", p.Trouble)
	e.add(f.Held, "the host is held off for this remediation (annotation %s%s)", infrav1.PowerOffAnnotationPrefix, heldAs(w))
	e.add(f.RebootAsked && f.RebootPending, "the host is asked to reboot for this attempt, and has not done so")
	e.add(f.RebootAsked && !f.RebootPending, "the host has rebooted for this attempt")
	e.add(p.HeldBy != "", "the host is held off by somebody else (annotation %s)", p.HeldBy)
	other := keptOffFor(h, w.record.by(w.rem))
	e.add(other != "", "the host is held off for remediation %s", other)
}

// heldAs is the UID by which the remediation holds its host off: that of before it was moved, if it was.
func heldAs(w *observed) string {
	by := w.record.by(w.rem)
	for key := range w.found.Host.Annotations {
		if uid, hold := host.HeldFor(key); hold && by.Before != "" && uid == by.Before {
			return string(uid)
		}
	}
	return string(by.UID)
}

func (e *evidence) ofNode(w *observed) {
	name, seen := w.nodeName(), w.seen
	if name == "" {
		e.add(true, "the machine has never had a node")
		return
	}
	e.add(w.blindness != "" && seen.Presence == fence.Unseen, "node %s cannot be seen: %s", name, w.blindness)
	if w.node != nil {
		e.add(true, "node %s has Ready=%s", name, readyOf(w.node))
		e.add(w.unhealthy != "", "%s", w.unhealthy)
		is, was := w.node.Status.NodeInfo.BootID, w.record.BootID
		e.add(was != "" && is == was, "node %s has not booted since its host was powered off (boot ID %s)", name, is)
		e.add(was != "" && is != was, "node %s has booted since its host was powered off (boot ID %s)", name, is)
	}
	e.add(w.blindness == "" && w.node == nil && seen.Presence != fence.Present, "node %s does not exist", name)
	if seen.Presence == fence.Present {
		e.add(seen.Leaving, "node %s is being deleted", name)
		e.add(w.facts.NodeMismatch, "node %s is not the machine's: it has providerID %q, and UID %s", name, seen.Node.Spec.ProviderID, seen.Node.UID)
		e.add(!seen.Fenced, "node %s is not fenced", name)
		e.add(fence.OutOfService(seen.Node), "node %s has the taint %s, %s", name, infrav1.OutOfServiceTaintKey, whoseFence(seen))
	}
	e.add(seen.Count > 0, "on node %s are left: %s", name, w.left())
	e.add(seen.Presence != fence.Unseen && seen.Drained, "nothing is left on node %s that would have to move", name)
	e.add(seen.Presence == fence.Unseen && w.record.Fencing, "node %s may be fenced by this remediation", name)
}

func whoseFence(seen fence.Seen) string {
	switch {
	case seen.Ours:
		return "of this remediation"
	case seen.Mark != "":
		return "of remediation " + string(seen.Mark)
	}
	return "put there by somebody else"
}
