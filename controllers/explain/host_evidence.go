package explain

import (
	"fmt"
	"strings"
	"time"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	nhcv1 "github.com/kubemend/kubemend/api/remediation/v1alpha1"
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

// Evidence is what a step is decided on.
func (p *PowerCycle) Evidence() []string {
	var e evidence
	e.ofRemediation(p)
	e.ofMachine(p)
	if p.Idle == "" {
		e.ofHost(p)
		e.ofPower(p)
		e.ofNode(p)
	}
	return e
}

func (e *evidence) ofRemediation(p *PowerCycle) {
	f, m := p.Facts, p.Facts.Memory
	e.add(p.Deleted, "the remediation is being deleted")
	e.add(!p.Asked, "the remediation asks for nothing: spec.strategy is not %s", infrav1.RebootRemediationStrategy)
	e.add(f.Stop, "the health check has timed the remediation out (annotation %s)", nhcv1.TimedOutAnnotation)
	e.add(f.Teardown, "kubemend is being removed, or power cycles are switched off")
	e.add(p.Pause != "", "the remediation is paused %s", p.pausedBy())
	e.add(f.Finalizer, "finalizer %s keeps the remediation until all is released", p.Finalizer)
	e.add(!m.Asked.IsZero() && !m.WasOff, "the host was asked to power off at %s", clockOf(m.Asked))
	e.add(!m.Asked.IsZero() && m.WasOff, "the host was asked to power off at %s, and was off then", clockOf(m.Asked))
}

// clockOf is a moment as evidence has it.
func clockOf(at time.Time) string { return at.UTC().Format(time.RFC3339) }

func (e *evidence) ofMachine(p *PowerCycle) {
	e.add(p.Owner == "", "metadata.ownerReferences names no Machine")
	if p.Machine == "" {
		e.add(p.Owner != "", "Machine %s does not exist, or another one has its name", p.Owner)
		return
	}
	e.add(p.Facts.ControlPlane, "Machine %s is of the control plane", p.Machine)
	e.add(p.Facts.Machine == powercycle.MachineDeleting, "Machine %s is being deleted", p.Machine)
	e.add(p.MachineUnhealthy != "", "Machine %s is marked unhealthy (condition %s, reason %s)",
		p.Machine, clusterv1.MachineHealthCheckSucceededCondition, p.MachineUnhealthy)
	e.add(p.Facts.Healthy, "Machine %s is healthy", p.Machine)
	e.add(p.Facts.OwnerAsked, "the owner of Machine %s is asked to replace it (condition %s)", p.Machine, clusterv1.MachineOwnerRemediatedCondition)
}

func (e *evidence) ofHost(p *PowerCycle) {
	h, f := p.Host, p.Facts
	e.add(h.Mismatch != "", "%s", h.Mismatch)
	whose := "is that of the machine"
	if h.Consumer != "" {
		whose = "belongs to " + h.Consumer
	}
	e.add(h.Known && f.Host == powercycle.HostOurs, "BareMetalHost %s/%s %s", h.Namespace, h.Name, whose)
	e.add(h.Unhealthy && !f.Marked, "the host is marked as unhealthy, not by this remediation")
	e.add(h.Unhealthy && f.Marked, "the host is marked as unhealthy by this remediation")
}

var onOff = map[bool]string{true: "on", false: "off"}

func (e *evidence) ofPower(p *PowerCycle) {
	h, f := p.Host, p.Facts
	if !h.Known {
		return
	}
	e.add(true, "the host is %s (status.poweredOn)", onOff[f.PoweredOn])
	e.add(true, "desired power state: %s (spec.online)", onOff[f.Wanted])
	e.add(f.NoPowerOff, "the host can only be rebooted (spec.disablePowerOff)")
	e.add(h.Unmanaged != "", "its power is not managed now: %s", h.Unmanaged)
	e.add(h.Trouble != "", "the host has an error: %s", h.Trouble)
	e.add(f.KeptOff, "the host is kept powered off for this remediation (annotation %s%s)", infrav1.PowerOffAnnotationPrefix, h.KeptOffAs)
	e.add(f.RebootAsked && f.RebootPending, "the host is asked to reboot for this attempt, and has not done so")
	e.add(f.RebootAsked && !f.RebootPending, "the host has rebooted for this attempt")
	e.add(h.KeptOffBy != "", "the host is kept powered off by another client (annotation %s)", h.KeptOffBy)
	e.add(h.KeptOffFor != "", "the host is kept powered off for remediation %s", h.KeptOffFor)
}

func (e *evidence) ofNode(p *PowerCycle) {
	n, f := p.Node, p.Facts
	if n.Name == "" {
		e.add(true, "the machine has never had a node")
		return
	}
	e.add(n.Unseen != "" && !n.Answered, "node %s cannot be seen: %s", n.Name, n.Unseen)
	if n.Ready != "" {
		e.add(true, "node %s has Ready=%s", n.Name, n.Ready)
		e.add(n.Unhealthy != "", "%s", n.Unhealthy)
		e.add(n.Before != "" && n.BootID == n.Before, "node %s has not booted since its host was powered off (boot ID %s)", n.Name, n.BootID)
		e.add(n.Before != "" && n.BootID != n.Before, "node %s has booted since its host was powered off (boot ID %s)", n.Name, n.BootID)
	}
	e.add(n.Unseen == "" && n.Ready == "" && !n.Looked, "node %s does not exist", n.Name)
	if n.Looked {
		e.add(n.Deleting, "node %s is being deleted", n.Name)
		e.add(f.NodeMismatch, "node %s is not the machine's: it has providerID %q, and UID %s", n.Name, n.ProviderID, n.UID)
		e.add(!f.Fenced, "node %s is not fenced", n.Name)
		e.add(n.OutOfService, "node %s has the taint %s, %s", n.Name, infrav1.OutOfServiceTaintKey, n.whoseFence())
	}
	e.add(n.Count > 0, "on node %s are left: %s", n.Name, p.left())
	e.add(len(n.Idle) > 0, "not waited for, since no pod has or wants its volume: %s", strings.Join(n.Idle, ", "))
	e.add(n.Answered && n.Drained, "nothing is left on node %s that would have to move", n.Name)
	e.add(!n.Answered && f.Fencing, "node %s may be fenced by this remediation", n.Name)
}

func (n *NodeDetails) whoseFence() string {
	switch {
	case n.Ours:
		return "of this remediation"
	case n.Fence != "":
		return "of remediation " + n.Fence
	}
	return "put there by another client"
}
