package setup

import (
	"context"
	"slices"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/kubemend/kubemend/controllers/capacity"
	"github.com/kubemend/kubemend/controllers/crdgate"
	"github.com/kubemend/kubemend/controllers/machinehealthcheck"
	"github.com/kubemend/kubemend/controllers/managerlease"
	"github.com/kubemend/kubemend/controllers/remediationrecord"
)

// recordService is the controller that follows remediations by their records, to be started when their kind is there.
func (p *program) recordService() *crdgate.Service {
	recent := &remediationrecord.Recent{Live: p.GetAPIReader(), Clock: clock.RealClock{}}
	r := &remediationrecord.Reconciler{
		Client: p.writer(), Live: p.GetAPIReader(), Recent: recent, Mapper: p.GetRESTMapper(),
		Clusters: p.clusters, Clock: clock.RealClock{}, Cached: p.caches, Recorder: p.GetEventRecorder("kubemend"),
		Capacity: &capacity.Observer{
			Management: recent, Mapper: p.GetRESTMapper(), // caches have a part of Machines alone
		},
		WatchFilterValue: p.o.watchFilter, Nodes: p.o.gates.Enabled(nodeHealthCheck) && p.o.kinds.NodeHealthChecks != crdgate.Off,
		ActsOnUnclaimed: p.o.machineHealthChecks.Unclaimed == machinehealthcheck.Act,
		ActsOnNodes: func() bool {
			return slices.Contains(p.services.Kinds(), managerlease.Kind{CRD: crdgate.NodeCheckCRD})
		},
		Retention: p.o.records,
	}
	service := crdgate.Records()
	service.Start = func(ctx context.Context) error {
		return r.SetupWithManager(ctx, p, p.records, controller.Options{MaxConcurrentReconciles: 10})
	}
	return service
}
