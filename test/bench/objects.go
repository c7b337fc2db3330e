package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/kubemend/kubemend/test/builders"
)

const (
	namespace = "bench"
	// checkTimeout is the timeout of every check. Nodes become Unknown with a transition that is longer ago, but not by as much as
	// kubemend takes for a wrong clock.
	checkTimeout = 5 * time.Second
	longSince    = 6 * time.Second
	// touchLabel on a node makes a NodeHealthCheck reconcile.
	touchLabel = "bench.kubemend.io/touched"
)

// since is the last transition of all conditions of healthy objects.
var since = metav1.NewTime(time.Now().Add(-24 * time.Hour).Truncate(time.Second))

// checkOf is the check on all machines of a cluster, as Cluster API's webhook would have completed it.
func checkOf(cluster *clusterv1.Cluster) *clusterv1.MachineHealthCheck {
	return builders.MachineHealthCheck(cluster, cluster.Name, builders.Patience(checkTimeout), func(check *clusterv1.MachineHealthCheck) {
		check.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster.Name}
		check.Spec.Checks.NodeStartupTimeoutSeconds = ptr.To[int32](600)
	})
}

// padding makes an object as large as those of production, which have labels and annotations of many tools.
func padding(bytes int) map[string]string {
	return map[string]string{"bench.kubemend.io/padding": strings.Repeat("x", bytes)}
}

// machineOf is a machine of about 4 KiB without the conditions of checks.
func machineOf(i int) (*clusterv1.Machine, clusterv1.MachineStatus) {
	name := machineName(i)
	return &clusterv1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Finalizers: []string{clusterv1.MachineFinalizer},
			Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName,
				clusterv1.MachineDeploymentNameLabel: clusterName + "-md-0"},
			Annotations: padding(1300),
		},
		Spec: clusterv1.MachineSpec{
			ClusterName: clusterName, Version: builders.KubernetesVersion, ProviderID: providerID(name),
			Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To(name)},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: name,
			},
		},
	}, machineStatus(name)
}

func machineStatus(name string) clusterv1.MachineStatus {
	status := clusterv1.MachineStatus{
		Phase: string(clusterv1.MachinePhaseRunning), ObservedGeneration: 1, LastUpdated: since,
		NodeRef:  clusterv1.MachineNodeReference{Name: name},
		NodeInfo: ptr.To(systemInfo(name)),
		Initialization: clusterv1.MachineInitializationStatus{InfrastructureProvisioned: ptr.To(true),
			BootstrapDataSecretCreated: ptr.To(true)},
		Conditions: []metav1.Condition{bad(clusterv1.MachineDeletingCondition), bad(clusterv1.PausedCondition)},
	}
	for _, kind := range []string{
		clusterv1.MachineAvailableCondition, clusterv1.MachineReadyCondition, clusterv1.MachineUpToDateCondition,
		clusterv1.MachineBootstrapConfigReadyCondition, clusterv1.MachineInfrastructureReadyCondition,
		clusterv1.MachineNodeHealthyCondition, clusterv1.MachineNodeReadyCondition,
	} {
		status.Conditions = append(status.Conditions, good(kind))
	}
	return status
}

func good(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: since, ObservedGeneration: 1}
}

func bad(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: "Not" + kind, LastTransitionTime: since,
		ObservedGeneration: 1}
}

func providerID(name string) string { return "metal3://bench/" + name + "/" + name }

// nodeOf is a node of about 8 KiB: what a kubelet reports is mostly images.
func nodeOf(i int) *corev1.Node {
	name := machineName(i)
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("263856792Ki"),
		corev1.ResourcePods: resource.MustParse("250"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: padding(850),
			Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "node-role.kubernetes.io/worker": ""},
		},
		Spec: corev1.NodeSpec{ProviderID: providerID(name)},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity, NodeInfo: systemInfo(name), Images: images(),
			Conditions: append(nodeConditions(since), ready),
		},
	}
}

func systemInfo(name string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{
		MachineID: name, SystemUUID: name, BootID: name, KernelVersion: "6.12.9-talos", OSImage: "Talos (v1.11.2)",
		ContainerRuntimeVersion: "containerd://2.1.4", KubeletVersion: builders.KubernetesVersion, OperatingSystem: "linux",
		Architecture: "amd64",
	}
}

func images() []corev1.ContainerImage {
	all := make([]corev1.ContainerImage, 28) // a kubelet reports up to 50
	for i := range all {
		image := fmt.Sprintf("platform.example/systems/component-%02d", i)
		all[i] = corev1.ContainerImage{
			Names:     []string{fmt.Sprintf("%s@sha256:%064x", image, i+1), image + ":v1.2.3"},
			SizeBytes: int64(20_000_000 + i),
		}
	}
	return all
}

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
