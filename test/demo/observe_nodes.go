package main

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
)

// nodeChanged describes a change of a Node.
func nodeChanged(was, is *corev1.Node) (seen []observation) {
	switch {
	case is == nil:
		return saw(machineController, shown, was.Name, "Node %s is removed with its Machine", was.Name)
	case was == nil:
		ready := ptr.Deref(nodeCondition(is, corev1.NodeReady), corev1.NodeCondition{Status: corev1.ConditionUnknown})
		return saw(kubelet, shown, is.Name, "Node %s registers, Ready=%s", is.Name, ready.Status)
	}
	// Only kubemend sets and removes the taint here.
	switch before, now := outOfService(was), outOfService(is); {
	case !before && now:
		seen = saw(kubemendHost, nodeFenced, is.Name, "sets the taint %s on Node %s: its host is proven off, so pods and volumes may move",
			infrav1.OutOfServiceTaintKey, is.Name)
	case before && !now:
		seen = saw(kubemendHost, nodeUnfenced, is.Name, "removes the taint from Node %s", is.Name)
	}
	before, now := nodeCondition(was, corev1.NodeReady), nodeCondition(is, corev1.NodeReady)
	if now == nil || before == nil || before.Status == now.Status {
		return seen
	}
	by := authorOf(is, string(corev1.NodeReady))
	if now.Status == corev1.ConditionTrue {
		return append(seen, saw(by, nodeReady, is.Name, "Node %s is Ready again", is.Name)...)
	}
	return append(seen, saw(by, nodeUnknown, is.Name, "Node %s is Ready=%s: %s", is.Name, now.Status, now.Message)...)
}

func outOfService(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == infrav1.OutOfServiceTaintKey })
}

func nodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// podChanged describes a change of a pod of the workload. What is said is about its node.
func podChanged(was, is *corev1.Pod) []observation {
	if was == nil || was.Labels["app"] != workload {
		return nil
	}
	switch {
	case is == nil && was.Status.Phase == corev1.PodFailed:
		// A pod that its node does not end itself is marked as failed first.
		return saw(controllerManager, podGone, was.Spec.NodeName, "removes Pod %s without waiting for its kubelet", was.Name)
	case is == nil:
		return saw(kubelet, podGone, was.Spec.NodeName, "Pod %s has ended", was.Name)
	case was.DeletionTimestamp.IsZero() && !is.DeletionTimestamp.IsZero():
		if why := podCondition(is, corev1.DisruptionTarget); why != nil && why.Reason == "DeletionByTaintManager" {
			return saw(controllerManager, podEvicted, is.Spec.NodeName,
				"evicts Pod %s because of the taint; no kubelet runs that could end it", is.Name)
		}
		return saw("somebody", podEvicted, is.Spec.NodeName, "Pod %s is deleted and created again", is.Name)
	case !runs(was) && runs(is):
		return saw(kubelet, podRuns, is.Spec.NodeName, "Pod %s runs on Node %s", is.Name, is.Spec.NodeName)
	}
	return nil
}

func runs(pod *corev1.Pod) bool {
	ready := podCondition(pod, corev1.PodReady)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// volumeChanged describes a change of a VolumeAttachment. kube-controller-manager makes and deletes
// them; without a CSI driver's attacher they would neither become true nor disappear.
func volumeChanged(was, is *storagev1.VolumeAttachment) []observation {
	switch {
	case is == nil:
		return saw(attacher, volumeDetached, was.Spec.NodeName, "Volume %s is detached from Node %s",
			ptr.Deref(was.Spec.Source.PersistentVolumeName, "?"), was.Spec.NodeName)
	case is.Status.Attached && (was == nil || !was.Status.Attached):
		return saw(attacher, volumeAttached, is.Spec.NodeName, "Volume %s is attached to Node %s",
			ptr.Deref(is.Spec.Source.PersistentVolumeName, "?"), is.Spec.NodeName)
	case was != nil && was.DeletionTimestamp.IsZero() && !is.DeletionTimestamp.IsZero():
		return saw(controllerManager, volumeToDetach, is.Spec.NodeName, "deletes the VolumeAttachment of Node %s", is.Spec.NodeName)
	}
	return nil
}
