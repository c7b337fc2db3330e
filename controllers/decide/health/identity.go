package health

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// IsNodeOf reports whether node is that of m. Where both have a provider ID it decides, since Cluster API finds Nodes by it and a name may be another machine's
// by now; where one has none, the name does: a kubelet that registers while the cloud controller is down gives none. Azure spells one ID in two cases.
func IsNodeOf(m *clusterv1.Machine, node *corev1.Node) bool {
	if m.Spec.ProviderID != "" && node.Spec.ProviderID != "" {
		return strings.EqualFold(m.Spec.ProviderID, node.Spec.ProviderID)
	}
	return node.Name == m.Status.NodeRef.Name
}

// NodeOf is the Node of m, given the one that has its name, or nil, and those that have its provider ID. If it is not known which one that is, node is nil, and
// other is what is in the way: one of several, or one that has the name alone.
func NodeOf(m *clusterv1.Machine, named *corev1.Node, provided []*corev1.Node) (node, other *corev1.Node) {
	own := named != nil && IsNodeOf(m, named)
	if own && !slices.ContainsFunc(provided, func(n *corev1.Node) bool { return n.Name == named.Name }) {
		provided = append(slices.Clip(provided), named)
	}
	switch {
	case len(provided) > 1:
		return nil, provided[0]
	case len(provided) == 1:
		return provided[0], nil
	}
	return nil, named
}

// Other is a Node for which the Node of a Machine is not known: it has the name that the Machine's would have, and not its provider ID, or there are several of
// that provider ID. Wanted is the Machine's.
type Other struct{ Name, ProviderID, Wanted string }

// Twin reports whether o is one of several of the Machine's provider ID.
func (o Other) Twin() bool { return o.Wanted != "" && strings.EqualFold(o.ProviderID, o.Wanted) }
