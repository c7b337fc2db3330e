// Package capi has conventions of Cluster API that several controllers share: which manager reconciles an object, which check judges a
// Machine, and how the conditions of a Machine are written.
package capi

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// Judges reports whether check selects m and a controller acts on check: kubemend if check is claimed, Cluster API core if it is not
// paused. An empty selector selects nothing, as in Cluster API.
func Judges(check *clusterv1.MachineHealthCheck, m *clusterv1.Machine) bool {
	by, paused := check.Annotations[clusterv1.PausedAnnotation]
	selector, err := metav1.LabelSelectorAsSelector(&check.Spec.Selector)
	return err == nil && !selector.Empty() && check.DeletionTimestamp.IsZero() && (!paused || by == mendv1.Claim) &&
		check.Spec.ClusterName == m.Spec.ClusterName && selector.Matches(labels.Set(m.Labels))
}

// Covers reports whether a manager with this value of --watch-filter reconciles obj. An empty value covers all objects. The label
// cluster.x-k8s.io/watch-filter of obj decides; without it, the label of its Cluster. So only one manager reconciles obj if the two labels
// differ. The cluster is nil if there is none, or if its label does not count.
func Covers(value string, obj client.Object, cluster *clusterv1.Cluster) bool {
	filter, labelled := obj.GetLabels()[clusterv1.WatchLabel]
	if !labelled && cluster != nil {
		filter = cluster.GetLabels()[clusterv1.WatchLabel]
	}
	return value == "" || filter == value
}
