package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	authorizationv1 "k8s.io/api/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/policy"
	"github.com/kubemend/kubemend/controllers/process"
)

// policies returns the namespace whose RemediationPolicies apply in all namespaces that the manager watches.
func (o *Options) policies(self process.Replica) string {
	return cmp.Or(o.policyNamespace, o.namespace, o.election.namespace, self.Namespace)
}

// policyService returns the service that reads RemediationPolicies, for the CRD gate.
func (p *program) policyService() *crdgate.Service {
	service := crdgate.Policies()
	for _, namespace := range slices.Compact([]string{p.o.namespace, p.o.policies(p.self)}) {
		if p.o.namespace != "" { // a manager of all namespaces has this right by its ClusterRoleBinding
			service.Rights = append(service.Rights, authorizationv1.ResourceAttributes{
				Verb: "watch", Group: mendv1.GroupVersion.Group, Resource: "remediationpolicies", Namespace: namespace,
			})
			service.Role = "kubemend-manager-role"
		}
	}
	service.Start = func(ctx context.Context) error {
		r := &policy.Reconciler{
			Client: p.writer(), Ledger: p.ledger, Everywhere: p.o.policies(p.self), Ahead: p.server.Ahead, Live: p.GetAPIReader(),
		}
		if err := errors.Join(metrics.Registry.Register(p.ledger), r.SetupWithManager(p)); err != nil {
			return err
		}
		open, err := p.GetCache().GetInformer(ctx, &mendv1.RemediationRecord{}, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("cache RemediationRecords: %w", err)
		}
		return p.ledger.FollowRecords(open)
	}
	return service
}
