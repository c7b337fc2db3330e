package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodeCondition is a status of a condition of a node, as a flag: TYPE=STATUS.
type NodeCondition struct {
	Name   corev1.NodeConditionType
	Status corev1.ConditionStatus
}

// NodeSilent is the condition of a node whose kubelet hangs.
var NodeSilent = NodeCondition{corev1.NodeReady, corev1.ConditionUnknown}

// String is the condition as Set reads it.
func (c *NodeCondition) String() string { return string(c.Name) + "=" + string(c.Status) }

// Type names what the flag takes, in its help.
func (c *NodeCondition) Type() string { return "TYPE=STATUS" }

// Set reads TYPE=STATUS. A node that is Ready=True does not fail.
func (c *NodeCondition) Set(is string) error {
	name, status, _ := strings.Cut(is, "=")
	set := NodeCondition{corev1.NodeConditionType(name), corev1.ConditionStatus(status)}
	switch set.Status {
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		name = ""
	}
	if name == "" || set == set.over() {
		return fmt.Errorf("expected the condition by which a node fails, such as %s or KernelDeadlock=True", NodeSilent.String())
	}
	*c = set
	return nil
}

// over is the condition when the failure is over: Ready is good as True, any other as False, unless that is how it fails.
func (c NodeCondition) over() NodeCondition {
	if c.Name == corev1.NodeReady || c.Status == corev1.ConditionFalse {
		return NodeCondition{c.Name, corev1.ConditionTrue}
	}
	return NodeCondition{c.Name, corev1.ConditionFalse}
}

// writtenBy are the reason and the message of the conditions that a kubelet, or the node controller for it, writes.
var writtenBy = map[NodeCondition][2]string{
	NodeSilent:        {"NodeStatusUnknown", "Kubelet stopped posting node status."},
	NodeSilent.over(): {"KubeletReady", "kubelet is posting ready status"},
}

// setCondition gives a node a condition.
func setCondition(node *corev1.Node, to NodeCondition, now time.Time) {
	by := writtenBy[to]
	is := corev1.NodeCondition{
		Type: to.Name, Status: to.Status, Reason: cmp.Or(by[0], "Simulated"), Message: by[1], LastTransitionTime: metav1.NewTime(now),
	}
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == to.Name })
	if i < 0 {
		node.Status.Conditions = append(node.Status.Conditions, is)
		return
	}
	if was := node.Status.Conditions[i]; was.Status == to.Status {
		is.LastTransitionTime = was.LastTransitionTime
	}
	node.Status.Conditions[i] = is
}
