package remediationrecord

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/labels/format"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
)

// The kinds that records are about, and those of the checks that ask for remediations; checks of nodes have no namespace.
const (
	machineKind      = "Machine"
	nodeKind         = "Node"
	hostKind         = "BareMetalHost"
	nodeCheckKind    = "NodeHealthCheck"
	machineCheckKind = "MachineHealthCheck"
)

// OnMachine writes into record what a Machine says of the target of a remediation: itself, its owner and its MachineDeployment, its
// Cluster, where it is, and the name of its node.
func OnMachine(record *mendv1.RemediationRecord, m *clusterv1.Machine) {
	target := &record.Spec.Target
	*target = mendv1.RecordTarget{
		ClusterName: m.Spec.ClusterName, FailureDomain: cmp.Or(m.Status.FailureDomain, m.Spec.FailureDomain),
		Machine: &mendv1.RecordRef{
			APIVersion: clusterv1.GroupVersion.String(), Kind: machineKind, Namespace: m.Namespace, Name: m.Name, UID: string(m.UID),
		},
	}
	if deployment := m.Labels[clusterv1.MachineDeploymentNameLabel]; deployment != "" {
		metav1.SetMetaDataLabel(&record.ObjectMeta, clusterv1.MachineDeploymentNameLabel, deployment)
	}
	_, target.ControlPlane = m.Labels[clusterv1.MachineControlPlaneLabel]
	if by := metav1.GetControllerOf(m); by != nil {
		target.Owner = &mendv1.RecordRef{APIVersion: by.APIVersion, Kind: by.Kind, Namespace: m.Namespace, Name: by.Name, UID: string(by.UID)}
	}
	if m.Status.NodeRef.Name != "" {
		target.Node = NodeRef(m.Status.NodeRef.Name, "")
	}
}

// NodeRef names a node; uid is empty if it is not known.
func NodeRef(name, uid string) *mendv1.RecordRef {
	return &mendv1.RecordRef{APIVersion: "v1", Kind: "Node", Name: name, UID: uid}
}

// OnNode writes into target which node it is on, and the zone of that node as the failure domain of a target that has none: few Machines on
// bare metal have one, and a node without a Machine has no other. What n does not say stays as it is. (Kubernetes, well-known labels:
// topology.kubernetes.io/zone)
func OnNode(target *mendv1.RecordTarget, n *corev1.Node) {
	if n == nil {
		return
	}
	target.Node = NodeRef(n.Name, string(n.UID))
	target.FailureDomain = cmp.Or(target.FailureDomain, n.Labels[corev1.LabelTopologyZone])
}

// OwnedBy makes the Cluster own a record: it moves with it, and is deleted with it.
func OwnedBy(record *mendv1.RemediationRecord, cluster *clusterv1.Cluster) {
	record.Spec.Target.ClusterName, record.Spec.Target.ClusterUID = cluster.Name, string(cluster.UID)
	metav1.SetMetaDataLabel(&record.ObjectMeta, clusterv1.ClusterNameLabel, format.MustFormatValue(cluster.Name))
	record.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster.Name, UID: cluster.UID,
	}}
}

// WentAt is when the Machine of a record went, as the record says it or, before it does, when something was last written of it.
func WentAt(record *mendv1.RemediationRecord) (at time.Time, said bool) {
	if step := last(&record.Status, TargetGone); step != nil {
		return step.Time.Time, true
	}
	at = record.Spec.Decided.Time
	if n := len(record.Status.Steps); n > 0 {
		at = record.Status.Steps[n-1].Time.Time
	}
	return at, false
}
