package machinehealthcheck

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/machines"
)

// inFlight reports whether a remediation of t was begun and is not over: a request of this check exists, or the owner
// was asked and has neither finished nor was the machine well again. What an owner left behind of a machine that was well
// since counts for nothing. It is read from what is observed, so no crash can lose it; only what was begun so lately that the caches
// may not show it yet is remembered.
func (w *observed) inFlight(t *target) bool {
	if t.begun {
		return true
	}
	if t.request != nil {
		return w.ownership(t) != Foreign
	}
	if w.remedy.unread && saidRequested(t.machine) {
		return true
	}
	if t.verdict.State == health.Healthy && !deleting(t.machine) || !OwnerAsked(t.machine) {
		return false
	}
	canRequest := w.remedy.external && w.remedy.known
	return !canRequest || !ownerRefuses(t.machine) // that there is a template now is news
}

// occupies reports whether t has one of the places that kubemend.io/max-in-flight allows: its remediation is under way, and somebody carries it
// out. A machine whose owner cannot replace it waits for a person, however long, and the others go on. (docs/adr/0034-what-cannot-go-on-waits-last.md)
func (w *observed) occupies(t *target) bool {
	return t.cycle != nil || w.inFlight(t) && (deleting(t.machine) || !ownerRefuses(t.machine))
}

// ownerRefuses reports whether m was handed to its owner, and the owner will not replace it as things stand: it says so, or there is none.
// (Cluster API: the MachineSet and the KubeadmControlPlane have the same reason for that. What they put off they go on with by themselves.)
func ownerRefuses(m *clusterv1.Machine) bool {
	if !OwnerAsked(m) {
		return false
	}
	asked := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition)
	return asked.Reason == clusterv1.MachineSetMachineCannotBeRemediatedReason || !owned(m)
}

// owned reports whether there is somebody who can replace m.
func owned(m *clusterv1.Machine) bool { return metav1.GetControllerOf(m) != nil }

// OwnerAsked reports whether the owner of m was asked to remediate it, and has not said that it has.
func OwnerAsked(m *clusterv1.Machine) bool {
	asked := conditionOf(m, clusterv1.MachineOwnerRemediatedCondition)
	return asked != nil && asked.Status == metav1.ConditionFalse && failedBefore(m)
}

// saidRequested reports whether m says that there is a request for it, which a check made: for whoever may not read requests.
func saidRequested(m *clusterv1.Machine) bool {
	external := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition)
	return external != nil && external.Status == metav1.ConditionFalse && !failureOfOurs(external)
}

// startable reports whether a remediation of t waits for nothing but to be granted.
func (w *observed) startable(t *target) bool {
	if t.verdict.State != health.Unhealthy || !t.sudden.IsZero() || deleting(t.machine) || updating(t) || t.elder != "" ||
		w.inFlight(t) || t.cycle != nil || w.cyclesUnread(t) {
		return false
	}
	return !w.remedy.external || (w.remedy.known && w.remedy.missing == "" && t.request == nil)
}

// updating reports whether t is left alone, as it is being updated in place. A person who marks it by hand wants it remediated all the same: that
// is the way out of an update that never ends.
func updating(t *target) bool { return machines.UpdatedInPlace(t.machine) && byHand(t) == 0 }

// turn is what comes of it that a target's remediation may start: with a request, if one has to be made, or not at all.
type turn struct {
	request *unstructured.Unstructured
	refused error // nil if it starts
}

// choose returns the targets whose remediation may start now, and what comes of that. A target does not use up its turn if no request can be made
// of the template, or if it is handed to an owner that it does not have: nothing is under way then, and nothing will tell that it is over.
//
// Those come last whose remediation could not be begun when it was tried, the longest ago first, and those that nobody owns: else one machine
// that nobody can remediate would keep all others waiting. Before them, those marked by hand are first, then those that have been due for
// longest, and by name where that is the same.
func choose(w *observed, start int) map[*target]*turn {
	if start == 0 {
		return nil
	}
	var waiting []*target
	for i := range w.targets {
		if t := &w.targets[i]; w.startable(t) {
			waiting = append(waiting, t)
		}
	}
	slices.SortStableFunc(waiting, func(a, b *target) int {
		return cmp.Or(cmp.Compare(w.rank(a), w.rank(b)), a.refused.Compare(b.refused), -cmp.Compare(byHand(a), byHand(b)),
			overdue(w, a).Compare(overdue(w, b)), cmp.Compare(a.machine.Name, b.machine.Name))
	})
	turns := make(map[*target]*turn, start)
	for _, t := range waiting {
		if start == 0 {
			break
		}
		is := &turn{}
		if w.remedy.external {
			is.request, is.refused = w.requestFor(t.machine)
		}
		if turns[t] = is; is.refused == nil && (w.remedy.external || owned(t.machine)) {
			start--
		}
	}
	return turns
}

// rank is 1 for a target that comes after all others in the queue, else 0.
func (w *observed) rank(t *target) int {
	failed := conditionOf(t.machine, clusterv1.MachineExternallyRemediatedCondition)
	if !t.refused.IsZero() || w.remedy.external && failed != nil && failureOfOurs(failed) || !w.remedy.external && !owned(t.machine) {
		return 1
	}
	return 0
}

func byHand(t *target) int {
	for _, f := range t.verdict.Findings {
		if f.Reason == health.MarkedByHand {
			return 1
		}
	}
	return 0
}

func overdue(w *observed, t *target) time.Time { return t.verdict.OverdueSince(w.now) }
