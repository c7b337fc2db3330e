package main

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
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
		return append(fenceChanged(was, is), readyChanged(nodeCondition(was, corev1.NodeReady), is)...)
	}
}

// fenceChanged looks at the taint that makes Kubernetes move what is on a node. Only kubemend sets and removes it here.
func fenceChanged(was, is *corev1.Node) []sighting {
	before, now := outOfService(was), outOfService(is)
	switch {
	case !before && now:
		return []sighting{{
			by: kubemendHost, fact: nodeFenced, about: is.Name,
			text: fmt.Sprintf("puts the taint %s on Node %s: its host is off for certain, so pods and volumes may move", infrav1.OutOfServiceTaintKey, is.Name),
		}}
	case before && !now:
		return []sighting{{by: kubemendHost, fact: nodeUnfenced, about: is.Name, text: fmt.Sprintf("takes the taint off Node %s", is.Name)}}
	}
	return nil
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
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
