package setup

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	mendv1 "github.com/kubemend/kubemend/api/v1alpha1"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
	"github.com/kubemend/kubemend/controllers/workload"
)

// recordService is the controller that follows remediations by their records, to be started when their kind is there.
func recordService(
	mgr ctrl.Manager, clusters *workload.Clusters, services *crdgate.Reconciler, kept *remediationrecord.Records,
	checks *machinehealthcheck.Reconciler, caches requestCaches, o *Options,
) *crdgate.Service {
	r := &remediationrecord.Reconciler{
		Client: client.WithFieldOwner(mgr.GetClient(), mendv1.FieldOwner), Live: mgr.GetAPIReader(), Mapper: mgr.GetRESTMapper(),
		Recent: &remediationrecord.Recent{Live: mgr.GetAPIReader(), Clock: clock.RealClock{}}, Cached: caches.requests, NodeCache: caches.nodes,
		Namespace: o.namespace, Clusters: clusters, Clock: clock.RealClock{}, Finds: checks.Finds, Recorder: mgr.GetEventRecorder("kubemend"),
		WatchFilterValue: o.watchFilter, Nodes: o.gates.Enabled(nodeHealthCheck) && o.kinds.NodeHealthChecks != crdgate.Off,
		ActsOnUnclaimed: o.machineHealthChecks.Unclaimed == machinehealthcheck.Act, Retention: o.records,
		ActsOnNodes: func() bool {
			return slices.ContainsFunc(services.Kinds(), func(kind managerlease.Kind) bool { return kind.CRD == crdgate.NodeCheckCRD && kind.Reason == "" })
		},
	}
	service := crdgate.Records()
	service.Start = func(ctx context.Context) error {
		return r.SetupWithManager(ctx, mgr, kept, controller.Options{MaxConcurrentReconciles: 10})
	}
	return service
}

// requestCaches are the caches that have requests, those of controllers that are started later among them, and that of this cluster's nodes.
type requestCaches struct {
	requests []remediationrecord.RequestCache
	nodes    client.Reader
}

// add adds a cache that has a namespace alone; all, if that is empty.
func (c *requestCaches) add(namespace string, cached remediationrecord.RequestCache) {
	c.requests = append(c.requests, func(ctx context.Context, kind schema.GroupVersionKind, in string) ([]client.Object, bool, error) {
		if namespace != "" && namespace != in {
			return nil, false, nil
		}
		return cached(ctx, kind, in)
	})
}
