package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// nodeChanged describes a change of a Node.
func nodeChanged(was, is *corev1.Node) []observation {
	switch {
	case is == nil:
		return []observation{{by: machineController, fact: nodeRemoved, about: was.Name, text: fmt.Sprintf("Node %s is removed with its Machine", was.Name)}}
	case was == nil:
		s := observation{by: kubelet, fact: nodeRegistered, about: is.Name, text: fmt.Sprintf("Node %s registers", is.Name)}
		if ready := nodeCondition(is, corev1.NodeReady); ready != nil {
			s.text += ", Ready=" + string(ready.Status)
		}
		return []observation{s}
	default:
		return append(fenceChanged(was, is), readyChanged(nodeCondition(was, corev1.NodeReady), is)...)
	}
}

// fenceChanged describes a change of the taint that makes Kubernetes move the workload of a node. Only kubemend sets and removes it here.
func fenceChanged(was, is *corev1.Node) []observation {
	before, now := outOfService(was), outOfService(is)
	switch {
	case !before && now:
		return []observation{{
			by: kubemendHost, fact: nodeFenced, about: is.Name,
			text: fmt.Sprintf("sets the taint %s on Node %s: its host is proven off, so pods and volumes may move", infrav1.OutOfServiceTaintKey, is.Name),
		}}
	case before && !now:
		return []observation{{by: kubemendHost, fact: nodeUnfenced, about: is.Name, text: fmt.Sprintf("removes the taint from Node %s", is.Name)}}
	}
	return nil
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}

// readyChanged describes a change of the condition Ready.
func readyChanged(was *corev1.NodeCondition, node *corev1.Node) []observation {
	is := nodeCondition(node, corev1.NodeReady)
	if is == nil || was == nil || was.Status == is.Status {
		return nil
	}
	s := observation{by: authorOf(node, string(corev1.NodeReady)), about: node.Name}
	switch is.Status {
	case corev1.ConditionTrue:
		s.fact, s.text = nodeReady, fmt.Sprintf("Node %s is Ready again", node.Name)
	case corev1.ConditionUnknown:
		s.fact, s.text = nodeUnknown, fmt.Sprintf("Node %s is Ready=Unknown: %s", node.Name, is.Message)
	default:
		s.fact, s.text = nodeUnknown, fmt.Sprintf("Node %s is Ready=%s: %s", node.Name, is.Status, is.Message)
	}
	return []observation{s}
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
