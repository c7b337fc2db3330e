package claims

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/decide/claims"
)

// claimLabel is the label that asks for claims, with its value.
const claimLabel = mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct

// labelledObject names the object whose label counts: "Cluster c1", or "Namespace fleet".
func labelledObject(by claims.Source, namespace, cluster string) string {
	if by == claims.Namespace {
		return "Namespace " + namespace
	}
	return "Cluster " + cluster
}

// notClaimedByLabel says why the check is not claimed although object has the label; value is that of the annotation that pauses the check.
func notClaimedByLabel(object, value string) string {
	return fmt.Sprintf("Not claimed, although %s has the label %s: the annotation %s is %q, which pauses the check for all controllers. Remove it, and the "+
		"check is claimed", object, claimLabel, clusterv1.PausedAnnotation, value)
}

// InvalidLabel says what is wrong with the label of an object.
func InvalidLabel(object, value string) string {
	return fmt.Sprintf("metadata.labels[%s] of %s is %q: expected %q. It claims no MachineHealthCheck and releases none", mendv1.ClaimLabel, object, value,
		mendv1.ClaimLabelAct)
}

// Source says which label claimed a check; empty if none did. The facts are those of a check of that Cluster.
func Source(f claims.Facts, namespace, cluster string) string {
	if f.By == "" || f.Pause != claims.Claimed {
		return ""
	}
	switch plan := claims.Decide(f); {
	case plan.By != "":
		return fmt.Sprintf("the label %s on %s", claimLabel, labelledObject(plan.By, namespace, cluster))
	case plan.Action == claims.Release:
		return fmt.Sprintf("the label %s, which neither Cluster %s nor Namespace %s has any more: the manager that acts on the check releases it",
			claimLabel, cluster, namespace)
	}
	return fmt.Sprintf("the label %s on %s; whether it still has the label is not known", claimLabel, labelledObject(f.By, namespace, cluster))
}

// Missing says why a check is not claimed although a label asks for that; empty if none does, or if it is. Value is that of the
// annotation that pauses the check.
func Missing(f claims.Facts, namespace, cluster, value string) string {
	plan := claims.Decide(f)
	object := labelledObject(plan.By, namespace, cluster)
	switch plan.Reason {
	case claims.PausedByHand:
		return notClaimedByLabel(object, value)
	case claims.Asked:
		return fmt.Sprintf("Not claimed yet, although %s has the label %s: the manager that acts on the check claims it when it runs", object, claimLabel)
	}
	return ""
}
