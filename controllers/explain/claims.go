package explain

import (
	"cmp"
	"fmt"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/claims"
)

// claimLabel is the label that asks for claims, with its value.
const claimLabel = mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct

// LabelledObject names the object whose label counts: "Cluster c1", or "Namespace fleet".
func LabelledObject(by claims.Source, namespace, cluster string) string {
	if by == claims.Namespace {
		return "Namespace " + namespace
	}
	return "Cluster " + cluster
}

// ClaimedByLabel says that the check was claimed, and why; object is what has the label.
func ClaimedByLabel(object string) string {
	return fmt.Sprintf("Claimed, since %s has the label %s: kubemend acts on this MachineHealthCheck in place of Cluster API core", object, claimLabel)
}

// ReleasedByLabel says that the check was released, and why.
func ReleasedByLabel(namespace, cluster string) string {
	return fmt.Sprintf("Released, since neither Cluster %s nor Namespace %s has the label %s: Cluster API core acts on this MachineHealthCheck from now on",
		cluster, namespace, claimLabel)
}

// NotClaimedByLabel says why the check is not claimed although object has the label; value is that of the annotation that pauses the check.
func NotClaimedByLabel(object, value string) string {
	return fmt.Sprintf("Not claimed, although %s has the label %s: the annotation %s is %q, which pauses the check for all controllers. Remove it, and the "+
		"check is claimed", object, claimLabel, clusterv1.PausedAnnotation, value)
}

// InvalidClaimLabel says what is wrong with the label of an object.
func InvalidClaimLabel(object, value string) string {
	return fmt.Sprintf("metadata.labels[%s] of %s is %q: expected %q. It claims no MachineHealthCheck and releases none", mendv1.ClaimLabel, object, value,
		mendv1.ClaimLabelAct)
}

// ClaimSource says which label claimed a check; empty if none did. The facts are those of a check of that Cluster.
func ClaimSource(f claims.Facts, namespace, cluster string) string {
	if f.By == "" || f.Pause != claims.Claimed {
		return ""
	}
	switch plan := claims.Decide(f); {
	case plan.By != "":
		return fmt.Sprintf("the label %s on %s", claimLabel, LabelledObject(plan.By, namespace, cluster))
	case plan.Action == claims.Release:
		return fmt.Sprintf("the label %s, which neither Cluster %s nor Namespace %s has any more: the manager that acts on the check releases it",
			claimLabel, cluster, namespace)
	}
	return fmt.Sprintf("the label %s on %s; whether it still has the label is not known", claimLabel, LabelledObject(f.By, namespace, cluster))
}

// ClaimMissing says why a check is not claimed although a label asks for that; empty if none does, or if it is. Value is that of the annotation that
// pauses the check.
func ClaimMissing(f claims.Facts, namespace, cluster, value string) string {
	plan := claims.Decide(f)
	object := LabelledObject(plan.By, namespace, cluster)
	switch plan.Reason {
	case claims.PausedByHand:
		return NotClaimedByLabel(object, value)
	case claims.Asked:
		return fmt.Sprintf("Not claimed yet, although %s has the label %s: the manager that acts on the check claims it when it runs", object, claimLabel)
	}
	return ""
}

// ClaimingObject is what has the label that claimed a check, or had it when it did.
func ClaimingObject(f claims.Facts, namespace, cluster string) Ref {
	if cmp.Or(claims.Decide(f).By, f.By) == claims.Namespace {
		return Ref{Kind: "Namespace", Name: namespace}
	}
	return Ref{Kind: "Cluster", Namespace: namespace, Name: cluster}
}

// ClaimedByLabels says how many checks labels claimed, and of which objects: those that are named, and some more.
func ClaimedByLabels(n int, objects []string, more int) string {
	checks, rest := "checks are", ""
	if n == 1 {
		checks = "check is"
	}
	if more > 0 {
		rest = fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d %s claimed by the label %s of %s%s", n, checks, claimLabel, strings.Join(objects, ", "), rest)
}

// LabelWritten says what writing the label that claims checks, or removing it, does; was is its value before, if it has one.
func LabelWritten(release bool, was string) string {
	switch {
	case release:
		return "without the label " + claimLabel + " kubemend releases the checks that it claimed"
	case was != "" && was != mendv1.ClaimLabelAct:
		return fmt.Sprintf("the label %s, which was %q, has kubemend claim its checks, and each new one", claimLabel, was)
	}
	return "the label " + claimLabel + " has kubemend claim its checks, and each new one"
}

// LabelAsIs says that the label that claims checks is there already, or that there is none to remove.
func LabelAsIs(release bool) string {
	if release {
		return "it does not have the label " + mendv1.ClaimLabel
	}
	return "it has the label " + claimLabel + " already"
}

// unlabel are the commands that remove the labels of the Cluster and the Namespace that claim checks.
func unlabel(f claims.Facts, namespace, cluster string) string {
	var commands []string
	if f.Cluster == claims.Act {
		commands = append(commands, "kubectl mend release cluster/"+cluster+" -n "+namespace)
	}
	if f.Namespace == claims.Act {
		commands = append(commands, "kubectl mend release namespace/"+namespace)
	}
	return strings.Join(commands, "; ")
}

// labelled names the objects whose labels ask for claims, and what they have.
func labelled(f claims.Facts, namespace, cluster string) string {
	onCluster, onNamespace := LabelledObject(claims.Cluster, namespace, cluster), LabelledObject(claims.Namespace, namespace, cluster)
	switch {
	case f.Cluster == claims.Act && f.Namespace == claims.Act:
		return onCluster + " and " + onNamespace + " have the label " + claimLabel
	case f.Cluster == claims.Act:
		return onCluster + " has the label " + claimLabel
	}
	return onNamespace + " has the label " + claimLabel
}
