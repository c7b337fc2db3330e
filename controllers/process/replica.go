// Package process is what this process is beside its controllers: the pod and node that it runs in, its memory, and its HTTP
// servers.
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

// bootID is where Linux says which boot of the host this is, in a container as well; the kubelet has it from there.
const bootID = "/proc/sys/kernel/random/boot_id"

// Replica is one process of the manager. The zero value runs in no pod.
type Replica struct {
	// Namespace, Name and UID are those of its pod.
	Namespace, Name string
	UID             types.UID
	// Node is the name of its node, BootID says which boot of the host. Both are empty outside of Linux.
	Node, BootID string
}

// FromEnvironment reads what the manifests of the manager put into the environment of its pod.
func FromEnvironment() Replica {
	r := Replica{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: types.UID(os.Getenv("POD_UID"))}
	if boot, err := os.ReadFile(bootID); err == nil {
		r.Node, r.BootID = os.Getenv("NODE_NAME"), strings.TrimSpace(string(boot))
	}
	return r
}

// HideUID takes the UID of the pod out of the environment until the returned function is called.
func (r Replica) HideUID() (show func()) {
	if r.UID == "" {
		return func() {}
	}
	_ = os.Unsetenv("POD_UID") // it fails for no name of a variable
	return func() { _ = os.Setenv("POD_UID", string(r.UID)) }
}

// InCluster reports that the process runs in a pod, also if nothing says in which: the kubelet gives the address of the API server to
// every container.
func (r Replica) InCluster() bool {
	return r.Namespace != "" || os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// Identity is the name of the pod. Outside of a cluster several managers may run on one host, so there it is unique.
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

// Owner returns the pod as an owner of objects in a namespace; nil outside of a cluster, or if the pod is in another namespace.
func (r Replica) Owner(namespace string) *metav1.OwnerReference {
	if r.Name == "" || r.UID == "" || namespace != r.Namespace {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: r.Name, UID: r.UID}
}

// RBAC to find another replica, which is in the manager's own namespace.
// +kubebuilder:rbac:groups=core,resources=pods,namespace=kubemend-system,roleName=kubemend-leader-election,verbs=list

// ReadyElsewhere reports whether another replica is ready on another node.
func (r Replica) ReadyElsewhere(ctx context.Context, live client.Reader) (bool, error) {
	pods := &corev1.PodList{}
	if err := live.List(ctx, pods, client.InNamespace(r.Namespace)); err != nil {
		return false, fmt.Errorf("list the pods in %s: %w", r.Namespace, err)
	}
	return readyElsewhere(pods.Items, r.Name), nil
}

// readyElsewhere reports whether there is a replica of the pod called name that is ready, on another node.
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
