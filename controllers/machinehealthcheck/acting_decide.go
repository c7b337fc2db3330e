package machinehealthcheck

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Acting is who acts on a check and, if that is not kubemend, why: as a sentence, and in a few words.
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

// clause is a sentence as it goes on in another one.
func clause(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// pausedBy is the value of the annotation that pauses the check; false if none does. The one by which kubemend claims a check pauses
// Cluster API core alone.
func (facts *Facts) pausedBy() (value string, paused bool) {
	value, annotated := facts.Check.Annotations[clusterv1.PausedAnnotation]
	return value, annotated && !Claimed(facts.Check)
}

// paused is what pauses a check, as a sentence and in a few words.
func (facts *Facts) paused() (text, detail string) {
	cluster := fmt.Sprintf("Cluster %s is paused (spec.paused)", facts.Check.Spec.ClusterName)
	value, paused := facts.pausedBy()
	check := fmt.Sprintf("The check has the annotation %s: %q", clusterv1.PausedAnnotation, value)
	if strings.EqualFold(strings.TrimSpace(value), mendv1.Claim) {
		check += fmt.Sprintf(", which pauses it for all; %q claims it", mendv1.Claim)
	}
	switch clusterPaused := ClusterPaused(facts.Cluster); {
	case paused && clusterPaused:
		return cluster + ", and " + clause(check), "Cluster and check paused"
	case paused:
		return check, "check paused"
	case clusterPaused:
		return cluster, "Cluster paused"
	}
	return "", "check not claimed"
}

// Enable is what a person can do for a check to be acted on; empty if nothing.
func (facts *Facts) Enable() string {
	if facts.ActsInCore() {
		return fmt.Sprintf("If kubemend is to act on it, claim the check: kubectl mend claim mhc/%s -n %s", facts.Check.Name, facts.Check.Namespace)
	}
	if facts.Mode != Paused {
		return ""
	}
	annotation := fmt.Sprintf("remove the annotation %s from the check", clusterv1.PausedAnnotation)
	cluster := fmt.Sprintf("set spec.paused of Cluster %s to false", facts.Check.Spec.ClusterName)
	switch _, paused := facts.pausedBy(); {
	case paused && ClusterPaused(facts.Cluster):
		return "When it is to go on, " + annotation + ", and " + cluster
	case paused:
		return "When it is to go on, " + annotation
	}
	return "When it is to go on, " + cluster
}

// ActsInCore reports whether it is Cluster API core that acts on the check.
func (facts *Facts) ActsInCore() bool {
	return facts.Mode == Observed || facts.Mode == Ignored && facts.Cluster.DeletionTimestamp.IsZero()
}

// Action is what is done about machine when it is unhealthy, as a clause.
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

// OwnerAnswer is the reason for which the owner of machine, which was asked to replace it, has not yet; empty if it has given none.
func OwnerAnswer(machine *clusterv1.Machine) string {
	asked := ConditionOf(machine, OwnerRemediated)
	if asked == nil || asked.Status != metav1.ConditionFalse || asked.Reason == waitingForRemediation {
		return ""
	}
	return asked.Reason
}
