package main

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ready is the condition that the checks are about, of a healthy node.
var ready = corev1.NodeCondition{
	Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status",
	LastTransitionTime: since, LastHeartbeatTime: since,
}

// nodeConditions are the others, as of a heartbeat, always in the same order: a patch changes the order of what it merges.
func nodeConditions(beat metav1.Time) []corev1.NodeCondition {
	others := []corev1.NodeCondition{
		{Type: corev1.NodeNetworkUnavailable, Reason: "CiliumIsUp"},
		{Type: corev1.NodeMemoryPressure, Reason: "KubeletHasSufficientMemory"},
		{Type: corev1.NodeDiskPressure, Reason: "KubeletHasNoDiskPressure"},
		{Type: corev1.NodePIDPressure, Reason: "KubeletHasSufficientPID"},
	}
	for i := range others {
		c := &others[i]
		c.Status, c.Message = corev1.ConditionFalse, "the kubelet reports this in a sentence of about this length"
		c.LastTransitionTime, c.LastHeartbeatTime = since, beat
	}
	return others
}

// longUnknown is the patch after which a node has been Unknown for longer than the timeout.
func longUnknown(now time.Time) []byte { return unknownSince(now.Add(-longSince)) }

// unknownSince is the patch after which a node has been Unknown since that moment.
func unknownSince(fell time.Time) []byte {
	silent := ready
	silent.Status, silent.Reason, silent.Message = corev1.ConditionUnknown, "NodeStatusUnknown", "Kubelet stopped posting node status."
	silent.LastTransitionTime = metav1.NewTime(fell)
	return statusPatch(silent)
}

// readyAgain is the patch after which a node reports again.
func readyAgain(now time.Time) []byte {
	back := ready
	back.LastTransitionTime, back.LastHeartbeatTime = metav1.NewTime(now), metav1.NewTime(now)
	return statusPatch(back)
}

// heartbeat is the n-th patch in which only the time of the last heartbeat changes. Times in the API are whole seconds, so each is
// one later than the last: otherwise two beats within a second would be one.
func heartbeat(n int) []byte {
	beat := metav1.NewTime(since.Add(time.Duration(n+1) * time.Second))
	alive := ready
	alive.LastHeartbeatTime = beat
	return statusPatch(append(nodeConditions(beat), alive)...)
}

// statusPatch is a strategic merge patch: conditions are merged by type.
func statusPatch(conditions ...corev1.NodeCondition) []byte {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		panic(err) // conditions are plain values
	}
	return patch
}
