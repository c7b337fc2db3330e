package health

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// IsNodeOf reports whether node is the Node of m. If both have a provider ID, it decides, as in Cluster API, because another machine may
// use the name by now. Else the name decides: a Node that registers while the cloud controller is down has no provider ID. Provider IDs of
// Azure differ in case.
func IsNodeOf(m *clusterv1.Machine, node *corev1.Node) bool {
	if m.Spec.ProviderID != "" && node.Spec.ProviderID != "" {
		return strings.EqualFold(m.Spec.ProviderID, node.Spec.ProviderID)
	}
	return node.Name == m.Status.NodeRef.Name
}

// NodeOf returns the Node of m, given the Node with the name in status.nodeRef (or nil) and the Nodes with the provider ID of m. If several
// Nodes have the provider ID, or if the named Node has another one, node is nil and other is the Node that is in conflict.
func NodeOf(m *clusterv1.Machine, named *corev1.Node, provided []*corev1.Node) (node, other *corev1.Node) {
	if named != nil && IsNodeOf(m, named) && !slices.Contains(provided, named) {
		provided = append(slices.Clip(provided), named)
	}
	switch len(provided) {
	case 0:
		return nil, named
	case 1:
		return provided[0], nil
	}
	return nil, provided[0]
}

// Ready reports whether node's condition Ready is True; false for nil.
func Ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
		return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
	})
}

// Other is a Node that is in conflict with a Machine, so that the Machine's Node is not known. Wanted is the Machine's provider ID.
type Other struct{ Name, ProviderID, Wanted string }

// Twin reports whether the conflict is that several Nodes have the Machine's provider ID.
func (o Other) Twin() bool { return o.Wanted != "" && strings.EqualFold(o.ProviderID, o.Wanted) }
