package machines

import (
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/rule"
)

// Acting is who acts on a check and, if that is not kubemend, why: as a sentence, and in a few words.
func (f *Facts) Acting() (by rule.Mode, text, detail string) {
	about := &f.About
	label := fmt.Sprintf("The label %s of the check, or of its Cluster if the check has none, is not %s, "+
		"which the manager's flag --watch-filter asks for", clusterv1.WatchLabel, about.WatchFilter)
	switch {
	case about.Deleting:
		return rule.None, "The check is being deleted", "check being deleted"
	case about.WatchFilter != "" && f.Claimed:
		text = "The check is claimed for kubemend, so Cluster API core leaves it alone, and " + clause(label)
		return rule.None, text, clusterv1.WatchLabel + " differs"
	case about.WatchFilter != "":
		return rule.Core, label, clusterv1.WatchLabel + " differs"
	case about.ClusterDeleting:
		return rule.None, fmt.Sprintf("Cluster %s is being deleted", about.Cluster), "Cluster being deleted"
	}
	paused, detail := about.paused()
	switch f.Mode {
	case NoCluster:
		return rule.None, fmt.Sprintf("There is no Cluster %s in namespace %s", about.Cluster, about.Namespace), detail
	case BadSelector:
		return rule.None, "The spec.selector of the check cannot be read", detail
	case Paused:
		return rule.Paused, paused, detail
	case Ignored:
		return rule.Core, "The check is not claimed for kubemend, whose flag --unclaimed-machine-health-checks is ignore: " +
			"Cluster API core acts on it", detail
	case Observed:
		return rule.Observing, "The check is not claimed for kubemend: Cluster API core acts on it, and kubemend only judges", detail
	case Active:
	}
	return rule.Acting, "", detail
}

// clause is a sentence as it goes on in another one.
func clause(sentence string) string { return strings.ToLower(sentence[:1]) + sentence[1:] }

// paused is what pauses a check, as a sentence and in a few words. Of the annotation by which kubemend claims a check it says nothing:
// that pauses Cluster API core alone.
func (a *About) paused() (text, detail string) {
	cluster := fmt.Sprintf("Cluster %s is paused (spec.paused)", a.Cluster)
	if a.PausedBy == nil {
		if a.ClusterPaused {
			return cluster, "Cluster paused"
		}
		return "", "check not claimed"
	}
	check := fmt.Sprintf("The check has the annotation %s: %q", clusterv1.PausedAnnotation, *a.PausedBy)
	if strings.EqualFold(strings.TrimSpace(*a.PausedBy), mendv1.Claim) {
		check += fmt.Sprintf(", which pauses it for all; %q claims it", mendv1.Claim)
	}
	if a.ClusterPaused {
		return cluster + ", and " + clause(check), "Cluster and check paused"
	}
	return check, "check paused"
}

// Enable is what a person can do for a check to be acted on; empty if nothing.
func (f *Facts) Enable() string {
	about := &f.About
	if f.ActsInCore() {
		return fmt.Sprintf("If kubemend is to act on it, claim the check: kubectl mend claim mhc/%s -n %s", about.Name, about.Namespace)
	}
	if f.Mode != Paused {
		return ""
	}
	annotation := fmt.Sprintf("remove the annotation %s from the check", clusterv1.PausedAnnotation)
	cluster := fmt.Sprintf("set spec.paused of Cluster %s to false", about.Cluster)
	switch {
	case about.PausedBy != nil && about.ClusterPaused:
		return "When it is to go on, " + annotation + ", and " + cluster
	case about.PausedBy != nil:
		return "When it is to go on, " + annotation
	}
	return "When it is to go on, " + cluster
}

// ActsInCore reports whether it is Cluster API core that acts on the check.
func (f *Facts) ActsInCore() bool {
	return f.Mode == Observed || f.Mode == Ignored && !f.About.ClusterDeleting
}

// Action is what is done about t when it is unhealthy, as a clause.
func (f *Facts) Action(t *Target) string {
	switch {
	case f.Template.External:
		return fmt.Sprintf("requests a %s from %s %s/%s", f.Template.Kind, f.Template.TemplateKind, f.About.Namespace, f.Template.Name)
	case t.OwnerKind != "":
		return fmt.Sprintf("asks its owner, %s %s, to remediate it", t.OwnerKind, t.OwnerName)
	}
	return "asks its owner to remediate it, but it has none"
}

// OwnerAnswer is the reason for which the owner of t, which was asked to replace it, has not yet; empty if it has given none.
func (t *Target) OwnerAnswer() string {
	asked := t.OwnerReport
	if asked == nil || asked.Status != conditionFalse || asked.Reason == waitingForRemediation {
		return ""
	}
	return asked.Reason
}

// PutOff reports whether the owner of t tries later to replace it. (Cluster API: the owners of all kinds have the same reasons.)
func (t *Target) PutOff() bool {
	return t.Owner != NotAsked && t.OwnerAnswer() == clusterv1.MachineSetMachineRemediationDeferredReason
}

// Refused reports whether the owner of t cannot replace it.
func (t *Target) Refused() bool {
	return t.Owner != NotAsked && t.OwnerAnswer() == clusterv1.MachineSetMachineCannotBeRemediatedReason
}
