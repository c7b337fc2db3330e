package hostremediation

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/fence"
	"github.com/kubemend/kubemend/baremetal/host"
	"github.com/kubemend/kubemend/baremetal/powercycle"
	"github.com/kubemend/kubemend/baremetal/remediation"
)

// evidence are observations, one clause each. What is not known is not in it.
type evidence []string

// add adds an observation if it was made.
func (e *evidence) add(made bool, format string, args ...any) {
	if made {
		*e = append(*e, fmt.Sprintf(format, args...))
	}
}

// evidence is what the step is decided on.
func (w *observed) evidence() []string {
	var e evidence
	e.addRemediation(w)
	e.addMachine(w)
	if w.idle == "" {
		e.addHost(w)
		e.addNode(w)
	}
	return e
}

func (e *evidence) addRemediation(w *observed) {
	facts, pause := w.facts, w.pause()
	at := facts.Asked.UTC().Format(time.RFC3339)
	e.add(!w.rem.GetDeletionTimestamp().IsZero(), "the remediation is being deleted")
	e.add(!asked(w.rem), "the remediation asks for nothing: spec.strategy is not %s", infrav1.RebootRemediationStrategy)
	e.add(facts.Stop, "the health check has timed the remediation out (annotation %s)", nhcv1.TimedOutAnnotation)
	e.add(facts.Teardown, "kubemend is being removed, or power cycles are switched off")
	e.add(pause.By != "", "the remediation is paused %s", pause.By)
	e.add(facts.Finalizer, "finalizer %s keeps the remediation until all is released", w.kind.Finalizer)
	e.add(!facts.Asked.IsZero() && !facts.WasOff, "the host was asked to power off at %s", at)
	e.add(!facts.Asked.IsZero() && facts.WasOff, "the host was asked to power off at %s, and was off then", at)
}

func (e *evidence) addMachine(w *observed) {
	owner := remediation.OwnerOf(w.rem)
	e.add(owner == nil, "metadata.ownerReferences names no Machine")
	if w.machine == nil {
		if owner != nil {
			e.add(true, "Machine %s does not exist, or another one has its name", owner.Name)
		}
		return
	}
	name, facts := w.machine.Name, w.facts
	e.add(facts.ControlPlane, "Machine %s is of the control plane", name)
	e.add(facts.Machine == powercycle.MachineDeleting, "Machine %s is being deleted", name)
	if conditions.IsFalse(w.machine, clusterv1.MachineHealthCheckSucceededCondition) {
		e.add(true, "Machine %s is marked unhealthy (condition %s, reason %s)", name, clusterv1.MachineHealthCheckSucceededCondition,
			conditions.GetReason(w.machine, clusterv1.MachineHealthCheckSucceededCondition))
	}
	e.add(facts.Healthy, "Machine %s is healthy", name)
	e.add(facts.OwnerAsked, "the owner of Machine %s is asked to replace it (condition %s)", name, clusterv1.MachineOwnerRemediatedCondition)
}

var onOff = map[bool]string{true: "on", false: "off"}

func (e *evidence) addHost(w *observed) {
	bmh, facts, power := w.found.Host, w.facts, w.facts.Power
	e.add(w.found.Why != "", "%s", w.found.Why)
	if bmh == nil {
		return
	}
	whose := "is that of the machine"
	if ref := bmh.Consumer; ref != nil {
		whose = fmt.Sprintf("belongs to %s %s", ref.Kind, ref.Name)
	}
	keptOffFor := keptOffFor(bmh, w.record.By(w.rem))
	e.add(facts.Host == powercycle.HostOurs, "BareMetalHost %s/%s %s", bmh.Namespace, bmh.Name, whose)
	e.add(host.Unhealthy(bmh) && !facts.Marked, "the host is marked as unhealthy, not by this remediation")
	e.add(host.Unhealthy(bmh) && facts.Marked, "the host is marked as unhealthy by this remediation")
	e.add(true, "the host is %s (status.poweredOn)", onOff[facts.PoweredOn])
	e.add(true, "desired power state: %s (spec.online)", onOff[facts.Wanted])
	e.add(facts.NoPowerOff, "the host can only be rebooted (spec.disablePowerOff)")
	e.add(power.Unmanaged != "", "its power is not managed now: %s", power.Unmanaged)
	e.add(power.Trouble != "", "the host has an error: %s", power.Trouble)
	e.add(facts.KeptOff, "the host is kept powered off for this remediation (annotation %s%s)", infrav1.PowerOffAnnotationPrefix, w.keptOffAs())
	e.add(facts.RebootAsked && facts.RebootPending, "the host is asked to reboot for this attempt, and has not done so")
	e.add(facts.RebootAsked && !facts.RebootPending, "the host has rebooted for this attempt")
	e.add(power.KeptOffBy != "", "the host is kept powered off by another client (annotation %s)", power.KeptOffBy)
	e.add(keptOffFor != "", "the host is kept powered off for remediation %s", keptOffFor)
}

// keptOffAs is the UID by which the remediation keeps its host powered off: that of before it was moved, if it was.
func (w *observed) keptOffAs() string {
	by := w.record.By(w.rem)
	for key := range w.found.Host.Annotations {
		if uid, hold := host.KeptOffFor(key); hold && by.Before != "" && uid == by.Before {
			return string(uid)
		}
	}
	return string(by.UID)
}

func (e *evidence) addNode(w *observed) {
	name, facts, seen := w.nodeName(), w.facts, w.seen
	if name == "" {
		e.add(true, "the machine has never had a node")
		return
	}
	answered, looked := seen.Presence != fence.Unseen, seen.Presence == fence.Present
	e.add(w.unseenBecause != "" && !answered, "node %s cannot be seen: %s", name, w.unseenBecause)
	if w.node != nil {
		boot, before := w.node.Status.NodeInfo.BootID, w.record.BootID
		e.add(true, "node %s has Ready=%s", name, readyOf(w.node))
		e.add(w.unhealthy != "", "%s", w.unhealthy)
		e.add(before != "" && boot == before, "node %s has not booted since its host was powered off (boot ID %s)", name, boot)
		e.add(before != "" && boot != before, "node %s has booted since its host was powered off (boot ID %s)", name, boot)
	}
	e.add(w.unseenBecause == "" && w.node == nil && !looked, "node %s does not exist", name)
	if node := seen.Node; looked && node != nil {
		e.add(seen.Deleting, "node %s is being deleted", name)
		e.add(facts.NodeMismatch, "node %s is not the machine's: it has providerID %q, and UID %s", name, node.Spec.ProviderID, node.UID)
		e.add(!facts.Fenced, "node %s is not fenced", name)
		e.add(fence.OutOfService(node), "node %s has the taint %s, %s", name, infrav1.OutOfServiceTaintKey, fencedBy(seen))
	}
	e.add(seen.Count > 0, "on node %s are left: %s", name, w.cycle().LeftOnNode())
	e.add(len(seen.Idle) > 0, "not waited for, since no pod has or wants its volume: %s", strings.Join(seen.Idle, ", "))
	e.add(answered && seen.Drained, "nothing is left on node %s that would have to move", name)
	e.add(!answered && facts.Fencing, "node %s may be fenced by this remediation", name)
}

// fencedBy says who has put the taint on the node.
func fencedBy(seen fence.Seen) string {
	switch {
	case seen.Ours:
		return "of this remediation"
	case seen.Mark != "":
		return "of remediation " + string(seen.Mark)
	}
	return "put there by another client"
}
