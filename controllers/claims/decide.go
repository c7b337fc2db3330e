package claims

import (
	"fmt"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Facts are what is known of one check.
type Facts struct {
	Check *clusterv1.MachineHealthCheck
	// Cluster is nil if there is none, or if the cache has not seen it yet.
	Cluster *clusterv1.Cluster
	// Namespace are the labels of the Namespace of both, if they are known: it may be that it cannot be read.
	Namespace      map[string]string
	NamespaceKnown bool
	// NotCovered says that the check is one of another manager.
	NotCovered bool
}

// Action is what is done about a check.
type Action string

const (
	// Leave leaves a check as it is.
	Leave Action = "Leave"
	// Refuse leaves a check as it is although a label asks for a claim: it is paused for all controllers.
	Refuse Action = "Refuse"
	// Claim claims a check, since a label asks for that.
	Claim Action = "Claim"
	// Release releases a check, since no label asks for its claim any more.
	Release Action = "Release"
)

// The kinds of the objects whose label asks for a claim, as the mark of a claim has them. The first counts if both ask.
const (
	byCluster   = "Cluster"
	byNamespace = "Namespace"
)

// Plan is what is done about a check.
type Plan struct {
	Action Action
	// By is the kind of the object whose label asks for a claim; empty if none does.
	By string
}

// Decide decides which checks kubemend claims, and which it releases, because of a label on their Cluster or their Namespace. A claim that
// somebody made on the check itself, without the mark, is left alone.
//
// What is not known releases nothing: a Cluster that is not there yet, as during a move, or a label with a typing error must not return
// checks. A check that is being deleted is not released, since Cluster API core would act on it at the end.
func Decide(f Facts) Plan {
	pause, paused := f.Check.Annotations[clusterv1.PausedAnnotation]
	mark, marked := f.Check.Annotations[mendv1.ClaimedByAnnotation]
	by, invalid := f.asked()
	deleted := !f.Check.DeletionTimestamp.IsZero() || f.Cluster != nil && !f.Cluster.DeletionTimestamp.IsZero()
	switch {
	case f.NotCovered, deleted:
		return Plan{Leave, by}
	case by != "" && !paused:
		return Plan{Claim, by}
	case by != "" && pause != mendv1.Claim:
		return Plan{Refuse, by}
	case by != "", invalid, !marked:
		return Plan{Leave, by}
	case f.Cluster == nil, mark == byNamespace && !f.NamespaceKnown:
		return Plan{Leave, ""}
	}
	return Plan{Release, ""}
}

// asked returns the kind of the object whose label asks for a claim, and whether one of the labels has a value that is not defined.
func (f Facts) asked() (by string, invalid bool) {
	namespace, inNamespace := f.Namespace[mendv1.ClaimLabel]
	cluster, onCluster := "", false
	if f.Cluster != nil {
		cluster, onCluster = f.Cluster.Labels[mendv1.ClaimLabel]
	}
	invalid = inNamespace && namespace != mendv1.ClaimLabelAct || onCluster && cluster != mendv1.ClaimLabelAct
	switch mendv1.ClaimLabelAct {
	case cluster:
		return byCluster, invalid
	case namespace:
		return byNamespace, invalid
	}
	return "", invalid
}

// claimLabel is the label that asks for claims, with its value.
const claimLabel = mendv1.ClaimLabel + ": " + mendv1.ClaimLabelAct

// object names the object of a kind whose label counts: "Cluster c1", or "Namespace fleet".
func (f Facts) object(kind string) string {
	if kind == byNamespace {
		return "Namespace " + f.Check.Namespace
	}
	return "Cluster " + f.Check.Spec.ClusterName
}

// InvalidLabel says what is wrong with the label of an object; empty if nothing is.
func InvalidLabel(object string, labels map[string]string) string {
	value, labelled := labels[mendv1.ClaimLabel]
	if !labelled || value == mendv1.ClaimLabelAct {
		return ""
	}
	return fmt.Sprintf("metadata.labels[%s] of %s is %q: expected %q. It claims no MachineHealthCheck and releases none", mendv1.ClaimLabel, object, value,
		mendv1.ClaimLabelAct)
}
