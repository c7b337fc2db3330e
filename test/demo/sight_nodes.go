package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// nodeChanged is what there is to say about a change of a Node.
func nodeChanged(was, is *corev1.Node) []sighting {
	switch {
	case is == nil:
		return []sighting{{by: machineController, fact: nodeRemoved, about: was.Name, text: fmt.Sprintf("Node %s is removed with its Machine", was.Name)}}
	case was == nil:
		s := sighting{by: kubelet, fact: nodeRegistered, about: is.Name, text: fmt.Sprintf("Node %s registers", is.Name)}
		if ready := nodeCondition(is, corev1.NodeReady); ready != nil {
			s.text += ", Ready=" + string(ready.Status)
		}
		return []sighting{s}
	default:
		return readyChanged(nodeCondition(was, corev1.NodeReady), is)
	}
}

// readyChanged is what there is to say if the condition Ready is not what it was.
func readyChanged(was *corev1.NodeCondition, node *corev1.Node) []sighting {
	is := nodeCondition(node, corev1.NodeReady)
	if is == nil || was == nil || was.Status == is.Status {
		return nil
	}
	s := sighting{by: authorOf(node, string(corev1.NodeReady)), about: node.Name}
	switch is.Status {
	case corev1.ConditionTrue:
		s.fact, s.text = nodeReady, fmt.Sprintf("Node %s is Ready again", node.Name)
	case corev1.ConditionUnknown:
		s.fact, s.text = nodeUnknown, fmt.Sprintf("Node %s is Ready=Unknown: %s", node.Name, is.Message)
	default:
		s.fact, s.text = nodeUnknown, fmt.Sprintf("Node %s is Ready=%s: %s", node.Name, is.Status, is.Message)
	}
	return []sighting{s}
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}
