package workload

import (
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

// ViewOf returns the view of a cluster that answers, and has these nodes and no others. It is for who looks without a connection that lasts.
func ViewOf(nodes ...*corev1.Node) View {
	store := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{})
	for _, node := range nodes {
		_ = store.Add(node) // fails only for what has no metadata
	}
	return View{Link: Up, nodes: store}
}
