package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// candidate is a node that may fail: a check selects it, alone or by its machine.
type candidate struct {
	nodeKey

	machine string // its name; empty if it is not known
	labels  labels.Set
	healthy bool
}

// candidates are those of the checks that the answer is about, by name. unknown is why nodes of others are not known; empty if they are.
func (s *simulation) candidates(checks []explain.Check) (candidates []candidate, unknown string) {
	for i := range checks {
		check := &checks[i]
		if !s.concerns(check.Reference) {
			continue
		}
		if check.NodesUnknown != nil {
			unknown = cmp.Or(unknown, check.NodesUnknown.Message)
		}
		for j := range check.Targets {
			target := &check.Targets[j]
			c := candidate{nodeKey: s.nodeOf(check, target), healthy: target.State == cliv1.StateHealthy && target.Skipped == ""}
			node := s.node(c.nodeKey)
			if node == nil {
				continue
			}
			c.labels = node.Labels
			switch machine := snapshot.One[clusterv1.Machine](s.snapshot, client.ObjectKey{Namespace: target.Namespace, Name: target.Name}); {
			case target.Machine != nil:
				c.machine = target.Machine.Name
			case target.Kind == "Machine" && machine != nil:
				c.machine, c.labels = machine.Name, machine.Labels
			}
			candidates = append(candidates, c)
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return compareNodes(a.nodeKey, b.nodeKey) })
	return candidates, unknown
}

func compareNodes(a, b nodeKey) int {
	return cmp.Or(cmp.Compare(a.cluster.String(), b.cluster.String()), cmp.Compare(a.name, b.name))
}

// chosen are the nodes that --fail means, each once, by name: so many of the healthy ones, those that it names, or those that it selects.
func chosen(fail string, candidates []candidate) ([]nodeKey, error) {
	number, err := strconv.Atoi(fail)
	if err == nil {
		nodes := nodesOf(candidates, func(c candidate) bool { return c.healthy })
		if number < 1 || number > len(nodes) {
			return nil, fmt.Errorf("the checks select %d healthy nodes: expected a number from 1 to that", len(nodes))
		}
		return nodes[:number], nil
	}
	if kind, _, listed := strings.Cut(fail, "/"); listed && slices.Contains(kinds, kind) {
		return named(strings.Split(fail, ","), candidates)
	}
	selector, err := labels.Parse(fail)
	if err != nil {
		return nil, fmt.Errorf("expected a number, a label selector, or machine/NAME and node/NAME separated by commas: %w", err)
	}
	nodes := nodesOf(candidates, func(c candidate) bool { return selector.Matches(c.labels) })
	if len(nodes) == 0 {
		return nil, errors.New("it selects no machine or node that a check selects and whose node is known")
	}
	return nodes, nil
}

// kinds are what names of --fail begin with; the first two are of nodes.
var kinds = []string{"node", "no", "machine", "ma"}

// named are the nodes of names such as machine/w1 and node/n2, each of which has to be that of one alone.
func named(names []string, candidates []candidate) ([]nodeKey, error) {
	var nodes []nodeKey
	for _, text := range names {
		kind, name, _ := strings.Cut(strings.TrimSpace(text), "/")
		found := nodesOf(candidates, func(c candidate) bool {
			return name != "" && (slices.Contains(kinds[:2], kind) && c.name == name || slices.Contains(kinds[2:], kind) && c.machine == name)
		})
		switch len(found) {
		case 0:
			return nil, fmt.Errorf("there is no %q that a check selects and whose node is known", text)
		case 1:
			nodes = append(nodes, found...)
		default:
			return nil, fmt.Errorf("there are several called %q: say which with -n, or by a label", text)
		}
	}
	slices.SortFunc(nodes, compareNodes)
	return slices.Compact(nodes), nil
}

// nodesOf are the nodes of the candidates that are wanted, each once.
func nodesOf(candidates []candidate, wanted func(candidate) bool) []nodeKey {
	var nodes []nodeKey
	for _, c := range candidates {
		if wanted(c) {
			nodes = append(nodes, c.nodeKey)
		}
	}
	return slices.Compact(nodes)
}
