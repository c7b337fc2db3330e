package machinehealthcheck

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// The reasons of what holds a machine back and has no condition that says so.
const (
	// NotActing is that of a check that kubemend does not act on.
	NotActing = "NotActing"
	// BeingDeleted is that of a machine that is on its way out.
	BeingDeleted = "MachineBeingDeleted"
	// BeingUpdated is that of a machine that is being updated in place.
	BeingUpdated = "MachineBeingUpdated"
	// NodeNotSeen is that of a machine whose node cannot be asked for.
	NodeNotSeen = "NodeNotSeen"
	// AwaitsClusterAPI is that of a machine that Cluster API has not looked at since a pause.
	AwaitsClusterAPI = "AwaitsClusterAPI"
	// WithinTimeout is that of a machine whose time has not run out.
	WithinTimeout = "WithinTimeout"
	// RemediationUnderWay is that of a power cycle of the machine that the check did not ask for.
	RemediationUnderWay = "RemediationUnderWay"
	// RequestInTheWay is that of a request for the machine that is not this check's.
	RequestInTheWay = "RequestInTheWay"
	// NotRead is that of requests, or a template, that cannot be read.
	NotRead = "NotRead"
)

// holds renders what blocks the remediation of t.
func holds(w *observed, s plan, t *target) []explain.Blocker {
	if s.of(t).Verdict.State == health.Healthy && !deleting(t.machine) {
		return nil // nothing is to begin
	}
	var held []explain.Blocker
	for _, b := range s.of(t).Blockers {
		if b.Reason != machines.NotUnhealthy {
			held = append(held, rendered[b.Reason](w, s, t, b))
		}
	}
	return held
}

// rendered are the sentences for blockers.
var rendered = map[machines.Reason]func(*observed, plan, *target, machines.Blocker) explain.Blocker{
	machines.MachineDeleting:            isDeleted,
	machines.OlderCheckActs:             overlapped,
	machines.NotActing:                  notActing,
	machines.ControlPlaneNotInitialized: notInitialized,
	machines.InfrastructureNotReady:     infrastructureNotReady,
	machines.ClusterUnreachable:         outOfReach,
	machines.AwaitsClusterAPI:           awaitsClusterAPI,
	machines.NodeNotSeen:                nodeNotSeen,
	machines.WithinTimeout:              withinTimeout,
	machines.MachineUpdating:            inPlace,
	machines.PowerCycleInProgress:       powerCycled,
	machines.PowerCyclesUnread:          cyclesUnread,
	machines.JustSeen:                   justSeen,
	machines.InvalidLimit:               invalidLimit,
	machines.TooManyUnhealthy:           tooMany,
	machines.TooFewUnhealthy:            tooFew,
	machines.CoolingDown:                coolingDown,
	machines.NoneAtOnce:                 noneAtOnce,
	machines.RemediationsInProgress:     queued,
	machines.QueueUnread:                queueUnread,
	machines.RequestInTheWay:            inTheWay,
	machines.TemplateUnread:             templateUnread,
	machines.TemplateRefused:            templateRefused,
	machines.TemplateMissing:            templateMissing,
	machines.RequestsUnread:             requestsUnread,
	machines.TemplateUnusable:           templateUnusable,
}

func isDeleted(*observed, plan, *target, machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: BeingDeleted, Text: "The machine is being deleted: there is nothing left to remediate", Ends: "it is gone"}
}

func overlapped(_ *observed, _ plan, t *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: mendv1.OverlapReason, Text: fmt.Sprintf("MachineHealthCheck %s selects the machine too: that check is older and acts on it", t.older),
		Person: "If this check is to act on it, change the selector of the other one",
	}
}

func notActing(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	_, because := actor(w)
	return explain.Blocker{Reason: NotActing, Text: because, Person: handIt(w)}
}

func notInitialized(w *observed, _ plan, _ *target, b machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: string(b.Reason), Ends: "the control plane of Cluster " + w.cluster.Name + " is initialized",
		Text: fmt.Sprintf("The control plane of Cluster %s is not initialized: machines that are not part of it are not judged before", w.cluster.Name),
	}
}

func infrastructureNotReady(w *observed, _ plan, _ *target, b machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: string(b.Reason), Ends: "the infrastructure of Cluster " + w.cluster.Name + " is ready",
		Text: fmt.Sprintf("The infrastructure of Cluster %s is not ready: no machine is judged before", w.cluster.Name),
	}
}

func outOfReach(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: w.reach.Reason, Text: w.reach.Message, Person: "See to the connection from the management cluster to the workload cluster"}
}

// awaitsClusterAPI is what it means that what is known of a machine was written before a pause. There is no deadline: as long as core does not
// run nobody knows better, and the machine's node is judged all the same.
func awaitsClusterAPI(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	h := explain.Blocker{Reason: AwaitsClusterAPI, Ends: "Cluster API sets the condition Paused of the machine to False",
		Text: "It waits for Cluster API to look at the machine again after the pause: what is said of it was written before"}
	if w.mode > paused {
		h.Text += ". If that takes longer than a minute, see whether Cluster API core runs"
	}
	return h
}

func nodeNotSeen(_ *observed, _ plan, t *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: NodeNotSeen, Text: fmt.Sprintf("Node %s is not in the cache, and the workload cluster could not be asked whether it exists",
		t.machine.Status.NodeRef.Name)}
}

func withinTimeout(_ *observed, p plan, t *target, b machines.Blocker) explain.Blocker {
	for _, f := range p.of(t).Verdict.Findings {
		if !b.Until.IsZero() && f.Due.Equal(b.Until) {
			return explain.Blocker{Reason: WithinTimeout, Text: fmt.Sprintf("Its timeout of %s has not expired: %s", limitOf(f), f.Detail), Until: f.Due}
		}
	}
	return explain.Blocker{Reason: WithinTimeout, Text: "The first node is waited for without end: spec.checks.nodeStartupTimeoutSeconds is 0"}
}

// limitOf is the timeout of f, and from when on if that is not when its condition turned.
func limitOf(f health.Finding) string {
	if late := explain.Late(f.Late); late != "" {
		return fmt.Sprintf("%s, counted from %s", f.Limit, late)
	}
	return f.Limit.String()
}

func inPlace(*observed, plan, *target, machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: BeingUpdated, Ends: "its update is over",
		Text: "The machine is being updated in place (its condition Updating is True): it is left alone, unless a person marks it with the annotation " +
			clusterv1.RemediateMachineAnnotation,
	}
}

func powerCycled(_ *observed, _ plan, t *target, b machines.Blocker) explain.Blocker {
	h := explain.Blocker{Reason: RemediationUnderWay, Text: cycleText(t), Until: b.Until, Ends: fmt.Sprintf("%s %s is over", t.cycle.Kind, t.cycle.Name)}
	if !t.cycle.DeletionTimestamp.IsZero() {
		h.Person = fmt.Sprintf("If it is not over soon, see why the finalizer of %s %s, which is being deleted, stays", t.cycle.Kind, t.cycle.Name)
	}
	return h
}

func cyclesUnread(_ *observed, _ plan, _ *target, b machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: NotRead, Text: "It cannot be told which power cycles are under way", Until: b.Until,
		Ends: "they can be read, or " + taken.String() + " after that first failed",
	}
}

func justSeen(_ *observed, _ plan, _ *target, b machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: string(b.Reason), Text: "It may be the first of many machines that fail, or recover, in the same moment", Until: b.Until,
		Ends: "the changes that come with it have been seen",
	}
}

func invalidLimit(w *observed, s plan, _ *target, _ machines.Blocker) explain.Blocker {
	c := allowed(w, s)
	return explain.Blocker{Reason: c.Reason, Text: c.Message, Person: "Correct " + s.invalid.Field}
}

func tooMany(w *observed, s plan, _ *target, _ machines.Blocker) explain.Blocker {
	c := allowed(w, s)
	return explain.Blocker{Reason: c.Reason, Text: c.Message, Ends: "no more than " + notHealthy(max(s.limits.AtMost, 0), s.Population)}
}

func tooFew(w *observed, s plan, _ *target, _ machines.Blocker) explain.Blocker {
	c := allowed(w, s)
	return explain.Blocker{Reason: c.Reason, Text: c.Message, Ends: "at least " + notHealthy(s.limits.AtLeast, s.Population)}
}

func coolingDown(w *observed, s plan, _ *target, b machines.Blocker) explain.Blocker {
	c := allowed(w, s)
	return explain.Blocker{Reason: c.Reason, Text: c.Message, Until: b.Until, Ends: "the cooldown is over, at " + b.Until.UTC().Format(time.RFC3339)}
}

func noneAtOnce(w *observed, s plan, _ *target, _ machines.Blocker) explain.Blocker {
	c := allowed(w, s)
	return explain.Blocker{Reason: c.Reason, Text: c.Message, Person: fmt.Sprintf("When it is to go on, take the annotation %s off the check, or raise it",
		mendv1.MaxInFlightAnnotation)}
}

func queued(_ *observed, s plan, _ *target, b machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: string(b.Reason), Text: queue(s), Ends: "a remediation that is under way is over"}
}

func queueUnread(*observed, plan, *target, machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: string(machines.QueueUnread), Text: "Its place in the queue of remediations is not known, as the other machines were not read",
		Person: "Ask again: explain the check itself, which reads them all",
	}
}

// notHealthy is how many targets have to be not healthy for something, and how many are.
func notHealthy(wanted int, p budget.Population) string {
	targets := "targets are"
	if wanted == 1 {
		targets = "target is"
	}
	return fmt.Sprintf("%d %s not healthy; %d %s", wanted, targets, p.NotHealthy(), explain.Are(p.NotHealthy()))
}

func inTheWay(w *observed, _ plan, t *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: RequestInTheWay, Text: foreignRequest(w, t),
		Person: "Find out who made it and whether it is still needed; when it is gone, one is made"}
}

// templateUnread is what it means that the reader may not read the template or the requests. What the controller makes of them stands in the check.
func templateUnread(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	if c := conditionOf(w.check, mendv1.RemediationTemplateAvailable); c != nil && c.Status == metav1.ConditionFalse {
		return explain.Blocker{Reason: c.Reason, Text: c.Message, Person: "See to that, or name another template in spec.remediation.templateRef"}
	}
	return explain.TemplatesUnread(w.remediation.kind.Kind)
}

func templateRefused(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: w.remediation.lacks(), Text: noTemplate(w), Person: w.remediation.mend}
}

func templateMissing(w *observed, _ plan, _ *target, _ machines.Blocker) explain.Blocker {
	return explain.Blocker{
		Reason: w.remediation.lacks(), Text: noTemplate(w),
		Person: cmp.Or(w.remediation.mend, "Make it") + ", or name another template in spec.remediation.templateRef",
	}
}

func requestsUnread(*observed, plan, *target, machines.Blocker) explain.Blocker {
	return explain.Blocker{Reason: NotRead, Text: "It cannot be told which remediation requests exist"}
}

func templateUnusable(w *observed, _ plan, t *target, _ machines.Blocker) explain.Blocker {
	_, err := w.requestFor(t.machine)
	return explain.Blocker{
		Reason: clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason, Text: err.Error(),
		Person: "Mend the template, or name another one in spec.remediation.templateRef",
	}
}

// handIt is what a person can do for a check to be acted on; empty if nothing.
func handIt(w *observed) string {
	_, annotated := w.check.Annotations[clusterv1.PausedAnnotation]
	annotated = annotated && !claimed(w.check)
	unpause := fmt.Sprintf("set spec.paused of Cluster %s to false", w.cluster.Name)
	switch {
	case actsInCore(w):
		return fmt.Sprintf("Hand it to kubemend, if it is to act: kubectl mend claim mhc/%s -n %s", w.check.Name, w.check.Namespace)
	case w.mode == paused && annotated && ptr.Deref(w.cluster.Spec.Paused, false):
		return fmt.Sprintf("When it is to go on, take the annotation %s off the check, and %s", clusterv1.PausedAnnotation, unpause)
	case w.mode == paused && annotated:
		return fmt.Sprintf("When it is to go on, take the annotation %s off the check", clusterv1.PausedAnnotation)
	case w.mode == paused:
		return "When it is to go on, " + unpause
	}
	return ""
}
