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

// memberLabels are the labels of nodes that belong to a control plane, whatever their values: kubectl takes a role from the key alone.
var memberLabels = []string{
	// kubeadm (kubernetes.io/docs/reference/labels-annotations-taints), k3s, RKE2, OpenShift and Talos (siderolabs/talos,
	// internal/app/machined/pkg/controllers/k8s/node_label_spec.go).
	"node-role.kubernetes.io/control-plane",
	"node-role.kubernetes.io/master",       // kubeadm before 1.24, k3s, RKE2, OpenShift
	"node-role.kubernetes.io/controlplane", // RKE1 (rancher/rke, services/kubeapi.go)
	// k3s, RKE1 and RKE2. A server that runs etcd alone has no other role (docs.k3s.io/installation/server-roles), nor has
	// Harvester's witness (harvester/harvester, enhancements/20231113-witness-node-support.md).
	etcdLabel,
	// OpenShift's topology HighlyAvailableArbiter: it runs etcd alone (openshift/enhancements, arbiter-clusters.md).
	"node-role.kubernetes.io/arbiter",
	"node.kubernetes.io/microk8s-controlplane", // MicroK8s writes no role (canonical/microk8s, microk8s-resources/default-args/kubelet)
}

// RoleLabels are the labels that say whether a node is a member, and whether it runs etcd.
func RoleLabels() []string { return slices.Clone(memberLabels) }

// IsMember reports whether node belongs to the control plane of its cluster.
func IsMember(node *corev1.Node) bool {
	return node != nil && slices.ContainsFunc(memberLabels, func(label string) bool {
		_, labelled := node.Labels[label]
		return labelled
	})
}

// EtcdOf is what node, a member, says of etcd on it. Nil is a node that was not seen.
func EtcdOf(node *corev1.Node) Etcd {
	if node == nil {
		return EtcdUnknown
	}
	if _, labelled := node.Labels[etcdLabel]; labelled {
		return EtcdLabelled
	}
	return EtcdNotLabelled
}

// skew is by how much the clock of the holder of a lease may be ahead of ours.
const skew = 30 * time.Second

// Leased reports whether another one than holder has the lease on node (nil if it is gone): the Node Maintenance Operator or a
// NodeHealthCheck, which may switch the node off at any moment. A lease of a former node of the name counts for nothing, and one renewed in
// the future (medik8s) as well, but for a skew of clocks.
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

// Expiry is when lease runs out; zero if nobody has renewed it.
func Expiry(lease *coordinationv1.Lease) time.Time {
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Add(time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second)
}
