package controlplane

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const etcdLabel = "node-role.kubernetes.io/etcd"

// memberLabels are the labels of nodes that belong to a control plane, whatever their values: kubectl reads a role from the key alone.
var memberLabels = []string{
	// kubeadm (kubernetes.io/docs/reference/labels-annotations-taints), k3s, RKE2, OpenShift and Talos (siderolabs/talos,
	// internal/app/machined/pkg/controllers/k8s/node_label_spec.go).
	"node-role.kubernetes.io/control-plane",
	"node-role.kubernetes.io/master",       // kubeadm before 1.24, k3s, RKE2, OpenShift
	"node-role.kubernetes.io/controlplane", // RKE1 (rancher/rke, services/kubeapi.go)
	// k3s, RKE1 and RKE2. It is the only role of a server that runs only etcd (docs.k3s.io/installation/server-roles) and of Harvester's
	// witness (harvester/harvester, enhancements/20231113-witness-node-support.md).
	etcdLabel,
	// OpenShift's topology HighlyAvailableArbiter: the arbiter runs only etcd (openshift/enhancements, arbiter-clusters.md).
	"node-role.kubernetes.io/arbiter",
	"node.kubernetes.io/microk8s-controlplane", // MicroK8s sets no role label (canonical/microk8s, microk8s-resources/default-args/kubelet)
}

// RoleLabels returns the labels that say whether a node is a member of a control plane, and whether it runs etcd.
func RoleLabels() []string { return slices.Clone(memberLabels) }

// IsMember reports whether node belongs to the control plane of its cluster.
func IsMember(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(memberLabels, func(label string) bool {
		_, labelled := node.Labels[label]
		return labelled
	})
}

// EtcdOf returns what the labels of a member's node say about etcd; EtcdUnknown for nil, a node that was not read.
func EtcdOf(node *corev1.Node) Etcd {
	if node == nil {
		return EtcdUnknown
	}
	if _, labelled := node.Labels[etcdLabel]; labelled {
		return EtcdLabelled
	}
	return EtcdNotLabelled
}

// skew is how far the clock of a lease's holder may be ahead of the manager's clock.
const skew = 30 * time.Second

// Leased reports whether somebody other than holder has the lease on node (nil if the node is gone): the Node Maintenance Operator or
// another NodeHealthCheck, which may power the node off at any moment. A lease of a former node with the same name does not count. Neither
// does a lease that was renewed in the future, as in medik8s, unless skew explains it.
func Leased(lease *coordinationv1.Lease, node *corev1.Node, holder string, now time.Time) bool {
	by := ptr.Deref(lease.Spec.HolderIdentity, "")
	if by == "" || by == holder || lease.Spec.RenewTime == nil || node != nil && ofFormer(lease, node) {
		return false
	}
	return now.Before(Expiry(lease)) && !lease.Spec.RenewTime.After(now.Add(skew))
}

func ofFormer(lease *coordinationv1.Lease, node *corev1.Node) bool {
	owners := slices.DeleteFunc(slices.Clone(lease.OwnerReferences), func(o metav1.OwnerReference) bool { return o.Kind != "Node" })
	return len(owners) > 0 && !slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == node.UID })
}

// Expiry returns when lease expires; zero if it has no renewTime.
func Expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}
