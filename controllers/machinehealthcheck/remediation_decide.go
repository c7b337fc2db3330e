package machinehealthcheck

import (
	"cmp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/health"
)

// remediationCondition sets the condition kubemend.io/Remediation of the machine of decision while it is not healthy, and removes it when
// it is. The stored one stands while the verdict is unknown, so an outage writes no Machine, and where it says the same already.
func remediationCondition(facts *Facts, decision *Decision) {
	stored := ConditionOf(decision.Target, mendv1.Remediation)
	switch decision.Verdict.State {
	case health.Unknown:
		return
	case health.Healthy, health.Starting:
		if stored != nil {
			decision.remove(mendv1.Remediation)
		}
		return
	case health.Pending, health.Unhealthy:
	}
	cond := inProgress(facts, decision)
	if cond.Status == "" {
		cond = blockedCondition(decision)
	}
	switch {
	case cond.Status == "", facts.Mode != Active, facts.Template.Syncing:
		return
	case stored == nil:
	case stored.Status == cond.Status && stored.Reason == cond.Reason && said(stored.Message, cond.Message) && !decision.Starts():
		return
	case stored.Status == metav1.ConditionTrue && (decision.Blocked(PowerCyclesUnread) || decision.Blocked(RequestsUnread)):
		return // what is in progress was read before, and cannot be read now
	}
	decision.Conditions = append(decision.Conditions, cond)
}

// recorded stands before the record of a remediation in the message of a Machine that carries it. (package remediationrecord)
const recorded = ": see RemediationRecord "

// said reports whether a stored message says the same as message, perhaps with the record of the remediation behind it, which is not known here.
func said(stored, message string) bool {
	return stored == message || strings.HasPrefix(stored, message+recorded)
}

// inProgress is the condition of a machine whose remediation is in progress or begins now, or whose owner cannot carry it out; zero of
// any other one.
func inProgress(facts *Facts, decision *Decision) metav1.Condition {
	if !decision.InFlight && !decision.Starts() {
		if cycle := decision.BlockedBy(PowerCycleInProgress); cycle != nil {
			return condition(mendv1.Remediation, metav1.ConditionTrue, cycle.Reason, cycle.Text)
		}
		return metav1.Condition{}
	}
	target := decision.Target
	progress, owner := OwnerOf(target.Machine), metav1.GetControllerOfNoCopy(target.Machine)
	switch byOwner := progress != NotAsked && decision.InFlight || !facts.Template.External; {
	case byOwner && progress == CannotRemediate:
		return condition(mendv1.Remediation, metav1.ConditionFalse, OwnerAnswer(target.Machine),
			"Its owner, "+owner.Kind+" "+owner.Name+", cannot remediate it: the condition "+OwnerRemediated+" says why")
	case byOwner:
		text := "Its owner, " + owner.Kind + " " + owner.Name + ", was asked to remediate it"
		if answer := olderAnswer(target.Machine); answer != "" && OwnerAnswer(target.Machine) == "" {
			text += ". It says: " + answer
		}
		if silent := target.silentFrom(); decision.InFlight && !silent.IsZero() && !facts.Now.Before(silent) {
			return condition(mendv1.Remediation, metav1.ConditionFalse, mendv1.OwnerSilentReason,
				text+". It has not for an hour, and others go on: see to the machine by hand, or give the check a template")
		}
		return condition(mendv1.Remediation, metav1.ConditionTrue, mendv1.OwnerAskedReason, text)
	}
	return condition(mendv1.Remediation, metav1.ConditionTrue, mendv1.RequestedReason, // a request has the name of its Machine
		facts.Template.Kind+" "+target.Name+" is under way for the machine")
}

// blockedCondition is the condition of a machine whose remediation something blocks; zero if that is known in a moment. A pending machine waits for
// its timeout: the limits, which other machines change, do not matter before that.
func blockedCondition(decision *Decision) metav1.Condition {
	cond := metav1.Condition{Type: mendv1.Remediation, Status: metav1.ConditionFalse}
	lines := make([]string, 0, len(decision.Blockers))
	for i := range decision.Blockers {
		blocker := &decision.Blockers[i]
		switch {
		case blocker.Rule == NotUnhealthy, blocker.Rule == JustSeen: // over within Settling
			continue
		case decision.Verdict.State == health.Pending && blocker.Rule != WithinTimeout:
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
