package machinehealthcheck

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// frozen reports whether what Cluster API says of m is as old as a pause: nobody writes it as long as the Cluster is paused, and after that core
// sets the machine's own condition Paused to False before it looks at anything else. (Cluster API, util/paused.) A Cluster's condition
// Paused tells less: it is True as well if only the Cluster has the annotation, and its machines are looked at.
func frozen(w *observed, m *clusterv1.Machine) bool {
	return clusterPaused(w.cluster) || conditionTrue(m, clusterv1.PausedCondition) != nil
}

func clusterPaused(c *clusterv1.Cluster) bool { return ptr.Deref(c.Spec.Paused, false) }

// resumed is when Cluster API took m up again after a pause; zero if it never was paused. Core writes Paused=False on every machine when it first
// sees it, which ends no pause: nothing was written before. If it is older than the machine itself, that was restored from a backup with its
// status: all that was written before was not true of this machine, and counts from when that was made.
func resumed(m *clusterv1.Machine) time.Time {
	c := conditionOf(m, clusterv1.PausedCondition)
	switch {
	case c == nil || c.Status != metav1.ConditionFalse:
		return time.Time{}
	case c.LastTransitionTime.Before(&m.CreationTimestamp):
		return m.CreationTimestamp.Time
	case c.LastTransitionTime.Sub(m.CreationTimestamp.Time) <= health.Settling:
		return time.Time{}
	}
	return c.LastTransitionTime.Time
}

// finalFailure is what Cluster API says has failed for good, from which the machine never recovers; empty if nothing has. Core copies it from the
// infrastructure machine, or sets it if that was deleted, and takes it back never. Since v1.11 nobody in Cluster API acts on it.
func finalFailure(m *clusterv1.Machine) string {
	if m.Status.Deprecated == nil || m.Status.Deprecated.V1Beta1 == nil {
		return ""
	}
	var parts []string
	if reason := ptr.Deref(m.Status.Deprecated.V1Beta1.FailureReason, ""); reason != "" {
		parts = append(parts, "FailureReason: "+string(reason))
	}
	if message := ptr.Deref(m.Status.Deprecated.V1Beta1.FailureMessage, ""); message != "" {
		parts = append(parts, "FailureMessage: "+strings.Join(strings.Fields(message), " "))
	}
	return strings.Join(parts, ", ")
}
