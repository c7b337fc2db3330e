// Package capi has the conventions of Cluster API that several controllers go by: which manager an object belongs to, which check judges
// a Machine, and how its conditions are written, in both flavours.
package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Covers reports whether a manager with a value of --watch-filter looks at an object: by the object's own label
// cluster.x-k8s.io/watch-filter, or, if it has none, by that of its Cluster. So exactly one manager does, whatever label the other one
// has. The cluster is nil if there is none, or if only the object's own label counts. An empty value covers all.
func Covers(value string, obj client.Object, cluster *clusterv1.Cluster) bool {
	filter, labelled := obj.GetLabels()[clusterv1.WatchLabel]
	if !labelled && cluster != nil {
		filter = cluster.GetLabels()[clusterv1.WatchLabel]
	}
	return value == "" || filter == value
}
