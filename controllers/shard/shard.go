// Package shard says to which manager an object belongs, of several that share the work by the flag --watch-filter. It reads labels, and nothing else.
package shard

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Covers reports whether a manager with a value of --watch-filter looks at an object: by the object's own label cluster.x-k8s.io/watch-filter, or, if it
// has none, by that of its Cluster. So exactly one manager does, whatever label the other one has. The cluster is nil if there is none, or if only the
// object's own label counts. An empty value covers all.
func Covers(value string, obj client.Object, cluster *clusterv1.Cluster) bool {
	return value == "" || Of(obj, cluster) == value
}

// Of is the value of the label by which an object belongs to a manager; empty if it has none.
func Of(obj client.Object, cluster *clusterv1.Cluster) string {
	own, labelled := obj.GetLabels()[clusterv1.WatchLabel]
	if labelled || cluster == nil {
		return own
	}
	return cluster.GetLabels()[clusterv1.WatchLabel]
}
