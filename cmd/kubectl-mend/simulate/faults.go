package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// named are the names that --fail gives.
type named struct{ machines, nodes []string }

// namesIn returns the names in a list such as machine/w1,node/n2; false if it is none, but a selector. A label may have a slash
// as well, but not without an operator.
func namesIn(fail string) (named, bool) {
	var n named
	for part := range strings.SplitSeq(fail, ",") {
		kind, name, _ := strings.Cut(strings.TrimSpace(part), "/")
		if name == "" || strings.ContainsAny(name, "=!( /") {
			return named{}, false
		}
		switch strings.ToLower(kind) {
		case "machine", "machines", "ma":
			n.machines = append(n.machines, name)
		case "node", "nodes", "no":
			n.nodes = append(n.nodes, name)
		default:
			return named{}, false
		}
	}
	return n, true
}

// failing are the nodes that --fail names or selects, each once, in the order of their names.
func (s *engine) failing(fail string) ([]nodeKey, error) {
	names, listed := namesIn(fail)
	selector, err := labels.Parse(fail)
	if err != nil && !listed {
		return nil, fmt.Errorf("--fail %q: expected a label selector, or machine/NAME and node/NAME separated by commas: %w", fail, err)
	}
	machines := snapshot.All[clusterv1.Machine](s.snapshot, s.question.Namespace)
	nodes := snapshot.All[corev1.Node](s.snapshot, "")
	var found []nodeKey
	if listed {
		found, err = s.failingNames(names, machines, nodes)
	} else {
		found, err = s.failingLabels(selector, machines, nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("--fail %s: %w", fail, err)
	}
	slices.SortFunc(found, func(a, b nodeKey) int {
		return cmp.Or(cmp.Compare(a.cluster.String(), b.cluster.String()), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(found), nil
}

// failingLabels are the nodes of the machines that a selector selects, and the nodes of the management cluster that it selects.
// Labels of nodes of workload clusters do not count.
func (s *engine) failingLabels(selector labels.Selector, machines []*clusterv1.Machine, nodes []*corev1.Node) ([]nodeKey, error) {
	var found []nodeKey
	var hidden error
	for _, m := range machines {
		if !selector.Matches(labels.Set(m.Labels)) {
			continue
		}
		if p, err := s.nodeOf(m); err == nil {
			found = append(found, p)
		} else if hidden == nil {
			hidden = err
		}
	}
	for _, node := range nodes {
		if selector.Matches(labels.Set(node.Labels)) {
			found = append(found, nodeKeyIn(s.snapshot, node))
		}
	}
	switch {
	case len(found) > 0:
		return found, nil
	case hidden != nil:
		return nil, fmt.Errorf("it selects no machine whose node is known: %w", hidden)
	}
	return nil, errors.New("it selects no machine that has a node, and no node of the management cluster")
}

// failingNames are the nodes of the machines that are named, and the nodes that are. Each name has to be that of one alone.
func (s *engine) failingNames(names named, machines []*clusterv1.Machine, nodes []*corev1.Node) ([]nodeKey, error) {
	var found []nodeKey
	var errs []error
	add := func(p nodeKey, err error) { found, errs = append(found, p), append(errs, err) }
	for _, name := range names.machines {
		add(s.machineNamed(name, machines))
	}
	for _, name := range names.nodes {
		add(s.nodeNamed(name, nodes))
	}
	return found, errors.Join(errs...)
}

func (s *engine) machineNamed(name string, machines []*clusterv1.Machine) (nodeKey, error) {
	var namespaces []string
	var is *clusterv1.Machine
	for _, m := range machines {
		if m.Name == name {
			namespaces, is = append(namespaces, m.Namespace), m
		}
	}
	switch len(namespaces) {
	case 0:
		return nodeKey{}, fmt.Errorf("there is no machine called %s", name)
	case 1:
		return s.nodeOf(is)
	}
	return nodeKey{}, fmt.Errorf("there is a machine called %s in several namespaces: say which with -n: %s", name, strings.Join(namespaces, ", "))
}

// nodeOf is the node of a machine. The error says why there is none that could fail.
func (s *engine) nodeOf(m *clusterv1.Machine) (nodeKey, error) {
	p, has := nodeKeyOf(m)
	if !has {
		return nodeKey{}, fmt.Errorf("machine %s has no node", m.Name)
	}
	if why, _, unseen := s.snapshot.Unseen(p.cluster); unseen {
		return nodeKey{}, fmt.Errorf("the nodes of cluster %s, which machine %s is of, are unknown: %s", p.cluster, m.Name, why)
	}
	if s.snapshot.Node(p.cluster, p.name) == nil {
		return nodeKey{}, fmt.Errorf("the node %s of machine %s is not there", p.name, m.Name)
	}
	return p, nil
}

func (s *engine) nodeNamed(name string, nodes []*corev1.Node) (nodeKey, error) {
	var found []nodeKey
	var where, hidden []string
	for _, cluster := range s.snapshot.Workloads() {
		if s.question.Namespace != "" && s.question.Namespace != cluster.Namespace {
			continue
		}
		if _, _, unseen := s.snapshot.Unseen(cluster); unseen {
			hidden = append(hidden, cluster.String())
		} else if s.snapshot.Node(cluster, name) != nil {
			found, where = append(found, nodeKey{cluster, name}), append(where, "of cluster "+cluster.String())
		}
	}
	for _, node := range nodes {
		if p := nodeKeyIn(s.snapshot, node); node.Name == name && !slices.Contains(found, p) {
			found, where = append(found, p), append(where, "of the management cluster")
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nodeKey{}, fmt.Errorf("there are several nodes called %s: say which by its machine/NAME, or by a label: %s", name, strings.Join(where, ", "))
	case len(hidden) > 0:
		return nodeKey{}, fmt.Errorf("there is no node called %s where nodes are known: those of cluster %s are not", name, strings.Join(hidden, ", "))
	}
	return nodeKey{}, fmt.Errorf("there is no node called %s", name)
}

// nodeKeyIn is where a node of the management cluster is known: in the workload cluster that it belongs to as well, if there is one.
func nodeKeyIn(w *snapshot.Snapshot, node *corev1.Node) nodeKey {
	for _, cluster := range w.Workloads() {
		if is := w.Node(cluster, node.Name); is != nil && is.UID == node.UID {
			return nodeKey{cluster, node.Name}
		}
	}
	return nodeKey{name: node.Name}
}
