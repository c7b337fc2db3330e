package workload

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// identityLabel and apiServer select the identity leases of API servers. Since Kubernetes v1.26 the leases have a label with the host
	// name. (Kubernetes, pkg/controlplane/apiserver: IdentityLeaseComponentLabelKey, KubeAPIServer)
	identityLabel = "apiserver.kubernetes.io/identity"
	apiServer     = "kube-apiserver"
	// askWithin is the timeout of the list.
	askWithin = 3 * time.Second
)

// RBAC in the workload clusters, for power cycles.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=list

// APIServers returns when the API servers of a cluster last renewed their identity leases, by host name, which is the name of the node in
// clusters of kubeadm. live must read from the API server. Leases without a host name are skipped.
func APIServers(ctx context.Context, live client.Reader) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	leases := &coordinationv1.LeaseList{}
	if err := live.List(ctx, leases, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{identityLabel: apiServer}); err != nil {
		return nil, fmt.Errorf("list the identity leases of API servers: %w", err)
	}
	renewed := map[string]time.Time{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if name := lease.Labels[corev1.LabelHostname]; name != "" && lease.Spec.RenewTime != nil &&
			lease.Spec.RenewTime.After(renewed[name]) {
			renewed[name] = lease.Spec.RenewTime.Time
		}
	}
	return renewed, nil
}
