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
	// identityLabel and apiServer mark the leases by which API servers say that they are alive, since v1.26 with the label of their host's
	// name. (Kubernetes, pkg/controlplane/apiserver: IdentityLeaseComponentLabelKey, KubeAPIServer.)
	identityLabel = "apiserver.kubernetes.io/identity"
	apiServer     = "kube-apiserver"
	// askWithin bounds the question for them: a cluster that does not answer is not waited for.
	askWithin = 3 * time.Second
)

// RBAC in the workload clusters, of who power-cycles hosts.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,roleName=kubemend-workload-fencer,verbs=list

// APIServers returns when the API servers of a cluster last renewed their identity leases, by the names of the hosts that they run on,
// which are those of their nodes where kubeadm made them. live reads past all caches. Leases that name no host are left out.
func APIServers(ctx context.Context, live client.Reader) (map[string]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	leases := &coordinationv1.LeaseList{}
	if err := live.List(ctx, leases, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{identityLabel: apiServer}); err != nil {
		return nil, fmt.Errorf("list the identity leases of API servers: %w", err)
	}
	renewed := map[string]time.Time{}
	for i := range leases.Items {
		lease := &leases.Items[i]
		if name := lease.Labels[corev1.LabelHostname]; name != "" && lease.Spec.RenewTime != nil && lease.Spec.RenewTime.After(renewed[name]) {
			renewed[name] = lease.Spec.RenewTime.Time
		}
	}
	return renewed, nil
}
