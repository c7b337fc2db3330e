package machinehealthcheck

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/explain"
)

// nextOf is the next thing that happens to t, of which is was said, or what a person has to do.
func nextOf(w *observed, t *target, d *machines.Decision, is *explain.Target) explain.Step {
	switch {
	case (is.State == health.Unhealthy || is.State == health.Unknown) && deleting(t.machine):
		return explain.Step{Text: "nothing, until it is gone"}
	case is.Begins || is.InFlight:
		return begunNext(w, t, is)
	case is.State == health.Healthy:
		return explain.Step{}
	}
	if at := expires(d); !at.IsZero() {
		return comesDue(w, t, d, is, at)
	}
	if who := actsInstead(w, t); who != "" && is.State == health.Unhealthy {
		return explain.Step{Text: who + " acts on it"}
	}
	for i := range is.Blockers {
		if h := &is.Blockers[i]; h.Person != "" && (h.Reason != NotActing || !actsInCore(w)) {
			return explain.Step{Text: h.Person, Person: true}
		}
	}
	return nothingUntil(is.Blockers)
}

// nothingUntil says until when nothing happens.
func nothingUntil(holds []explain.Blocker) explain.Step {
	if len(holds) == 0 {
		return explain.Step{}
	}
	return explain.Step{Text: "nothing, " + until(&holds[0])}
}

// begunNext is what happens next to t, whose remediation begins or has begun.
func begunNext(w *observed, t *target, is *explain.Target) explain.Step {
	switch {
	case is.Begins && !w.remediation.external && metav1.GetControllerOf(t.machine) == nil:
		return ownerless
	case is.Begins:
		return explain.Step{At: w.now, Text: "kubemend " + is.Would}
	case w.remediation.unread && !OwnerAsked(t.machine):
		return explain.Step{Text: fmt.Sprintf("its %s goes on, which could not be read with your rights", w.remediation.kind.Kind)}
	case t.request == nil || OwnerAsked(t.machine): // if there is a request, the machine was handed over
		return byOwner(t.machine)
	}
	return explain.Step{Text: fmt.Sprintf("%s goes on; the request is deleted as soon as the machine is healthy", is.Underway[0])}
}

// ownerless is what there is to do about a machine that its owner is asked to replace and that has none.
var ownerless = explain.Step{Text: "it has no owner that could replace it: delete it by hand, or give the check a template", Person: true}

// byOwner is what the owner of m, which was asked to replace it, does next, by what it has said so far. (Cluster API: the owners of all kinds
// have the same reasons.)
func byOwner(m *clusterv1.Machine) explain.Step {
	owner := metav1.GetControllerOf(m)
	if owner == nil {
		return ownerless
	}
	asked, who := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition), owner.Kind+" "+owner.Name
	if asked == nil || asked.Status != metav1.ConditionFalse || asked.Reason == clusterv1.MachineOwnerRemediatedWaitingForRemediationReason {
		return explain.Step{Text: "its owner replaces it, or says in OwnerRemediated why it does not"}
	}
	says := asked.Reason
	if message := strings.Join(strings.Fields(strings.TrimPrefix(asked.Message, "* ")), " "); message != "" {
		says = strings.TrimSuffix(message, ".")
	}
	switch asked.Reason {
	case clusterv1.MachineSetMachineRemediationDeferredReason:
		return explain.Step{Text: fmt.Sprintf("its owner, %s, has put it off and tries again: %s", who, says)}
	case clusterv1.MachineSetMachineCannotBeRemediatedReason:
		return explain.Step{Text: fmt.Sprintf("its owner, %s, cannot replace it (%s): end that, or replace the machine by hand", who, says), Person: true}
	}
	return explain.Step{Text: fmt.Sprintf("its owner, %s, goes on: %s", who, says)}
}

// actsInCore reports whether it is Cluster API core that acts on the check.
func actsInCore(w *observed) bool {
	return w.mode == observing || w.mode == ignoring && w.cluster.DeletionTimestamp.IsZero()
}

// actsInstead names the other controller that acts on t when it is unhealthy; empty if none does.
func actsInstead(w *observed, t *target) string {
	switch {
	case t.older != "":
		return "MachineHealthCheck " + t.older
	case actsInCore(w):
		return "Cluster API core"
	}
	return ""
}

// expires is when the timeout of a machine expires; zero if none is running.
func expires(d *machines.Decision) time.Time {
	for _, b := range d.Blockers {
		if b.Reason == machines.WithinTimeout {
			return b.Until
		}
	}
	return time.Time{}
}

// comesDue is what happens when the timeout of t expires. It does whether its node can be seen by then or not.
func comesDue(w *observed, t *target, d *machines.Decision, is *explain.Target, at time.Time) explain.Step {
	next := explain.Step{At: at, Text: "it counts as unhealthy if nothing changes"}
	if who := actsInstead(w, t); who != "" {
		next.Text += ", and " + who + " acts on it"
		return next
	}
	for i, b := range d.Blockers {
		switch {
		case b.Reason == machines.WithinTimeout, d.Verdict.State == health.Unknown && b.Reason.Unjudged():
		case is.Blockers[i].Reason == explain.NotSeenByYou:
			next.Text += explain.UntoldThen
			return next
		default:
			next.Text += "; as things stand nothing is done about it then, " + until(&is.Blockers[i])
			return next
		}
	}
	next.Text += ", and kubemend " + is.Would
	return next
}

// until is how long h lasts, as far as that can be said, else what it is.
func until(h *explain.Blocker) string {
	if h.Ends != "" {
		return "until " + h.Ends
	}
	return "since " + explain.Clause(h.Text)
}
