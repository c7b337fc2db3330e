package health

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// IsNodeOf reports whether node is that of m. Two provider IDs decide, since Cluster API finds Nodes by them and a name may be another
// machine's by now; without one the name does: a kubelet that registers while the cloud controller is down has none.
// Azure's differ in case.
func IsNodeOf(m *clusterv1.Machine, node *corev1.Node) bool {
	if m.Spec.ProviderID != "" && node.Spec.ProviderID != "" {
		return strings.EqualFold(m.Spec.ProviderID, node.Spec.ProviderID)
	}
	return node.Name == m.Status.NodeRef.Name
}

// NodeOf is the Node of m, given the one that has its name, or nil, and those that have its provider ID. Of several, or if there is
// only one that has the name, node is nil and other is in the way.
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

// Ready reports whether node says that it is ready; nil, which was not seen, does not.
func Ready(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(cond corev1.NodeCondition) bool {
		return cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
	})
}

// Other is what is in the way. Wanted is the provider ID of the Machine.
type Other struct{ Name, ProviderID, Wanted string }

// Twin reports whether o is one of several of the Machine's provider ID.
func (o Other) Twin() bool { return o.Wanted != "" && strings.EqualFold(o.ProviderID, o.Wanted) }
