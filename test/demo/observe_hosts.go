package main

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	infrav1 "github.com/kubemend/kubemend/api/infrastructure/v1beta2"
	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/baremetal/powercycle"
)

// remediationChanged describes changes of HostRemediations. written formats times.
func remediationChanged(written func(time.Time) string) func(old, updated *mendv1.HostRemediation) []observation {
	return func(old, updated *mendv1.HostRemediation) (seen []observation) {
		switch {
		case updated == nil:
			return saw(makerOfRequest(old), requestGone, old.Name,
				"deletes HostRemediation %s, since its Machine is healthy again", old.Name)
		case old == nil:
			return saw(makerOfRequest(updated), requestMade, updated.Name,
				"the timeout of Machine %[1]s has expired: makes HostRemediation %[1]s from the template", updated.Name)
		}
		if old.Status.Attempt != updated.Status.Attempt && updated.Status.Deadline != nil {
			seen = saw(kubemendHost, attemptBegun, updated.Name,
				"starts attempt %d of %d. Deadline for the host to be off and without workload: %s",
				updated.Status.Attempt, *updated.Spec.Strategy.RetryLimit+1, written(updated.Status.Deadline.Time))
		}
		if turned(old, updated, infrav1.WorkloadMovedCondition, metav1.ConditionTrue) {
			seen = append(seen, saw(kubemendHost, workloadMoved, updated.Name,
				"reports that no pod and no volume is left on Node %s", updated.Name)...)
		}
		// The wait for the machine to become healthy has its own deadline.
		const booting = string(powercycle.Booting)
		if old.Status.Step != booting && updated.Status.Step == booting && updated.Status.Deadline != nil {
			seen = append(seen, saw(kubemendHost, bootAwaited, updated.Name,
				"waits for Machine %s to be healthy until %s; then the attempt has failed",
				updated.Name, written(updated.Status.Deadline.Time))...)
		}
		return seen
	}
}

// makerOfRequest returns who created a remediation. kubemend annotates the remediations of its checks.
func makerOfRequest(rem *mendv1.HostRemediation) string {
	if rem.Annotations[mendv1.MadeByAnnotation] != "" {
		return kubemend
	}
	return "somebody"
}

func nodeChanged(old, updated *corev1.Node) (seen []observation) {
	switch {
	case updated == nil:
		return saw(machineController, shown, old.Name, "Node %s is removed with its Machine", old.Name)
	case old == nil:
		ready := ptr.Deref(nodeCondition(updated, corev1.NodeReady), corev1.NodeCondition{Status: corev1.ConditionUnknown})
		return saw(kubelet, shown, updated.Name, "Node %s registers, Ready=%s", updated.Name, ready.Status)
	}
	// Only kubemend sets and removes the taint in the demo.
	switch before, now := outOfService(old), outOfService(updated); {
	case !before && now:
		seen = saw(kubemendHost, nodeFenced, updated.Name,
			"sets the taint %s on Node %s: its host is proven off, so pods and volumes may move",
			infrav1.OutOfServiceTaintKey, updated.Name)
	case before && !now:
		seen = saw(kubemendHost, nodeUnfenced, updated.Name, "removes the taint from Node %s", updated.Name)
	}
	before, now := nodeCondition(old, corev1.NodeReady), nodeCondition(updated, corev1.NodeReady)
	if now == nil || before == nil || before.Status == now.Status {
		return seen
	}
	by := authorOf(updated, string(corev1.NodeReady))
	if now.Status == corev1.ConditionTrue {
		return append(seen, saw(by, nodeReady, updated.Name, "Node %s is Ready again", updated.Name)...)
	}
	return append(seen, saw(by, nodeUnknown, updated.Name, "Node %s is Ready=%s: %s", updated.Name, now.Status, now.Message)...)
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

// podChanged describes changes of the workload's pod. The observations are about the pod's node.
func podChanged(old, updated *corev1.Pod) []observation {
	if old == nil || old.Labels["app"] != workload {
		return nil
	}
	switch {
	case updated == nil && old.Status.Phase == corev1.PodFailed:
		// A deleted pod that its kubelet does not end is marked as failed before it is removed.
		return saw(controllerManager, podGone, old.Spec.NodeName, "removes Pod %s without waiting for its kubelet", old.Name)
	case updated == nil:
		return saw(kubelet, podGone, old.Spec.NodeName, "Pod %s has ended", old.Name)
	case old.DeletionTimestamp.IsZero() && !updated.DeletionTimestamp.IsZero():
		if why := podCondition(updated, corev1.DisruptionTarget); why != nil && why.Reason == "DeletionByTaintManager" {
			return saw(controllerManager, podEvicted, updated.Spec.NodeName,
				"evicts Pod %s because of the taint; no kubelet runs that could end it", updated.Name)
		}
		return saw("somebody", podEvicted, updated.Spec.NodeName, "Pod %s is deleted and created again", updated.Name)
	case !runs(old) && runs(updated):
		return saw(kubelet, podRuns, updated.Spec.NodeName, "Pod %s runs on Node %s", updated.Name, updated.Spec.NodeName)
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

// volumeChanged describes changes of VolumeAttachments. kube-controller-manager creates and deletes them; a CSI attacher sets their status
// and removes their finalizer.
func volumeChanged(old, updated *storagev1.VolumeAttachment) []observation {
	switch {
	case updated == nil:
		return saw(attacher, volumeDetached, old.Spec.NodeName, "Volume %s is detached from Node %s",
			ptr.Deref(old.Spec.Source.PersistentVolumeName, "?"), old.Spec.NodeName)
	case updated.Status.Attached && (old == nil || !old.Status.Attached):
		return saw(attacher, volumeAttached, updated.Spec.NodeName, "Volume %s is attached to Node %s",
			ptr.Deref(updated.Spec.Source.PersistentVolumeName, "?"), updated.Spec.NodeName)
	case old != nil && old.DeletionTimestamp.IsZero() && !updated.DeletionTimestamp.IsZero():
		return saw(controllerManager, volumeToDetach, updated.Spec.NodeName, "deletes the VolumeAttachment of Node %s",
			updated.Spec.NodeName)
	}
	return nil
}
