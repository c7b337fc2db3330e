package machinehealthcheck

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/look"
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

// holds is everything that keeps the remediation of t from beginning, in the order in which a reconcile asks. An unhealthy machine without any
// has its remediation begun, or it is under way. granted says that it begins although others have to wait.
func holds(w *observed, s summary, t *target, granted bool) []look.Hold {
	if t.verdict.State == health.Healthy && !deleting(t.machine) {
		return nil // nothing is to begin
	}
	asked := []*look.Hold{leaving(t), overlapped(t), notActing(w), unknown(w, t), notDue(w, t)}
	if !w.inFlight(t) { // else it has begun, and the limits have counted it
		asked = append(asked, inPlace(t), powerCycled(w, t), notAllowed(w, s, t, granted), inTheWay(w, t), withoutTemplate(w), unusable(w, t))
	}
	var held []look.Hold
	for _, h := range asked {
		if h != nil {
			held = append(held, *h)
		}
	}
	return held
}

func leaving(t *target) *look.Hold {
	if !deleting(t.machine) {
		return nil
	}
	return &look.Hold{Reason: BeingDeleted, Text: "The machine is being deleted: there is nothing left to remediate", Ends: "it is gone"}
}

// inPlace is that t is being updated in place; nil if it is not, or if a person wants it remediated all the same.
func inPlace(t *target) *look.Hold {
	if !updating(t) {
		return nil
	}
	return &look.Hold{
		Reason: BeingUpdated, Ends: "its update is over",
		Text: "The machine is being updated in place (its condition Updating is True): it is left alone, unless a person marks it with the annotation " +
			clusterv1.RemediateMachineAnnotation,
	}
}

func overlapped(t *target) *look.Hold {
	if t.elder == "" {
		return nil
	}
	return &look.Hold{
		Reason: mendv1.OverlapReason, Text: fmt.Sprintf("MachineHealthCheck %s selects the machine too: that check is older and acts on it", t.elder),
		Person: "If this check is to act on it, change the selector of the other one",
	}
}

// notActing is why the check is not acted on; nil if it is.
func notActing(w *observed) *look.Hold {
	if w.stance == acting {
		return nil
	}
	_, because := standing(w)
	return &look.Hold{Reason: NotActing, Text: because, Person: handIt(w)}
}

// unknown is why t could not be judged; nil if it was.
func unknown(w *observed, t *target) *look.Hold {
	if t.verdict.State != health.Unknown {
		return nil
	}
	switch {
	case t.verdict.Gate == health.ControlPlaneNotInitialized:
		return &look.Hold{Reason: string(t.verdict.Gate), Text: fmt.Sprintf(
			"The control plane of Cluster %s is not initialized: machines that are not part of it are not judged before", w.cluster.Name),
			Ends: "the control plane of Cluster " + w.cluster.Name + " is initialized"}
	case t.verdict.Gate == health.InfrastructureNotReady:
		return &look.Hold{Reason: string(t.verdict.Gate), Text: fmt.Sprintf(
			"The infrastructure of Cluster %s is not ready: no machine is judged before", w.cluster.Name),
			Ends: "the infrastructure of Cluster " + w.cluster.Name + " is ready"}
	case w.reach.Status != metav1.ConditionTrue:
		return &look.Hold{Reason: w.reach.Reason, Text: w.reach.Message,
			Person: "See to the connection from the management cluster to the workload cluster"}
	case t.verdict.Doubted(health.NotSincePause):
		return awaitsClusterAPI(w)
	case deleting(t.machine):
		return nil // nobody looks for its node
	}
	return &look.Hold{Reason: NodeNotSeen, Text: fmt.Sprintf("Node %s is not in the cache, and the workload cluster could not be asked whether it exists",
		t.machine.Status.NodeRef.Name)}
}

// awaitsClusterAPI is what it means that what is known of a machine was written before a pause. There is no deadline: as long as core does not
// run nobody knows better, and the machine's node is judged all the same.
func awaitsClusterAPI(w *observed) *look.Hold {
	h := &look.Hold{Reason: AwaitsClusterAPI, Ends: "Cluster API sets the condition Paused of the machine to False",
		Text: "It waits for Cluster API to look at the machine again after the pause: what is said of it was written before"}
	if w.stance > paused {
		h.Text += ". If that takes longer than a minute, see whether Cluster API core runs"
	}
	return h
}

// notDue is until when t is put up with; nil if it is unhealthy, or if nothing will come due.
func notDue(w *observed, t *target) *look.Hold {
	if t.verdict.State == health.Unhealthy || t.verdict.Recheck.IsZero() {
		if t.verdict.State == health.Starting && t.verdict.Doubted(health.NotSincePause) {
			return awaitsClusterAPI(w)
		}
		if t.verdict.State == health.Starting && t.verdict.Recheck.IsZero() {
			return &look.Hold{Reason: WithinTimeout, Text: "The first node is waited for without end: spec.checks.nodeStartupTimeoutSeconds is 0"}
		}
		return nil
	}
	for _, f := range t.verdict.Findings {
		if f.Due.Equal(t.verdict.Recheck) {
			return &look.Hold{Reason: WithinTimeout, Text: fmt.Sprintf("It is put up with for %s: %s", limitOf(f), f.Detail), Until: f.Due}
		}
	}
	return nil
}

// limitOf is how long f is put up with, and from when on if that is not when its condition turned.
func limitOf(f health.Finding) string {
	if late := look.Late(f.Late); late != "" {
		return fmt.Sprintf("%s, counted from %s", f.Limit, late)
	}
	return f.Limit.String()
}

// powerCycled is the power cycle that t is left to; nil if there is none.
func powerCycled(w *observed, t *target) *look.Hold {
	switch {
	case deleting(t.machine):
		return nil
	case t.cycle != nil:
		h := &look.Hold{
			Reason: RemediationUnderWay, Text: cycleText(t), Until: takenBy(t.cycle), Ends: fmt.Sprintf("%s %s is over", t.cycle.Kind, t.cycle.Name),
		}
		if !t.cycle.DeletionTimestamp.IsZero() {
			h.Person = fmt.Sprintf("If it is not over soon, see why the finalizer of %s %s, which is being deleted, stays", t.cycle.Kind, t.cycle.Name)
		}
		return h
	case w.cyclesUnread(t):
		return &look.Hold{
			Reason: NotRead, Text: "It cannot be told which power cycles are under way", Until: w.remedy.cyclesUnread,
			Ends: "they can be read, or " + taken.String() + " after that first failed",
		}
	}
	return nil
}

// inTheWay is why no request can be made for t in particular; nil if one can.
func inTheWay(w *observed, t *target) *look.Hold {
	if t.request == nil || w.ownership(t) != Foreign {
		return nil
	}
	return &look.Hold{Reason: RequestInTheWay, Text: foreignRequest(w, t),
		Person: "Find out who made it and whether it is still needed; when it is gone, one is made"}
}

// notAllowed is why the limits, and what is under way, keep t from being remediated; nil if they do not. Whoever waits goes before one that is
// not due yet.
func notAllowed(w *observed, s summary, t *target, granted bool) *look.Hold {
	ahead := s.population.InFlight + s.population.Waiting
	if w.startable(t) {
		ahead--
	}
	switch c := allowed(w, s); {
	case c.Status == metav1.ConditionFalse && c.Reason == mendv1.InvalidLimitReason:
		field, _, _ := strings.Cut(s.invalid.Error(), ": ") // limitsOf names it first
		return &look.Hold{Reason: c.Reason, Text: c.Message, Person: "Correct " + field}
	case s.grant.Reason == budget.TooMany:
		return &look.Hold{Reason: c.Reason, Text: c.Message, Ends: "no more than " + notHealthy(max(s.limits.AtMost, 0), s.population)}
	case s.grant.Reason == budget.TooFew:
		return &look.Hold{Reason: c.Reason, Text: c.Message, Ends: "at least " + notHealthy(s.limits.AtLeast, s.population)}
	case s.grant.Reason == budget.CoolingDown:
		over := "the cooldown is over, at " + s.storm.Recheck.UTC().Format(time.RFC3339)
		return &look.Hold{Reason: c.Reason, Text: c.Message, Until: s.storm.Recheck, Ends: over}
	case s.limits.InFlight == 0:
		return &look.Hold{Reason: c.Reason, Text: c.Message, Person: fmt.Sprintf("When it is to go on, take the annotation %s off the check, or raise it",
			mendv1.MaxInFlightAnnotation)}
	case s.limits.InFlight != budget.Unlimited && ahead >= s.limits.InFlight && !granted:
		return &look.Hold{Reason: string(budget.AtWork), Text: queue(s), Ends: "a remediation that is under way is over"}
	}
	return nil
}

// notHealthy is how many targets have to be not healthy for something, and how many are.
func notHealthy(wanted int, p budget.Population) string {
	targets := "targets are"
	if wanted == 1 {
		targets = "target is"
	}
	return fmt.Sprintf("%d %s not healthy; %d %s", wanted, targets, p.NotHealthy(), look.Are(p.NotHealthy()))
}

// withoutTemplate is why no request can be made for anybody; nil if one can, or if none has to be.
func withoutTemplate(w *observed) *look.Hold {
	switch {
	case w.remedy.unread:
		return notRead(w)
	case w.remedy.refused:
		return &look.Hold{Reason: w.remedy.lacks(), Text: noTemplate(w), Person: w.remedy.mend}
	case w.remedy.missing != "":
		return &look.Hold{
			Reason: w.remedy.lacks(), Text: noTemplate(w),
			Person: cmp.Or(w.remedy.mend, "Make it") + ", or name another template in spec.remediation.templateRef",
		}
	case w.remedy.external && !w.remedy.known:
		return &look.Hold{Reason: NotRead, Text: "It cannot be told which remediation requests exist"}
	}
	return nil
}

// notRead is what it means that whoever looks may not read the template or the requests. What the controller makes of them stands in the check.
func notRead(w *observed) *look.Hold {
	otherwise := "or name another template in spec.remediation.templateRef"
	if c := conditionOf(w.check, mendv1.RemediationTemplateAvailable); c != nil && c.Status == metav1.ConditionFalse {
		return &look.Hold{Reason: c.Reason, Text: c.Message, Person: "See to that, " + otherwise}
	}
	h := look.RemedyUnread(w.remedy.kind.Kind)
	return &h
}

// unusable is why no request for t can be made from the template, although that is there; nil if one can.
func unusable(w *observed, t *target) *look.Hold {
	if !w.remedy.external || !w.remedy.known || w.remedy.missing != "" || t.request != nil {
		return nil
	}
	if _, err := w.requestFor(t.machine); err != nil {
		return &look.Hold{
			Reason: clusterv1.MachineExternallyRemediatedRemediationRequestCreationFailedReason, Text: err.Error(),
			Person: "Mend the template, or name another one in spec.remediation.templateRef",
		}
	}
	return nil
}

// handIt is what a person can do for a check to be acted on; empty if nothing.
func handIt(w *observed) string {
	_, annotated := w.check.Annotations[clusterv1.PausedAnnotation]
	annotated = annotated && !claimed(w.check)
	unpause := fmt.Sprintf("set spec.paused of Cluster %s to false", w.cluster.Name)
	switch {
	case actsInCore(w):
		return fmt.Sprintf("Hand it to kubemend, if it is to act: kubectl mend claim mhc/%s -n %s", w.check.Name, w.check.Namespace)
	case w.stance == paused && annotated && ptr.Deref(w.cluster.Spec.Paused, false):
		return fmt.Sprintf("When it is to go on, take the annotation %s off the check, and %s", clusterv1.PausedAnnotation, unpause)
	case w.stance == paused && annotated:
		return fmt.Sprintf("When it is to go on, take the annotation %s off the check", clusterv1.PausedAnnotation)
	case w.stance == paused:
		return "When it is to go on, " + unpause
	}
	return ""
}
