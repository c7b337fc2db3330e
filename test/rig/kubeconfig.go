package rig

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// coreKubeconfig is the key of the kubeconfig that core takes instead of the one that all take; see test/rig/capi.
const coreKubeconfig = "core"

// KubeconfigSecret gives Cluster API access to the workload cluster of a Cluster. Create it before the Cluster's
// infrastructure is provisioned: a connection that fails is tried again only after 30 s.
func KubeconfigSecret(cluster client.ObjectKey, workload *ControlPlane) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.Namespace,
			Name:      secret.Name(cluster.Name, secret.Kubeconfig),
			Labels:    map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{secret.KubeconfigDataName: workload.Kubeconfig()},
	}
}

// SharedKubeconfigSecret is KubeconfigSecret with a kubeconfig for kubemend, such as GrantWorkloadUser returns, and the administrator's for
// core. Cluster API knows only one Secret for all its clients, and core needs more rights than kubemend: it labels nodes, and drains and deletes
// them. So in a real management cluster the user of that Secret may do more than kubemend ever does. That kubemend could do with less can
// only be shown where each has its own.
func SharedKubeconfigSecret(cluster client.ObjectKey, workload *ControlPlane, kubemend []byte) *corev1.Secret {
	s := KubeconfigSecret(cluster, workload)
	s.Data[coreKubeconfig], s.Data[secret.KubeconfigDataName] = s.Data[secret.KubeconfigDataName], kubemend
	return s
}
