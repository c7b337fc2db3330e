package workload

import (
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// OnFenced has enqueue called for every event of a node that a remediation has signed, in clusters whose nodes are cached for others anyway, and at once
// for those clusters that are. enqueue must not block.
func (c *Clusters) OnFenced(enqueue func(cluster client.ObjectKey)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fenced = enqueue
	for cluster, is := range c.states {
		if is.nodes != nil {
			enqueue(cluster)
		}
	}
}

// reportFenced calls the function of OnFenced for a cluster with a node that is signed.
func (c *Clusters) reportFenced(cluster client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fenced != nil {
		c.fenced(cluster)
	}
}

// Fenced returns the nodes of a cluster that a remediation has signed, as the cache has them; none if the nodes of the cluster are not cached. They
// are slim, and shared: read only.
func (c *Clusters) Fenced(cluster client.ObjectKey) []*corev1.Node {
	c.mu.Lock()
	informer := c.of(cluster).nodes
	c.mu.Unlock()
	if informer == nil || informer.IsStopped() || !informer.HasSynced() {
		return nil
	}
	var fenced []*corev1.Node
	for _, obj := range informer.GetStore().List() {
		if node := obj.(*corev1.Node); signed(node) {
			fenced = append(fenced, node)
		}
	}
	return fenced
}

func signed(node *corev1.Node) bool { return node.Annotations[mendv1.FencedByAnnotation] != "" }

// reportFenced handles events of nodes that are signed.
func (s nodeStore) reportFenced() toolscache.ResourceEventHandler {
	hear := func(obj any) {
		if node, ok := obj.(*corev1.Node); ok && signed(node) {
			s.clusters.reportFenced(s.cluster)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{AddFunc: hear, UpdateFunc: func(_, obj any) { hear(obj) }}
}
