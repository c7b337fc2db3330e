package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

// podChanged describes a change of a pod of the workload. What is said is about its node.
func podChanged(was, is *corev1.Pod) []observation {
	if was == nil || was.Labels["app"] != workload {
		return nil
	}
	switch {
	case is == nil && was.Status.Phase == corev1.PodFailed:
		// A pod that its node does not end itself is marked as failed first.
		return []observation{{
			by: controllerManager, fact: podGone, about: was.Spec.NodeName,
			text: fmt.Sprintf("removes Pod %s without waiting for its kubelet", was.Name),
		}}
	case is == nil:
		return []observation{{by: kubelet, fact: podGone, about: was.Spec.NodeName, text: fmt.Sprintf("Pod %s has ended", was.Name)}}
	case was.DeletionTimestamp.IsZero() && !is.DeletionTimestamp.IsZero():
		s := observation{by: "somebody", fact: podEvicted, about: is.Spec.NodeName, text: fmt.Sprintf("Pod %s is deleted and created again", is.Name)}
		if why := podCondition(is, corev1.DisruptionTarget); why != nil && why.Reason == "DeletionByTaintManager" {
			s.by, s.text = controllerManager, fmt.Sprintf("evicts Pod %s because of the taint; no kubelet runs that could end it", is.Name)
		}
		return []observation{s}
	case !runs(was) && runs(is):
		return []observation{{
			by: kubelet, fact: podRuns, about: is.Spec.NodeName, text: fmt.Sprintf("Pod %s runs on Node %s", is.Name, is.Spec.NodeName),
		}}
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
		return []observation{{
			by: attacher, fact: volumeDetached, about: was.Spec.NodeName,
			text: fmt.Sprintf("Volume %s is detached from Node %s", ptr.Deref(was.Spec.Source.PersistentVolumeName, "?"), was.Spec.NodeName),
		}}
	case is.Status.Attached && (was == nil || !was.Status.Attached):
		return []observation{{
			by: attacher, fact: volumeAttached, about: is.Spec.NodeName,
			text: fmt.Sprintf("Volume %s is attached to Node %s", ptr.Deref(is.Spec.Source.PersistentVolumeName, "?"), is.Spec.NodeName),
		}}
	case was != nil && was.DeletionTimestamp.IsZero() && !is.DeletionTimestamp.IsZero():
		return []observation{{
			by: controllerManager, fact: volumeToDetach, about: is.Spec.NodeName,
			text: fmt.Sprintf("deletes the VolumeAttachment of Node %s", is.Spec.NodeName),
		}}
	}
	return nil
}
