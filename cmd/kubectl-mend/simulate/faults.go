package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
)

// named are the names that --fail gives.
type named struct{ machines, nodes []string }

// namesIn returns the names in a list such as machine/w1,node/n2; false if it is none, but a selector. A label may have a slash as well, but not
// without an operator.
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
func (o *environment) failing(ctx context.Context, fail string) ([]nodeKey, error) {
	names, listed := namesIn(fail)
	selector, err := labels.Parse(fail)
	if err != nil && !listed {
		return nil, fmt.Errorf("--fail %q: expected a label selector, or machine/NAME and node/NAME separated by commas: %w", fail, err)
	}
	machines := &clusterv1.MachineList{}
	if err := o.client.List(ctx, machines, client.InNamespace(o.namespace), client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	nodes := &corev1.NodeList{}
	if err := o.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	var found []nodeKey
	if listed {
		found, err = o.failingNames(names, machines.Items, nodes.Items)
	} else {
		found, err = o.failingLabels(selector, machines.Items, nodes.Items)
	}
	if err != nil {
		return nil, fmt.Errorf("--fail %s: %w", fail, err)
	}
	slices.SortFunc(found, func(a, b nodeKey) int {
		return cmp.Or(cmp.Compare(a.cluster.String(), b.cluster.String()), cmp.Compare(a.name, b.name))
	})
	return slices.Compact(found), nil
}

// failingLabels are the nodes of the machines that a selector selects, and the nodes of the management cluster that it selects. Labels of nodes of
// workload clusters do not count.
func (o *environment) failingLabels(selector labels.Selector, machines []clusterv1.Machine, nodes []corev1.Node) ([]nodeKey, error) {
	var found []nodeKey
	var hidden error
	for i := range machines {
		if !selector.Matches(labels.Set(machines[i].Labels)) {
			continue
		}
		if p, err := o.nodeOf(&machines[i]); err == nil {
			found = append(found, p)
		} else if hidden == nil {
			hidden = err
		}
	}
	for i := range nodes {
		if selector.Matches(labels.Set(nodes[i].Labels)) {
			found = append(found, nodeKeyIn(o.snapshot, &nodes[i]))
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
func (o *environment) failingNames(names named, machines []clusterv1.Machine, nodes []corev1.Node) ([]nodeKey, error) {
	found := make([]nodeKey, 0, len(names.machines)+len(names.nodes))
	errs := make([]error, 0, cap(found))
	for _, name := range names.machines {
		p, err := o.machineNamed(name, machines)
		found, errs = append(found, p), append(errs, err)
	}
	for _, name := range names.nodes {
		p, err := o.nodeNamed(name, nodes)
		found, errs = append(found, p), append(errs, err)
	}
	return found, errors.Join(errs...)
}

func (o *environment) machineNamed(name string, machines []clusterv1.Machine) (nodeKey, error) {
	var namespaces []string
	at := 0
	for i := range machines {
		if machines[i].Name == name {
			namespaces, at = append(namespaces, machines[i].Namespace), i
		}
	}
	switch len(namespaces) {
	case 0:
		return nodeKey{}, fmt.Errorf("there is no machine called %s", name)
	case 1:
		return o.nodeOf(&machines[at])
	}
	return nodeKey{}, fmt.Errorf("there is a machine called %s in several namespaces: say which with -n: %s", name, strings.Join(namespaces, ", "))
}

// nodeOf is the node of a machine. The error says why there is none that could fail.
func (o *environment) nodeOf(m *clusterv1.Machine) (nodeKey, error) {
	p, has := nodeKeyOf(m)
	if !has {
		return nodeKey{}, fmt.Errorf("machine %s has no node", m.Name)
	}
	if why, _, unseen := o.snapshot.Unseen(p.cluster); unseen {
		return nodeKey{}, fmt.Errorf("the nodes of cluster %s, which machine %s is of, are unknown: %s", p.cluster, m.Name, why)
	}
	if o.snapshot.Node(p.cluster, p.name) == nil {
		return nodeKey{}, fmt.Errorf("the node %s of machine %s is not there", p.name, m.Name)
	}
	return p, nil
}

func (o *environment) nodeNamed(name string, nodes []corev1.Node) (nodeKey, error) {
	var found []nodeKey
	var where, hidden []string
	for _, cluster := range o.snapshot.Workloads() {
		if o.namespace != "" && o.namespace != cluster.Namespace {
			continue
		}
		if _, _, unseen := o.snapshot.Unseen(cluster); unseen {
			hidden = append(hidden, cluster.String())
		} else if o.snapshot.Node(cluster, name) != nil {
			found, where = append(found, nodeKey{cluster, name}), append(where, "of cluster "+cluster.String())
		}
	}
	for i := range nodes {
		if p := nodeKeyIn(o.snapshot, &nodes[i]); nodes[i].Name == name && !slices.Contains(found, p) {
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
