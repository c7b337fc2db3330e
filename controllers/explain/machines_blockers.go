package explain

import (
	"cmp"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
)

// The reasons of blockers that no condition has.
const (
	// NotActing is that of a check that kubemend does not act on.
	NotActing = "NotActing"
	// MachineBeingDeleted is that of a machine that is being deleted.
	MachineBeingDeleted = "MachineBeingDeleted"
	// MachineBeingUpdated is that of a machine that is being updated in place.
	MachineBeingUpdated = "MachineBeingUpdated"
	// NodeNotSeen is that of a machine whose node cannot be asked for.
	NodeNotSeen = "NodeNotSeen"
	// AwaitsClusterAPI is that of a machine that Cluster API has not reconciled since a pause.
	AwaitsClusterAPI = "AwaitsClusterAPI"
	// WithinTimeout is that of a machine whose timeout has not expired.
	WithinTimeout = "WithinTimeout"
	// RemediationUnderWay is that of a power cycle of the machine that the check did not request.
	RemediationUnderWay = "RemediationUnderWay"
	// RequestInTheWay is that of a request for the machine that is not this check's.
	RequestInTheWay = "RequestInTheWay"
	// NotRead is that of requests, or a template, that cannot be read.
	NotRead = "NotRead"
)

// blockersOf renders what blocks the remediation of the machine of d.
func blockersOf(f *machines.Facts, p *machines.Plan, d *machines.Decision) []Blocker {
	if d.Verdict.State == health.Healthy && !d.Target.Deleting {
		return nil // nothing is to start
	}
	var all []Blocker
	for _, b := range d.Blockers {
		if b.Reason != machines.NotUnhealthy {
			all = append(all, blockerOf(f, p, d, b))
		}
	}
	return all
}

// blockerOf is b with its sentence.
func blockerOf(f *machines.Facts, p *machines.Plan, d *machines.Decision, b machines.Blocker) Blocker {
	switch b.Reason {
	case machines.MachineDeleting:
		return Blocker{Reason: MachineBeingDeleted, Text: "The machine is being deleted: there is nothing left to remediate",
			EndsWhen: "it is gone"}
	case machines.OlderCheckActs:
		return Blocker{
			Reason: mendv1.OverlapReason, Detail: "older check " + d.Target.OlderCheck,
			Text:   fmt.Sprintf("MachineHealthCheck %s selects the machine too: that check is older and acts on it", d.Target.OlderCheck),
			Fix:    "If this check is to act on it, change the selector of the other one",
			Object: Ref{Kind: "MachineHealthCheck", Namespace: f.About.Namespace, Name: d.Target.OlderCheck},
		}
	case machines.NotActing:
		_, because := MachineMode(f)
		return Blocker{Reason: NotActing, Text: because, Fix: Enable(f), Detail: notActingDetail(f)}
	case machines.ControlPlaneNotInitialized:
		return Blocker{
			Reason: string(b.Reason), EndsWhen: "the control plane of Cluster " + f.About.Cluster + " is initialized",
			Text: fmt.Sprintf("The control plane of Cluster %s is not initialized: machines that are not part of it are not judged before",
				f.About.Cluster),
		}
	case machines.InfrastructureNotReady:
		return Blocker{
			Reason: string(b.Reason), EndsWhen: "the infrastructure of Cluster " + f.About.Cluster + " is ready",
			Text: fmt.Sprintf("The infrastructure of Cluster %s is not ready: no machine is judged before", f.About.Cluster),
		}
	case machines.ClusterUnreachable:
		return Blocker{Reason: p.Reach.Reason, Text: CheckMessage(f, p, p.Reach),
			Fix: "See to the connection from the management cluster to the workload cluster"}
	case machines.AwaitsClusterAPI:
		return awaitsClusterAPI(f)
	case machines.NodeNotSeen:
		return nodeNotSeen(d)
	case machines.WithinTimeout:
		return withinTimeout(d, b)
	case machines.MachineUpdating:
		return Blocker{
			Reason: MachineBeingUpdated, EndsWhen: "its update is over",
			Text: "The machine is being updated in place (its condition Updating is True): it is left alone, " +
				"unless a person marks it with the annotation " + clusterv1.RemediateMachineAnnotation,
		}
	case machines.FailureContradicted:
		return failureContradicted(f, d, b)
	}
	return limitBlocker(f, p, d, b)
}

// limitBlocker is blockerOf for what forbids to begin one more remediation now.
func limitBlocker(f *machines.Facts, p *machines.Plan, d *machines.Decision, b machines.Blocker) Blocker {
	reason, text := RemediationAllowed(f, p)
	switch b.Reason {
	case machines.PowerCycleInProgress:
		return powerCycled(f, d, b)
	case machines.PowerCyclesUnread:
		return Blocker{
			Reason: NotRead, Text: "Which power cycles are in progress is not known", Until: b.Until,
			EndsWhen: "they can be read, or " + machines.CyclesUnreadFor.String() + " after that first failed",
		}
	case machines.JustSeen:
		return Blocker{
			Reason: string(b.Reason), Text: "It may be the first of many machines that fail, or recover, in the same moment",
			Until:    b.Until,
			EndsWhen: "the changes that come with it have been seen",
		}
	case machines.InvalidLimit:
		return Blocker{Reason: reason, Text: text, Fix: "Correct " + f.About.InvalidField, Detail: f.About.InvalidField}
	case machines.TooManyUnhealthy:
		return Blocker{Reason: reason, Text: text, EndsWhen: "at most " + notHealthy(max(f.Limits.AtMost, 0), p.Population)}
	case machines.TooFewUnhealthy:
		return Blocker{Reason: reason, Text: text, EndsWhen: "at least " + notHealthy(f.Limits.AtLeast, p.Population)}
	case machines.CoolingDown:
		return Blocker{Reason: reason, Text: text, Until: b.Until, EndsWhen: "the cooldown is over"}
	case machines.NoneAtOnce:
		return Blocker{Reason: reason, Text: text, Detail: mendv1.MaxInFlightAnnotation,
			Fix: fmt.Sprintf("When it is to go on, remove the annotation %s from the check, or raise it", mendv1.MaxInFlightAnnotation)}
	case machines.RemediationsInProgress:
		return Blocker{
			Reason: string(b.Reason), Text: queue(f, p), EndsWhen: "a remediation that is in flight is over",
			Detail: fmt.Sprintf("%d of at most %d in flight", p.Population.InFlight+p.Grant.Start, f.Limits.InFlight),
		}
	case machines.QueueUnread:
		return Blocker{
			Reason: string(machines.QueueUnread),
			Text:   "Its place in the queue of remediations is not known, as the other machines were not read",
			Fix:    "Ask again: explain the check itself, which reads them all",
		}
	}
	return requestBlocker(f, d, b)
}

// requestBlocker is blockerOf for what a remediation is begun with: the template, the request, a spare host.
func requestBlocker(f *machines.Facts, d *machines.Decision, b machines.Blocker) Blocker {
	switch b.Reason {
	case machines.RequestInTheWay:
		return Blocker{
			Reason: RequestInTheWay, Text: ForeignRequest(f, d.Target), Detail: f.Template.Kind + " " + d.Target.RequestFacts.Name,
			Object: Ref{Kind: f.Template.Kind, Namespace: f.About.Namespace, Name: d.Target.RequestFacts.Name},
			Fix:    "Find out who made it and whether it is still needed; when it is gone, one is made",
		}
	case machines.TemplateUnread:
		if c := &f.About.Template; c.Status == "False" { // what the controller makes of it, which the reader may not read
			return Blocker{Reason: c.Reason, Text: c.Message, Fix: "See to that, or name another template in spec.remediation.templateRef"}
		}
		return TemplatesUnread(f.Template.Kind)
	case machines.TemplateRefused:
		return Blocker{Reason: mendv1.TemplateRefusedReason, Text: NoTemplate(f), Fix: f.Template.Fix, Detail: templateOf(f),
			Object: templateRef(f)}
	case machines.TemplateMissing:
		return Blocker{
			Reason: mendv1.TemplateNotFoundReason, Text: NoTemplate(f), Detail: templateOf(f), Object: templateRef(f),
			Fix: cmp.Or(f.Template.Fix, "Make it") + ", or name another template in spec.remediation.templateRef",
		}
	case machines.RequestsUnread:
		return Blocker{Reason: NotRead, Text: "Which remediation requests exist is not known"}
	case machines.TemplateUnusable:
		return Blocker{
			Reason: clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason, Text: d.Target.UnusableWhy,
			Object: templateRef(f),
			Fix:    "Fix the template, or name another one in spec.remediation.templateRef",
		}
	case machines.NoSpareHost, machines.SpareHostsUnread:
		return noSpareHost(f, d, b)
	}
	return Blocker{}
}

// notActingDetail is why kubemend does not act on a check, in a few words.
func notActingDetail(f *machines.Facts) string {
	c := &f.About
	switch {
	case c.Deleting:
		return "check being deleted"
	case c.WatchFilter != "":
		return clusterv1.WatchLabel + " differs"
	case c.ClusterDeleting:
		return "Cluster being deleted"
	case c.ClusterPaused && c.PausedBy != nil:
		return "Cluster and check paused"
	case c.ClusterPaused:
		return "Cluster paused"
	case c.PausedBy != nil:
		return "check paused"
	}
	return "check not claimed"
}

// awaitsClusterAPI is what it means that what is known of a machine was written before a pause. There is no deadline: as long as core does not
// run there is no newer state, and the machine's node is judged all the same.
func awaitsClusterAPI(f *machines.Facts) Blocker {
	b := Blocker{Reason: AwaitsClusterAPI, EndsWhen: "Cluster API sets the condition Paused of the machine to False",
		Text: "It waits for Cluster API to reconcile the machine after the pause: its conditions were written before"}
	if f.Mode >= machines.Observed {
		b.Text += ". If that takes longer than a minute, see whether Cluster API core runs"
	}
	return b
}

func nodeNotSeen(d *machines.Decision) Blocker {
	name := d.Target.Health.NodeName
	if other := d.Target.Health.Other; other.Name != "" {
		return Blocker{Reason: NodeNotSeen, Detail: "Node " + other.Name, Text: otherNode(other)}
	}
	return Blocker{Reason: NodeNotSeen, Detail: "Node " + name,
		Text: fmt.Sprintf("Node %s is not in the cache, and the workload cluster could not be asked whether it exists", name)}
}

func withinTimeout(d *machines.Decision, b machines.Blocker) Blocker {
	for _, f := range d.Verdict.Findings {
		if !b.Until.IsZero() && f.Due.Equal(b.Until) {
			return Blocker{Reason: WithinTimeout, Text: fmt.Sprintf("Its timeout of %s has not expired: %s", timeoutOf(f), observed(f)), Until: f.Due}
		}
	}
	return Blocker{Reason: WithinTimeout, Text: noStartupTimeout, Detail: "no start-up timeout"}
}

// noStartupTimeout says that a machine is given any time to get its first node.
const noStartupTimeout = "There is no start-up timeout: spec.checks.nodeStartupTimeoutSeconds is 0"

// timeoutOf is the timeout of f, and from when on if that is not when its condition turned.
func timeoutOf(f health.Finding) string {
	if late := SinceReason(f.Late); late != "" {
		return fmt.Sprintf("%s, counted from %s", f.Limit, late)
	}
	return f.Limit.String()
}

func powerCycled(f *machines.Facts, d *machines.Decision, b machines.Blocker) Blocker {
	cycle := d.Target.Cycle
	is := Blocker{
		Reason: RemediationUnderWay, Detail: cycle.Kind + " " + cycle.Name, Until: b.Until, EndsWhen: fmt.Sprintf("%s %s is over", cycle.Kind, cycle.Name),
		Object: Ref{Kind: cycle.Kind, Namespace: f.About.Namespace, Name: cycle.Name},
		Text:   fmt.Sprintf("%s %s is under way for the machine: nothing else is begun before it is over", cycle.Kind, cycle.Name),
	}
	if cycle.Deleting {
		is.Fix = fmt.Sprintf("If it is not over soon, see why the finalizer of %s %s, which is being deleted, stays", cycle.Kind, cycle.Name)
	}
	return is
}

// failureContradicted says why a failure is not believed, and what a person has to look at.
func failureContradicted(f *machines.Facts, d *machines.Decision, b machines.Blocker) Blocker {
	return Blocker{
		Reason: string(b.Reason), Detail: "Node " + d.Target.Health.NodeName + " is Ready",
		EndsWhen: "the capacity of " + cmp.Or(f.Capacity.Target, "the machine before") + " is back",
		Text:     contradicted, Fix: whyContradicted,
	}
}

const (
	contradicted = "Its node is Ready, which contradicts the failure that its provider once wrote: " +
		"of such machines one is remediated at a time, the next when the capacity of the one before is back"
	whyContradicted = "See why the provider wrote it, such as a wrong credential. If the machine is to be replaced all the same, " +
		"mark it with the annotation " + clusterv1.RemediateMachineAnnotation
)

// notHealthy is how many targets have to be not healthy for something, of how many, and how many are.
func notHealthy(wanted int, p budget.Population) string {
	return fmt.Sprintf("%d of %d %s not healthy (now %d)", wanted, p.Total(), Are(wanted), p.NotHealthy())
}

// templateRef is the template of the check; zero if the check names none.
func templateRef(f *machines.Facts) Ref {
	if f.Template.Name == "" {
		return Ref{}
	}
	return Ref{Kind: f.Template.TemplateKind, Namespace: f.About.Namespace, Name: f.Template.Name}
}

func templateOf(f *machines.Facts) string {
	return strings.TrimSpace(f.Template.TemplateKind + " " + f.Template.Name)
}

// NoTemplate says why no request can be made.
func NoTemplate(f *machines.Facts) string { return "No request can be made: " + f.Template.Missing }

// ForeignRequest says why none is made for t, for which one exists.
func ForeignRequest(f *machines.Facts, t *machines.Target) string {
	if t.RequestFacts.ForOther {
		return fmt.Sprintf("%s %s exists and is for another Machine: it does not name the UID %s of this one", f.Template.Kind, t.RequestFacts.Name, t.ID)
	}
	return fmt.Sprintf("%s %s exists and was not made by this MachineHealthCheck", f.Template.Kind, t.RequestFacts.Name)
}

// Enable is what a person can do for a check to be acted on; empty if nothing.
func Enable(f *machines.Facts) string {
	c := &f.About
	unpause := fmt.Sprintf("set spec.paused of Cluster %s to false", c.Cluster)
	switch {
	case actsInCore(f):
		return fmt.Sprintf("If kubemend is to act on it, claim the check: kubectl mend claim mhc/%s -n %s", c.Name, c.Namespace)
	case f.Mode != machines.Paused:
		return ""
	case c.PausedBy != nil && c.ClusterPaused:
		return fmt.Sprintf("When it is to go on, remove the annotation %s from the check, and %s", clusterv1.PausedAnnotation, unpause)
	case c.PausedBy != nil:
		return fmt.Sprintf("When it is to go on, remove the annotation %s from the check", clusterv1.PausedAnnotation)
	}
	return "When it is to go on, " + unpause
}

// actsInCore reports whether it is Cluster API core that acts on the check.
func actsInCore(f *machines.Facts) bool {
	return f.Mode == machines.Observed || f.Mode == machines.Ignored && !f.About.ClusterDeleting
}
