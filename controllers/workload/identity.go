package workload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/controllers/decide/health"
)

// byProviderID is the index of a cache of nodes by their provider IDs, in lower case.
const byProviderID = "kubemend.providerID"

// indexed adds that index to a cache of nodes.
func indexed(nodes toolscache.Indexer) error {
	if nodes.GetIndexers()[byProviderID] != nil {
		return nil
	}
	return nodes.AddIndexers(toolscache.Indexers{byProviderID: func(obj any) ([]string, error) {
		if node, ok := obj.(*corev1.Node); ok && node.Spec.ProviderID != "" {
			return []string{strings.ToLower(node.Spec.ProviderID)}, nil
		}
		return nil, nil
	}})
}

// NodeOf returns the node of m, or what is in the way of knowing it: see health.NodeOf. Both are shared, as Node's are. A machine that
// has named no node would have one of its own name.
func (v View) NodeOf(m *clusterv1.Machine) (node, other *corev1.Node) {
	var named *corev1.Node
	if m.Status.NodeRef.Name != "" {
		named = v.Node(m.Status.NodeRef.Name)
	}
	if named == nil {
		named = v.Node(m.Name)
	}
	return health.NodeOf(m, named, v.provided(m.Spec.ProviderID))
}

// provided are the nodes of that provider ID.
func (v View) provided(id string) []*corev1.Node {
	id = strings.ToLower(id)
	switch indexer, ok := v.nodes.(toolscache.Indexer); {
	case id == "":
		return nil
	case v.ids != nil:
		return v.ids()[id]
	case ok:
		objects, _ := indexer.ByIndex(byProviderID, id) // there is that index
		return byID(objects)[id]
	}
	return nil
}

// byID are nodes by their provider IDs, in lower case, and those of one by their names: a cache lists them in any order.
func byID(objects []any) map[string][]*corev1.Node {
	ids := map[string][]*corev1.Node{}
	for _, obj := range objects {
		if node := obj.(*corev1.Node); node.Spec.ProviderID != "" {
			id := strings.ToLower(node.Spec.ProviderID)
			ids[id] = append(ids[id], node)
		}
	}
	for _, nodes := range ids {
		slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	}
	return ids
}
