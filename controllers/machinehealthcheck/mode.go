package machinehealthcheck

import (
	"strings"

	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Unclaimed says what to do with checks that are not claimed for kubemend. It is the
// value of the flag --unclaimed-machine-health-checks.
type Unclaimed string

const (
	// Observe judges, exports metrics and answers questions, and writes nothing.
	Observe Unclaimed = "observe"
	// Act treats unclaimed checks like claimed ones. It is for clusters in which Cluster API core
	// leaves MachineHealthChecks alone; elsewhere two controllers would act on one check.
	Act Unclaimed = "act"
	// Ignore does not look at unclaimed checks at all.
	Ignore Unclaimed = "ignore"
)

// mode is how kubemend stands to one check.
type mode int

const (
	ignoring  mode = iota // look away
	orphaned              // act, but on what: the Cluster does not exist
	paused                // the owner of the check or of the cluster asked everybody to stop
	observing             // judge, and export metrics alone
	acting                // judge and act
)

// modeFor decides how kubemend stands to check.
//
// The annotation cluster.x-k8s.io/paused makes Cluster API core stand back, whatever its value. Its value
// kubemend claims the check; any other value means pause, for us too. A paused Cluster pauses everything. In a Cluster
// that is being deleted nothing is worth mending.
func modeFor(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster, unclaimed Unclaimed) mode {
	value, annotated := check.Annotations[clusterv1.PausedAnnotation]
	claimed := annotated && value == mendv1.Claim
	switch {
	case !annotated && unclaimed == Ignore, !cluster.DeletionTimestamp.IsZero():
		return ignoring
	case annotated && !claimed, ptr.Deref(cluster.Spec.Paused, false):
		return paused
	case claimed, unclaimed == Act:
		return acting
	default:
		return observing
	}
}

// claimed reports whether check was handed to kubemend. Core then owns its condition Paused.
func claimed(check *clusterv1.MachineHealthCheck) bool {
	return check.Annotations[clusterv1.PausedAnnotation] == mendv1.Claim
}

// pausedMessage is Cluster API's message of the condition Paused.
func pausedMessage(check *clusterv1.MachineHealthCheck, cluster *clusterv1.Cluster) string {
	var why []string
	if ptr.Deref(cluster.Spec.Paused, false) {
		why = append(why, "Cluster spec.paused is set to true")
	}
	if _, annotated := check.Annotations[clusterv1.PausedAnnotation]; annotated {
		why = append(why, "MachineHealthCheck has the cluster.x-k8s.io/paused annotation")
	}
	return strings.Join(why, ", ")
}
