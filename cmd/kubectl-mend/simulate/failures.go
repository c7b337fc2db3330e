package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	cliv1 "github.com/kubemend/kubemend/api/cli/v1alpha1"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/cmd/kubectl-mend/text"
	"github.com/kubemend/kubemend/controllers/explain"
)

// nodeKey names a node. The cluster is empty for a node of the management cluster.
type nodeKey struct {
	cluster client.ObjectKey
	name    string
}

func compareNodes(a, b nodeKey) int {
	return cmp.Or(cmp.Compare(a.cluster.String(), b.cluster.String()), cmp.Compare(a.name, b.name))
}

// fail sets Ready to Unknown on the nodes that --fail chooses among those of checks.
func (s *simulation) fail(checks []explain.Check) error {
	if len(s.Fail) == 0 {
		return nil
	}
	candidates, unknown := s.candidates(checks)
	for _, what := range s.Fail {
		nodes, err := chosen(what, candidates, s.failed)
		if err != nil && unknown != "" {
			err = fmt.Errorf("%w; %s", err, unknown)
		}
		if err != nil {
			return fmt.Errorf("--fail %q: %w", what, err)
		}
		for _, node := range nodes {
			s.failed[node], s.unnoticed[node] = true, true
		}
	}
	silent := corev1.NodeCondition{ // what the node lifecycle controller writes when a kubelet stops posting its status
		Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown",
		Message: "Kubelet stopped posting node status.", LastTransitionTime: metav1.NewTime(s.clock.Now()),
	}
	names := make([]string, 0, len(s.failed))
	for _, node := range slices.SortedFunc(maps.Keys(s.failed), compareNodes) {
		names = append(names, node.name)
		s.edit(node, func(obj *corev1.Node) {
			obj.Status.Conditions = slices.DeleteFunc(obj.Status.Conditions,
				func(c corev1.NodeCondition) bool { return c.Type == corev1.NodeReady })
			obj.Status.Conditions = append(obj.Status.Conditions, silent)
		})
	}
	lasts := ""
	if s.For > 0 {
		lasts = " for " + explain.Brief(s.For)
	}
	s.assume(fmt.Sprintf("Nodes that turn Ready=Unknown at once%s (--fail, --for): %s", lasts, text.FirstOf(names, mostNames)))
	return nil
}

// candidate is a node that may fail because a check selects the node or its machine.
type candidate struct {
	nodeKey

	names   []string // what --fail calls it: node/NAME, and the names of its machine and of its failure domain, if these are known
	labels  labels.Set
	healthy bool
}

// candidates returns the nodes of the checks that the answer is about, sorted by name. unknown is why other nodes could not be read.
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
			c.labels, c.names = node.Labels, []string{"node/" + node.Name}
			machine := cmp.Or(s.machine(*cmp.Or(target.Machine, &target.Reference)), &clusterv1.Machine{})
			if target.Machine == nil && machine.Name != "" {
				c.labels = machine.Labels
			}
			if name := cmp.Or(ptr.Deref(target.Machine, explain.Ref{}).Name, machine.Name); name != "" {
				c.names = append(c.names, "machine/"+name)
			}
			c.names = append(c.names, domainPrefix+s.machines.FailureDomain(machine, node))
			candidates = append(candidates, c)
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return compareNodes(a.nodeKey, b.nodeKey) })
	return candidates, unknown
}

// chosen returns the nodes that one --fail selects, sorted by name: a number of healthy nodes that have not failed yet, named nodes, or the
// nodes that a label selector matches.
func chosen(fail string, candidates []candidate, failed map[nodeKey]bool) ([]nodeKey, error) {
	number, err := strconv.Atoi(fail)
	if err == nil {
		nodes := nodesOf(candidates, func(c candidate) bool { return c.healthy && !failed[c.nodeKey] })
		if number < 1 || number > len(nodes) {
			return nil, fmt.Errorf("expected at least 1 and at most %d, the number of healthy nodes that the checks select", len(nodes))
		}
		return nodes[:number], nil
	}
	for _, prefix := range []string{"node/", "machine/", domainPrefix} {
		if strings.HasPrefix(fail, prefix) {
			return named(strings.Split(fail, ","), candidates)
		}
	}
	selector, err := labels.Parse(fail)
	if err != nil {
		return nil, fmt.Errorf("expected a number, a label selector, or machine/NAME, node/NAME, failuredomain/NAME with commas: %w", err)
	}
	nodes := nodesOf(candidates, func(c candidate) bool { return selector.Matches(c.labels) })
	if len(nodes) == 0 {
		return nil, errors.New("it selects no machine or node that a check selects and whose node is known")
	}
	return nodes, nil
}

const domainPrefix = "failuredomain/"

// named returns the nodes of names such as machine/w1, node/n2 and failuredomain/b. A machine or node name has to match one node only.
func named(names []string, candidates []candidate) ([]nodeKey, error) {
	nodes := make([]nodeKey, 0, len(names))
	for _, name := range names {
		name = strings.TrimSpace(name)
		found := nodesOf(candidates, func(c candidate) bool { return !strings.HasSuffix(name, "/") && slices.Contains(c.names, name) })
		if len(found) == 0 {
			return nil, fmt.Errorf("nothing that a check selects and whose node is known is called %q", name)
		}
		if len(found) > 1 && !strings.HasPrefix(name, domainPrefix) {
			return nil, fmt.Errorf("there are several called %q: say which with -n, or by a label", name)
		}
		nodes = append(nodes, found...)
	}
	slices.SortFunc(nodes, compareNodes)
	return slices.Compact(nodes), nil
}

// nodesOf returns the nodes of the wanted candidates, each once.
func nodesOf(candidates []candidate, wanted func(candidate) bool) []nodeKey {
	var nodes []nodeKey
	for _, c := range candidates {
		if wanted(c) {
			nodes = append(nodes, c.nodeKey)
		}
	}
	return slices.Compact(nodes)
}

// mostNames limits the names in one sentence.
const mostNames = 20

func (s *simulation) ready(node nodeKey) {
	delete(s.failed, node)
	s.edit(node, func(obj *corev1.Node) {
		obj.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.NewTime(s.clock.Now()),
		}}
	})
}

// heal ends the remediation of a target: it makes the node Ready, and the machine like a new one.
func (s *simulation) heal(target explain.Ref, node nodeKey) {
	s.ready(node)
	machine := s.machine(target).DeepCopy()
	if machine == nil {
		return
	}
	delete(machine.Annotations, clusterv1.RemediateMachineAnnotation)
	machine.DeletionTimestamp = nil
	machine.Status = clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node.name}, Conditions: []metav1.Condition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue,
		Reason: clusterv1.MachineInfrastructureReadyReason, LastTransitionTime: metav1.NewTime(s.clock.Now()),
	}}}
	_ = s.snapshot.Add(machine) // fails only for an unknown type
}

// machine returns the Machine of a target, which callers must not change; nil if there is none.
func (s *simulation) machine(target explain.Ref) *clusterv1.Machine {
	if target.Kind != "Machine" {
		return nil
	}
	return snapshot.One[clusterv1.Machine](s.snapshot, client.ObjectKey{Namespace: target.Namespace, Name: target.Name})
}

// edit changes a node, or creates it. It changes every copy: a node of a cluster that manages itself is twice in the snapshot.
func (s *simulation) edit(key nodeKey, change func(*corev1.Node)) {
	node := s.node(key).DeepCopy()
	if node == nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key.name, CreationTimestamp: metav1.NewTime(s.clock.Now())}}
	}
	change(node)
	for _, cluster := range append(s.snapshot.Workloads(), client.ObjectKey{}) {
		known := s.node(nodeKey{cluster, key.name})
		if cluster != key.cluster && (known == nil || known.UID != node.UID) {
			continue
		}
		if cluster == (client.ObjectKey{}) {
			_ = s.snapshot.Add(node) // fails only for an unknown type
		} else {
			s.snapshot.PutNode(cluster, node)
		}
	}
}

// node returns a node, which callers must not change, or nil.
func (s *simulation) node(key nodeKey) *corev1.Node {
	if key.cluster == (client.ObjectKey{}) {
		return snapshot.One[corev1.Node](s.snapshot, client.ObjectKey{Name: key.name})
	}
	return s.snapshot.Node(key.cluster, key.name)
}

// nodeOf returns the node of a target. A machine without a node gets a node of its own name when its remediation ends. If a node of the
// management cluster is also a node of a workload cluster, nodeOf returns the latter.
func (s *simulation) nodeOf(check *explain.Check, target *explain.Target) nodeKey {
	if target.Kind == "Machine" {
		return nodeKey{client.ObjectKey{Namespace: check.Namespace, Name: check.Cluster}, cmp.Or(target.Node, target.Name)}
	}
	here := nodeKey{name: target.Name}
	node := s.node(here)
	for _, cluster := range s.snapshot.Workloads() {
		key := nodeKey{cluster, target.Name}
		if there := s.node(key); node != nil && there != nil && there.UID == node.UID {
			return key
		}
	}
	return here
}

// cluster is the client of the controllers, which writes to the snapshot. Unlike an API server it refuses no write, deletes objects at
// once, and ignores resource versions. It implements only the methods that the controllers call.
type cluster struct {
	*snapshot.Snapshot // for reads

	clock clock.PassiveClock
	// changes counts the writes that changed an object.
	changes int
}

// Create adds a new object.
func (c *cluster) Create(ctx context.Context, obj client.Object, _ ...client.CreateOption) error {
	created := obj.DeepCopyObject().(client.Object)
	created.SetCreationTimestamp(metav1.NewTime(c.clock.Now()).Rfc3339Copy())
	created.SetGeneration(1)
	c.changes++
	if err := c.Add(created); err != nil {
		return err
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Update merges the fields of obj into the stored object. The controllers update only leases.
func (c *cluster) Update(ctx context.Context, obj client.Object, _ ...client.UpdateOption) error {
	return c.Patch(ctx, obj, client.Merge)
}

// Patch applies a merge patch (RFC 7386).
func (c *cluster) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	gvk, err := apiutil.GVKForObject(obj, snapshot.Scheme)
	if err != nil {
		return err
	}
	tree := &unstructured.Unstructured{}
	tree.SetGroupVersionKind(gvk)
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), tree); err != nil {
		return err
	}
	before, err := tree.MarshalJSON()
	if err != nil {
		return err
	}
	changes, err := patch.Data(obj)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, changes)
	if err != nil {
		return fmt.Errorf("patch %s %s: %w", gvk.Kind, obj.GetName(), err)
	}
	if !jsonpatch.Equal(before, after) {
		c.changes++
		if err := tree.UnmarshalJSON(after); err != nil {
			return err
		}
		if err := c.Add(tree); err != nil {
			return err
		}
	}
	return c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
}

// Delete removes an object.
func (c *cluster) Delete(_ context.Context, obj client.Object, _ ...client.DeleteOption) error {
	gvk, err := apiutil.GVKForObject(obj, snapshot.Scheme)
	if err == nil {
		c.changes++
		c.Remove(gvk, client.ObjectKeyFromObject(obj))
	}
	return err
}

// Status returns a writer that patches the whole object. Controllers change only the status with it.
func (c *cluster) Status() client.SubResourceWriter { return status{cluster: c} }

type status struct {
	client.SubResourceWriter

	cluster *cluster
}

// Patch patches the whole object.
func (s status) Patch(ctx context.Context, obj client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.cluster.Patch(ctx, obj, patch)
}
