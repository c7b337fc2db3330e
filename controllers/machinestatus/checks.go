package machinestatus

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Judges reports whether somebody judges m by check: Cluster API core, unless check is paused, or kubemend, if it is claimed. An empty
// selector selects nothing. (Cluster API.)
func Judges(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	by, paused := check.Annotations[clusterv1.PausedAnnotation]
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	return err == nil && !selector.Empty() && check.DeletionTimestamp.IsZero() && (!paused || by == mendv1.Claim) &&
		check.Spec.ClusterName == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))
}
