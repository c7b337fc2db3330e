package machinehealthcheck

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/budget"
)

// Acting returns who acts on a check and, if that is not kubemend, why: as a sentence, and in a few words.
func (facts *Facts) Acting() (by cliv1.Mode, text, detail string) {
	cluster := facts.Check.Spec.ClusterName
	label := fmt.Sprintf("The label %s of the check, or of its Cluster if the check has none, is not %s, "+
		"which the manager's flag --watch-filter asks for", clusterv1.WatchLabel, facts.WatchFilter)
	switch {
	case !facts.Check.DeletionTimestamp.IsZero():
		return cliv1.ModeNone, "The check is being deleted", "check being deleted"
	case facts.WatchFilter != "" && Claimed(facts.Check):
		text = "The check is claimed for kubemend, so Cluster API core leaves it alone, and " + clause(label)
		return cliv1.ModeNone, text, clusterv1.WatchLabel + " differs"
	case facts.WatchFilter != "":
		return cliv1.ModeCore, label, clusterv1.WatchLabel + " differs"
	case !facts.Cluster.DeletionTimestamp.IsZero():
		return cliv1.ModeNone, fmt.Sprintf("Cluster %s is being deleted", cluster), "Cluster being deleted"
	}
	paused, detail := facts.paused()
	switch facts.Mode {
	case NoCluster:
		return cliv1.ModeNone, fmt.Sprintf("There is no Cluster %s in namespace %s", cluster, facts.Check.Namespace), detail
	case BadSelector:
		return cliv1.ModeNone, "The spec.selector of the check cannot be read", detail
	case Paused:
		return cliv1.ModePaused, paused, detail
	case Ignored:
		return cliv1.ModeCore, "The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: " +
			"Cluster API core acts on it", detail
	case Observed:
		return cliv1.ModeObserving, "The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges", detail
	case Active:
	}
	return cliv1.ModeActing, "", detail
}

// clause returns sentence with a small first letter, to go on in another sentence.
func clause(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// pause is a reason why a check is paused: as a sentence and as a word, how a person ends it, and the text in the condition Paused.
type pause struct{ text, what, end, wire string }

// pauses returns the pauses of the check. The annotation by which kubemend claims a check pauses only Cluster API core.
func (facts *Facts) pauses() []pause {
	var pauses []pause
	if cluster := facts.Check.Spec.ClusterName; ClusterPaused(facts.Cluster) {
		pauses = append(pauses, pause{
			text: "Cluster " + cluster + " is paused (spec.paused)", what: "Cluster",
			end: "set spec.paused of Cluster " + cluster + " to false", wire: "Cluster spec.paused is set to true",
		})
	}
	if value, annotated := facts.Check.Annotations[clusterv1.PausedAnnotation]; annotated && !Claimed(facts.Check) {
		text := fmt.Sprintf("The check has the annotation %s: %q", clusterv1.PausedAnnotation, value)
		if strings.EqualFold(strings.TrimSpace(value), mendv1.Claim) {
			text += fmt.Sprintf(", which pauses it for all; %q claims it", mendv1.Claim)
		}
		pauses = append(pauses, pause{
			text: text, what: "check", end: "remove the annotation " + clusterv1.PausedAnnotation + " from the check",
			wire: "MachineHealthCheck has the cluster.x-k8s.io/paused annotation",
		})
	}
	return pauses
}

func (facts *Facts) paused() (text, detail string) {
	pauses := facts.pauses()
	switch len(pauses) {
	case 0:
		return "", "check not claimed"
	case 1:
		return pauses[0].text, pauses[0].what + " paused"
	}
	return pauses[0].text + ", and " + clause(pauses[1].text), pauses[0].what + " and " + pauses[1].what + " paused"
}

// Enable returns what a person can do so that kubemend acts on the check; empty if nothing.
func (facts *Facts) Enable() string {
	if facts.ActsInCore() {
		return fmt.Sprintf("If kubemend is to act on it, claim the check: kubectl mend claim mhc/%s -n %s",
			facts.Check.Name, facts.Check.Namespace)
	}
	if facts.Mode != Paused {
		return ""
	}
	var ends []string
	for _, pause := range slices.Backward(facts.pauses()) {
		ends = append(ends, pause.end)
	}
	return "When it is to go on, " + strings.Join(ends, ", and ")
}

// ActsInCore reports whether Cluster API core acts on the check.
func (facts *Facts) ActsInCore() bool {
	return facts.Mode == Observed || facts.Mode == Ignored && facts.Cluster.DeletionTimestamp.IsZero()
}

// Action returns, as a clause, what kubemend does when machine is unhealthy.
func (facts *Facts) Action(machine *clusterv1.Machine) string {
	if facts.Template.External {
		template := &facts.Template
		return fmt.Sprintf("requests a %s from %s %s/%s", template.Kind, template.TemplateKind, facts.Check.Namespace, template.Name)
	}
	if owner := metav1.GetControllerOfNoCopy(machine); owner != nil {
		return fmt.Sprintf("asks its owner, %s %s, to remediate it", owner.Kind, owner.Name)
	}
	return "asks its owner to remediate it, but it has none"
}

// OwnerAnswer returns the reason that the owner of machine gives for not having replaced it yet; empty if it was not asked or gave none.
func OwnerAnswer(machine *clusterv1.Machine) string {
	asked := ConditionOf(machine, OwnerRemediated)
	if asked == nil || asked.Status != metav1.ConditionFalse || asked.Reason == waitingForRemediation {
		return ""
	}
	return asked.Reason
}

// Settings are the limits of a check.
type Settings struct {
	// Limits are absolute numbers.
	Limits budget.Limits
	// Invalid says which field cannot be parsed; nil if all can.
	Invalid *InvalidField
	// Limited says that a number of unhealthy machines can block all remediations.
	Limited bool
}

// SettingsOf returns the limits of check, given the number of its targets. As in Cluster API, the range takes precedence over the number,
// and without either all machines may be remediated.
func SettingsOf(check *clusterv1.MachineHealthCheck, total int) Settings {
	settings := Settings{Limits: budget.Limits{AtMost: budget.All.Of(total)}}
	trigger := check.Spec.Remediation.TriggerIf
	most := trigger.UnhealthyLessThanOrEqualTo
	settings.Limited = trigger.UnhealthyInRange != "" || most != nil && most.String() != "100%"
	switch {
	case trigger.UnhealthyInRange != "":
		within, err := budget.ParseRange(trigger.UnhealthyInRange)
		if err != nil {
			settings.Invalid = &InvalidField{"spec.remediation.triggerIf.unhealthyInRange", err}
			break
		}
		settings.Limits.AtLeast, settings.Limits.AtMost = within.Min, within.Max
	case most != nil:
		amount, err := budget.ParseAmount(most.String())
		if err != nil {
			settings.Invalid = &InvalidField{"spec.remediation.triggerIf.unhealthyLessThanOrEqualTo", err}
			break
		}
		settings.Limits.AtMost = amount.Of(total)
	}
	return settings
}

// InvalidField is a field of a check that cannot be parsed.
type InvalidField struct {
	Field string // its path
	Err   error
}

// Error returns the field and what is wrong with it.
func (e *InvalidField) Error() string { return e.Field + ": " + e.Err.Error() }

// MostUnhealthy returns unhealthyLessThanOrEqualTo of check as it is written, or its default.
func MostUnhealthy(check *clusterv1.MachineHealthCheck) string {
	if limit := check.Spec.Remediation.TriggerIf.UnhealthyLessThanOrEqualTo; limit != nil {
		return limit.String()
	}
	return budget.All.String()
}

// LimitText returns the limits of check as they are written, with the field names of the served API version.
func LimitText(check *clusterv1.MachineHealthCheck) string {
	if written := check.Spec.Remediation.TriggerIf.UnhealthyInRange; written != "" {
		return "unhealthyInRange " + written
	}
	return "unhealthyLessThanOrEqualTo " + MostUnhealthy(check)
}
