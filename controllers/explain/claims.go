package explain

import (
	"fmt"

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
