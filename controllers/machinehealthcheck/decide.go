package machinehealthcheck

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/budget"
	"github.com/kubemend/kubemend/controllers/decide/health"
	"github.com/kubemend/kubemend/controllers/decide/machines"
	"github.com/kubemend/kubemend/controllers/machinestatus"
)

// plain reports whether nothing is to be decided about t: it is healthy, and nothing was begun for it. Nearly all machines are.
func (w *observed) plain(t *target) bool {
	return t.verdict.State == health.Healthy && !deleting(t.machine) && t.request == nil && !t.begun && t.cycle == nil && !w.remediation.unread
}

// facts are those that are decided on.
func (w *observed) facts(limits budget.Limits, cooldown *time.Duration, invalid bool) machines.Facts {
	f := machines.Facts{
		Now: w.now, Acts: w.mode == acting, Settled: w.settled(), Reachable: w.reach.Status == metav1.ConditionTrue,
		Limits: limits, Invalid: invalid, Limited: w.remembers && limited(w.check), Cooldown: cooldown, Storm: stormOf(w.check),
		Template: w.remediation.facts(), CyclesUnread: w.remediation.cyclesUnread, Memory: w.memory, Counted: w.counted,
	}
	for i := range w.targets {
		if t := &w.targets[i]; w.plain(t) {
			f.Healthy++
		} else {
			f.Targets = append(f.Targets, w.factsAbout(t))
		}
	}
	return f
}

// factsAbout are those about t.
func (w *observed) factsAbout(t *target) machines.Target {
	m := t.machine
	is := machines.Target{
		ID: string(m.UID), Name: m.Name, Verdict: t.verdict, Deleting: deleting(m), Updating: updating(t), OnHost: onHost(m), Owned: owned(m),
		Older: t.older != "", Announced: markedRequested(m), Begun: t.begun, Refused: t.refused,
	}
	if OwnerAsked(m) {
		is.Owner = machines.Asked
		if ownerRefuses(m) {
			is.Owner = machines.CannotRemediate
		}
	}
	if failed := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition); failed != nil {
		is.RequestFailed = failureOfOurs(failed)
	}
	switch {
	case t.request == nil:
	case w.ownership(t) == Foreign:
		is.Request = machines.ForeignRequest
	default:
		is.Request = machines.OwnRequest
	}
	if t.cycle != nil {
		is.Cycle = &machines.Cycle{Until: takenBy(t.cycle)}
	}
	if w.remediation.read && w.remediation.known && w.remediation.missing == "" && t.request == nil {
		_, err := w.requestFor(m)
		is.Unusable = err != nil
	}
	return is
}

// facts are those about the template.
func (r remediation) facts() machines.Template {
	return machines.Template{External: r.external, Known: r.known, Refused: r.refused, Missing: r.missing != "", Unread: r.unread}
}

// inFlight reports whether a remediation of t was begun and is not over.
func (w *observed) inFlight(t *target) bool {
	if w.plain(t) {
		return false
	}
	is := w.factsAbout(t)
	return machines.InFlight(w.remediation.facts(), &is)
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

// markedRequested reports whether m says that there is a request for it, which a check made: for readers who may not read requests.
func markedRequested(m *clusterv1.Machine) bool {
	external := conditionOf(m, clusterv1.MachineExternallyRemediatedCondition)
	return external != nil && external.Status == metav1.ConditionFalse && !failureOfOurs(external)
}

// updating reports whether t is left alone, as it is being updated in place. A person who marks it by hand wants it remediated all the same: that
// is the way out of an update that never ends.
func updating(t *target) bool { return machinestatus.UpdatedInPlace(t.machine) && !byHand(t) }

func byHand(t *target) bool {
	return slices.ContainsFunc(t.verdict.Findings, func(f health.Finding) bool { return f.Reason == health.MarkedByHand })
}
