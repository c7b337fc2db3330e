package machines

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// remediationCondition sets the condition kubemend.io/Remediation of the machine of d while it is not healthy, and removes it when it is.
// The stored one stands while the verdict is unknown, so an outage writes no Machine, and where it says the same already.
func remediationCondition(facts *Facts, d *Decision) {
	stored := ConditionOf(d.Target, mendv1.Remediation)
	switch d.Verdict.State {
	case health.Unknown:
		return
	case health.Healthy, health.Starting:
		if stored != nil {
			d.remove(mendv1.Remediation)
		}
		return
	case health.Pending, health.Unhealthy:
	}
	cond := inProgress(facts, d)
	if cond.Status == "" {
		cond = blocked(d)
	}
	switch {
	case cond.Status == "", facts.Mode != Active, facts.Template.Syncing:
		return
	case stored == nil:
	case stored.Status == cond.Status && stored.Reason == cond.Reason && stored.Message == cond.Message:
		return
	case stored.Status == metav1.ConditionTrue && (d.Blocked(PowerCyclesUnread) || d.Blocked(RequestsUnread)):
		return // what is in progress was read before, and cannot be read now
	}
	d.Conditions = append(d.Conditions, cond)
}

// inProgress is the condition of a machine whose remediation is in progress or begins now, or whose owner cannot carry it out; zero of
// any other one.
func inProgress(facts *Facts, d *Decision) metav1.Condition {
	t := d.Target
	if !d.InFlight && !d.Starts() {
		if cycle := d.BlockedBy(PowerCycleInProgress); cycle != nil {
			return metav1.Condition{Type: mendv1.Remediation, Status: metav1.ConditionTrue, Reason: cycle.Reason, Message: cycle.Text}
		}
		return metav1.Condition{}
	}
	owner := ""
	if ref := metav1.GetControllerOfNoCopy(t.Machine); ref != nil {
		owner = ref.Kind + " " + ref.Name
	}
	switch byOwner := OwnerOf(t.Machine) != NotAsked && d.InFlight || !facts.Template.External; {
	case byOwner && !owned(t.Machine):
		return metav1.Condition{
			Type: mendv1.Remediation, Status: metav1.ConditionFalse, Reason: mendv1.NoOwnerReason,
			Message: "Its owner is to remediate it, and it has none: see to it by hand",
		}
	case byOwner && OwnerOf(t.Machine) == CannotRemediate:
		return metav1.Condition{
			Type: mendv1.Remediation, Status: metav1.ConditionFalse, Reason: OwnerAnswer(t.Machine),
			Message: "Its owner, " + owner + ", cannot remediate it: the condition " + OwnerRemediated + " says why",
		}
	case byOwner:
		return metav1.Condition{
			Type: mendv1.Remediation, Status: metav1.ConditionTrue, Reason: mendv1.OwnerAskedReason,
			Message: "Its owner, " + owner + ", was asked to remediate it",
		}
	}
	return metav1.Condition{ // a request has the name of its Machine
		Type: mendv1.Remediation, Status: metav1.ConditionTrue, Reason: mendv1.RequestedReason,
		Message: facts.Template.Kind + " " + t.Name + " is under way for the machine",
	}
}

// blocked is the condition of a machine whose remediation something blocks; zero if that is known in a moment. A pending machine waits for
// its timeout: the limits, which other machines change, do not matter before that.
func blocked(d *Decision) metav1.Condition {
	cond := metav1.Condition{Type: mendv1.Remediation, Status: metav1.ConditionFalse}
	lines := make([]string, 0, len(d.Blockers))
	for i := range d.Blockers {
		blocker := &d.Blockers[i]
		switch {
		case blocker.Rule == NotUnhealthy, blocker.Rule == JustSeen: // over within Settling
			continue
		case d.Verdict.State == health.Pending && blocker.Rule != WithinTimeout:
			continue
		}
		line := cmp.Or(blocker.Brief, blocker.Text)
		if !blocker.Until.IsZero() {
			line += ". This ends at " + stamp(blocker.Until) + " at the latest"
		}
		cond.Reason = cmp.Or(cond.Reason, blocker.Reason)
		lines = append(lines, line)
	}
	switch len(lines) {
	case 0:
		return metav1.Condition{}
	case 1:
		cond.Message = lines[0]
	default:
		cond.Message = "* " + strings.Join(lines, "\n* ")
	}
	return cond
}
