package simulate

import (
	"cmp"
	"context"
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

// failing are the nodes that --fail selects, each once.
func (o *outside) failing(ctx context.Context, fail string) ([]place, error) {
	names, listed := namesIn(fail)
	selector, err := labels.Parse(fail)
	if err != nil && !listed {
		return nil, fmt.Errorf("--fail %q: expected a label selector, or machine/NAME and node/NAME separated by commas: %w", fail, err)
	}
	var found []place
	missing := append(slices.Clone(names.machines), names.nodes...)
	add := func(p place, name string) {
		missing = slices.DeleteFunc(missing, func(m string) bool { return m == name })
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	machines := &clusterv1.MachineList{}
	if err := o.client.List(ctx, machines, client.InNamespace(o.namespace), client.UnsafeDisableDeepCopy); err != nil && !unreadable(err) {
		return nil, fmt.Errorf("list machines: %w", err)
	}
	o.failingMachines(machines.Items, func(m *clusterv1.Machine) bool {
		return listed && slices.Contains(names.machines, m.Name) || !listed && selector.Matches(labels.Set(m.Labels))
	}, add)
	o.failingNodes(ctx, names, func(node *corev1.Node) bool {
		return listed && slices.Contains(names.nodes, node.Name) || !listed && selector.Matches(labels.Set(node.Labels))
	}, add)
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("--fail: there is no machine with a node, or no node, called %s", strings.Join(missing, ", "))
	case len(found) == 0:
		return nil, fmt.Errorf("--fail %q selects no machine that has a node, and no node of the management cluster", fail)
	}
	slices.SortFunc(found, func(a, b place) int {
		return cmp.Or(cmp.Compare(a.cluster.String(), b.cluster.String()), cmp.Compare(a.name, b.name))
	})
	return found, nil
}

// failingMachines adds the nodes of the machines that are meant.
func (o *outside) failingMachines(machines []clusterv1.Machine, meant func(*clusterv1.Machine) bool, add func(place, string)) {
	for i := range machines {
		m := &machines[i]
		if p, has := placeOf(m); has && o.world.Node(p.cluster, p.name) != nil && meant(m) {
			add(p, m.Name)
		}
	}
}

// failingNodes adds the nodes that are meant, of the management cluster and of the workload clusters; in these, labels of nodes are not looked
// at, so that only names are found.
func (o *outside) failingNodes(ctx context.Context, names named, meant func(*corev1.Node) bool, add func(place, string)) {
	for _, cluster := range o.world.Workloads() {
		if o.namespace != "" && o.namespace != cluster.Namespace {
			continue
		}
		for _, node := range o.world.Nodes(cluster) {
			if slices.Contains(names.nodes, node.Name) {
				add(place{cluster, node.Name}, node.Name)
			}
		}
	}
	nodes := &corev1.NodeList{}
	_ = o.client.List(ctx, nodes, client.UnsafeDisableDeepCopy) // if they were not read there is none that could fail
	for i := range nodes.Items {
		if node := &nodes.Items[i]; meant(node) {
			add(placeIn(o.world, node), node.Name)
		}
	}
}

// placeIn is where a node of the management cluster is known: in the workload cluster that it belongs to as well, if there is one.
func placeIn(w *snapshot.World, node *corev1.Node) place {
	for _, cluster := range w.Workloads() {
		if is := w.Node(cluster, node.Name); is != nil && is.UID == node.UID {
			return place{cluster, node.Name}
		}
	}
	return place{name: node.Name}
}
