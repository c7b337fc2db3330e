package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubemend/kubemend/cmd/kubectl-mend/snapshot"
	"github.com/kubemend/kubemend/controllers/explain"
)

// nodeKey names a node. The cluster is empty for one of the management cluster.
type nodeKey struct {
	cluster client.ObjectKey
	name    string
}

// Silent is the condition of a node whose kubelet hangs.
const Silent = "Ready=Unknown"

// ParseCondition reads TYPE=STATUS, by which a node fails.
func ParseCondition(text string) (corev1.NodeCondition, error) {
	name, status, _ := strings.Cut(text, "=")
	cond := corev1.NodeCondition{Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(status), Reason: "Simulated"}
	known := cond.Status == corev1.ConditionTrue || cond.Status == corev1.ConditionFalse || cond.Status == corev1.ConditionUnknown
	if name == "" || !known || text == "Ready=True" {
		return cond, fmt.Errorf("--fail-condition %q: expected the condition by which a node fails, such as %s or KernelDeadlock=True",
			text, Silent)
	}
	if text == Silent {
		cond.Reason, cond.Message = "NodeStatusUnknown", "Kubelet stopped posting node status."
	}
	return cond, nil
}

// fail makes the nodes fail that the question names.
func (s *simulation) fail(checks []explain.Check) error {
	if s.Fail == "" {
		return nil
	}
	cond, err := ParseCondition(s.Condition)
	if err != nil {
		return err
	}
	candidates, unknown := s.candidates(checks)
	nodes, err := chosen(s.Fail, candidates)
	switch {
	case err != nil && unknown != "":
		return fmt.Errorf("--fail %q: %w; %s", s.Fail, err, unknown)
	case err != nil:
		return fmt.Errorf("--fail %q: %w", s.Fail, err)
	}
	cond.LastTransitionTime = metav1.NewTime(s.clock.Now())
	names := make([]string, 0, len(nodes))
	for _, node := range nodes {
		names = append(names, node.name)
		s.failed[node], s.unnoticed[node] = true, true
		s.edit(node, func(obj *corev1.Node) {
			obj.Status.Conditions = slices.DeleteFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == cond.Type })
			obj.Status.Conditions = append(obj.Status.Conditions, cond)
		})
	}
	lasts := ""
	if s.For > 0 {
		lasts = " for " + explain.Brief(s.For)
	}
	s.assume(fmt.Sprintf("Nodes that turn %s at once%s (--fail, --fail-condition, --for): %s", s.Condition, lasts, firstOf(names)))
	return nil
}

// mostNames is how many names stand in one sentence.
const mostNames = 20

// firstOf are the first names, and how many more there are.
func firstOf(names []string) string {
	if more := len(names) - mostNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

// ready makes a node healthy.
func (s *simulation) ready(node nodeKey) {
	delete(s.failed, node)
	s.edit(node, func(obj *corev1.Node) {
		obj.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastTransitionTime: metav1.NewTime(s.clock.Now()),
		}}
	})
}

// heal ends the remediation of a target: its node is healthy, and its machine is as a new one would be.
func (s *simulation) heal(target explain.Ref, node nodeKey) {
	s.ready(node)
	machine := snapshot.One[clusterv1.Machine](s.snapshot, client.ObjectKey{Namespace: target.Namespace, Name: target.Name}).DeepCopy()
	if target.Kind != "Machine" || machine == nil {
		return
	}
	delete(machine.Annotations, clusterv1.RemediateMachineAnnotation)
	machine.DeletionTimestamp = nil
	machine.Status = clusterv1.MachineStatus{NodeRef: clusterv1.MachineNodeReference{Name: node.name}, Conditions: []metav1.Condition{{
		Type: clusterv1.MachineInfrastructureReadyCondition, Status: metav1.ConditionTrue, Reason: clusterv1.MachineInfrastructureReadyReason,
		LastTransitionTime: metav1.NewTime(s.clock.Now()),
	}}}
	_ = s.snapshot.Add(machine) // it is known by its type
}

// edit changes a node wherever it is known: a cluster that manages itself has its nodes twice here. One that is not there registers.
func (s *simulation) edit(key nodeKey, change func(*corev1.Node)) {
	node := s.node(key).DeepCopy()
	if node == nil {
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: key.name, CreationTimestamp: metav1.NewTime(s.clock.Now())}}
	}
	change(node)
	for _, cluster := range append(s.snapshot.Workloads(), client.ObjectKey{}) {
		known := s.node(nodeKey{cluster, key.name})
		if cluster == key.cluster || known != nil && known.UID == node.UID {
			_ = s.place(cluster).Add(node) // nodes are known by their type
		}
	}
}

// place has the nodes of a cluster, which is empty for the management cluster.
func (s *simulation) place(cluster client.ObjectKey) *snapshot.Snapshot {
	if cluster == (client.ObjectKey{}) {
		return s.snapshot
	}
	return s.snapshot.Workload(cluster)
}

// node is shared; nil if there is none.
func (s *simulation) node(key nodeKey) *corev1.Node {
	return snapshot.One[corev1.Node](s.place(key.cluster), client.ObjectKey{Name: key.name})
}

// nodeOf is the node of a target. A machine without a node gets one of its own name when its remediation is over. A node of the
// management cluster is that of the workload cluster that it belongs to, if there is one.
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
