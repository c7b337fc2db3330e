// Package process has what concerns the manager's process: its pod and node, its memory, and its HTTP servers.
package process

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// bootID is the file with the boot ID of the host, also in a container. The kubelet reports the same value in the status of the Node.
const bootID = "/proc/sys/kernel/random/boot_id"

// Replica describes one process of the manager. The zero value is a process outside of a cluster.
type Replica struct {
	Namespace, Name string    // of its pod
	UID             types.UID // of its pod
	// Node is the name of its node; empty if there is no BootID.
	Node string
	// BootID identifies the boot of the host; empty if the system is not Linux.
	BootID string
}

// FromEnvironment reads the environment variables that the manifests of the manager set.
func FromEnvironment() Replica {
	r := Replica{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: types.UID(os.Getenv("POD_UID"))}
	if boot, err := os.ReadFile(bootID); err == nil {
		r.Node, r.BootID = os.Getenv("NODE_NAME"), strings.TrimSpace(string(boot))
	}
	return r
}

// HideUID removes POD_UID from the environment until the caller calls show.
func (r Replica) HideUID() (show func()) {
	if r.UID == "" {
		return func() {}
	}
	_ = os.Unsetenv("POD_UID") // never fails on Linux
	return func() { _ = os.Setenv("POD_UID", string(r.UID)) }
}

// InCluster reports whether the process runs in a pod, even if the pod's name is not known: the kubelet sets KUBERNETES_SERVICE_HOST in
// every container.
func (r Replica) InCluster() bool {
	return r.Namespace != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// Identity returns the name of the pod. Without a pod it returns a unique name, because several managers may run on one host.
func (r Replica) Identity() (string, error) {
	if r.Name != "" {
		return r.Name, nil
	}
	return Unique()
}

// Unique returns an identity that no other process has.
func Unique() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the name of the host: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// Owner returns an owner reference to the pod, for objects in its namespace; nil in other namespaces and outside of a cluster.
func (r Replica) Owner(namespace string) *metav1.OwnerReference {
	if r.Name == "" || r.UID == "" || namespace != r.Namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: r.Name, UID: r.UID}
}

// RBAC to find another replica.
// +kubebuilder:rbac:groups=core,resources=pods,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=list

// ReadyElsewhere reports whether another replica is ready on another node.
func (r Replica) ReadyElsewhere(ctx context.Context, live client.Reader) (bool, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.InNamespace(r.Namespace)); err != nil {
		return false, fmt.Errorf("list the pods in %s: %w", r.Namespace, err)
	}
	return readyElsewhere(pods.Items, r.Name), nil
}

// readyElsewhere reports whether another replica of the named pod is ready on another node.
func readyElsewhere(pods []corev1.Pod, name string) bool {
	own := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Name == name })
	if own < 0 {
		return false
	}
	return slices.ContainsFunc(pods, func(p corev1.Pod) bool {
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"} {
			if p.Labels[key] != pods[own].Labels[key] {
				return false
			}
		}
		return p.DeletionTimestamp.IsZero() && p.Spec.NodeName != "" && p.Spec.NodeName != pods[own].Spec.NodeName &&
			slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			})
	})
}
